"""
Run one target: one process after another, until it has used its inputs or its time, or has found enough.

Neighbours: `one` is the process of a Python target, `native` has the programs, `results` reads their logs.
"""

import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from fuzz import native, results, targets
from fuzz.results import Finding, Progress, Result
from fuzz.targets.forms import ROOT

OUTPUT: Final = ROOT / "build/fuzz"
FINDINGS_MAX: Final = 5
"""After which a target ends: further ones are mostly the same."""
INPUT_SECONDS_MAX: Final = 120
"""Of the wall clock, for an input that never ends; `bounds` has the limit of computing time."""
PROCESS_MIB_MAX: Final = 2048
BYTES_MAX: Final = 65536
SHOW_SECONDS: Final = 10.0


def run(name: str, seed: int, seconds: float | None) -> Result:
    """
    Run the target *name* for so many *seconds*; None: for its fixed number of inputs, from the seeds alone.

    Each process begins after the last finding, with the next seed.
    """
    folder = OUTPUT / name
    kept = folder / ("fixed" if seconds is None else "corpus")
    _write_seeds(name, folder)
    if seconds is None:
        shutil.rmtree(kept, ignore_errors=True)
    kept.mkdir(exist_ok=True)
    began, ended, found = time.monotonic(), Progress(), list[Finding]()
    inputs = new_entries = 0
    while len(found) < FINDINGS_MAX:
        left = _inputs(name) - inputs if seconds is None else round(seconds - (time.monotonic() - began))
        if left <= 0:
            break
        bound = f"-runs={left}" if seconds is None else f"-max_total_time={left}"
        ended = _process(name, [str(kept), str(folder / "seeds"), bound, f"-seed={seed + len(found)}"], folder)
        inputs, new_entries = inputs + ended.inputs, new_entries + ended.new_entries
        if not ended.problem:
            break
        found.append(_finding(name, ended, folder / "log"))
    took = time.monotonic() - began
    return Result(name, seed, took, inputs, ended.edges, ended.features, new_entries, tuple(found))


def replay(name: str, path: Path) -> list[str]:
    """Return the command that checks the input at *path* again."""
    return [*_command(name), *([] if name in native.TARGETS else ["--replay"]), str(path)]


def _command(name: str) -> list[str]:
    return [str(native.BUILD / name)] if name in native.TARGETS else [sys.executable, "-m", "fuzz.one", name]


def _inputs(name: str) -> int:
    return native.TARGETS[name].inputs if name in native.TARGETS else targets.load(name).INPUTS


def _write_seeds(name: str, folder: Path) -> None:
    """Write the seeds of a target, and the words that inputs may consist of."""
    target = native.TARGETS.get(name) or targets.load(name)
    shutil.rmtree(folder / "seeds", ignore_errors=True)
    (folder / "seeds").mkdir(parents=True)
    for number, text in enumerate(target.seeds()):
        (folder / "seeds" / f"{number:03}").write_bytes(text)
    (folder / "words").write_text("".join(f'"{word}"\n' for word in targets.words()))


def _process(name: str, arguments: Sequence[str], folder: Path) -> Progress:
    """Run one process, and show from time to time how far it is."""
    command = [*_command(name), *arguments, f"-artifact_prefix={folder}/", f"-dict={folder / 'words'}"]
    command += [f"-timeout={INPUT_SECONDS_MAX}", f"-rss_limit_mb={PROCESS_MIB_MAX}", f"-max_len={BYTES_MAX}"]
    command.append("-print_final_stats=1")
    log = folder / "log"
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if memory.is_dir() else None) as files, log.open("w") as output:
        # Hashes differ from process to process unless they are told not to, and with them the coverage.
        environment = {**os.environ, "PYTHONHASHSEED": "0", "TMPDIR": files}
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, cwd=ROOT, env=environment)
        try:
            _show(name, process.poll, log)
        finally:
            process.kill()
            process.wait()
    ended = results.progress(log.read_text(errors="replace"))
    if process.returncode and not ended.problem:
        return Progress(ended.inputs, problem=f"ended with {process.returncode}")
    return ended


def _show(name: str, poll: Callable[[], int | None], log: Path) -> None:
    shown = time.monotonic()
    while poll() is None:
        time.sleep(0.1)
        if time.monotonic() - shown > SHOW_SECONDS:
            shown = time.monotonic()
            so_far = results.progress(log.read_text(errors="replace"))
            print(f"{name}: {so_far.inputs:,} inputs, {so_far.edges:,} edges", flush=True)


def _finding(name: str, ended: Progress, log: Path) -> Finding:
    """Return the finding that ended a process, which wrote its input, or else only its log."""
    shown = Path(ended.file).relative_to(ROOT) if ended.file else log.relative_to(ROOT)
    command = shlex.join([".venv/bin/python", "-m", "fuzz", "--target", name, "--replay", str(shown)])
    print(f"{name}: FOUND {ended.problem}\n    {command}", flush=True)
    return Finding(ended.problem, str(shown), command)
