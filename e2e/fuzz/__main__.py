"""
Run the targets: a fixed number of inputs each, or for as long as one likes.

    python -m fuzz                               the same inputs each time, from the seeds on
    python -m fuzz --minutes 120 --seed 7        all together take so long, and go on from what they kept before
    python -m fuzz --target pod                  one of them
    python -m fuzz --target pod --replay FILE    what a finding does

Each target has a folder below `build/fuzz`, with its log, what it has kept, and the inputs of findings.
"""

import argparse
import importlib.util
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from fuzz import native, results, targets
from fuzz.results import Result
from fuzz.run import replay, run
from testbed.campaigns import record
from testbed.debian import PackageError

NO_ATHERIS: Final = "this Python and machine have no wheel of atheris; `tox -e fuzz` installs it where there is one"


def main() -> int:
    """Run what the command line asks for; return 1 if anything was found."""
    asked = _arguments()
    if asked.replay:
        return subprocess.run(replay(asked.target[0], asked.replay), check=False).returncode
    names = asked.target or [*targets.NAMES, *native.TARGETS]
    skipped = _unavailable(names)
    running = [name for name in names if name not in skipped]
    seconds = asked.minutes * 60 / len(running) if asked.minutes and running else None
    found = [run(name, asked.seed, seconds) for name in running]
    found += [Result(name, asked.seed, 0.0, skipped=reason) for name, reason in skipped.items()]
    print(f"\n{results.table(found)}")
    done = [result for result in found if not result.skipped]
    amounts = {"inputs": sum(result.inputs for result in done), "targets": len(done)}
    problems = [f"{result.target}: {finding.problem}" for result in done for finding in result.findings]
    record("fuzz", asked.seed, sum(result.seconds for result in done) / 60, amounts, problems)
    return 1 if any(result.findings for result in found) else 0


def _arguments() -> argparse.Namespace:
    names = [*targets.NAMES, *native.TARGETS]
    parser = argparse.ArgumentParser(prog="python -m fuzz", description="Find inputs for which a reader fails.")
    parser.add_argument(
        "--minutes", type=float, help="how long all targets take together; without: a fixed number each"
    )
    parser.add_argument("--target", action="append", choices=names, metavar="NAME", help=", ".join(names))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--replay", type=Path, metavar="FILE", help="check this input of the target again")
    asked = parser.parse_args()
    if asked.replay and len(asked.target or ()) != 1:
        parser.error("--replay FILE needs one --target NAME")
    return asked


def _unavailable(names: Iterable[str]) -> dict[str, str]:
    """Return why which of *names* cannot run here; build the programs of the others."""
    reasons = {}
    if importlib.util.find_spec("atheris") is None:
        reasons = {name: NO_ATHERIS for name in names if name not in native.TARGETS}
    wanted = [name for name in names if name in native.TARGETS]
    if wanted:
        try:
            native.build()
        except PackageError as error:
            reasons |= dict.fromkeys(wanted, str(error).splitlines()[0])
    return reasons


if __name__ == "__main__":
    sys.exit(main())
