"""
The demo keeps its promises, the picture in the README is current, and the demo always cleans up.
"""

import html
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from demo import folder_of
from harness.cluster import ROOT
from testbed.processes import commands_with

pytestmark = pytest.mark.embedded_only

DEMO = [sys.executable, str(ROOT / "e2e/demo.py")]


@pytest.fixture
def demo_folder() -> Iterator[Path]:
    """A short path, other than the default of a demo that may still be running."""
    folder = Path(tempfile.mkdtemp(prefix="hami-demo-"))
    yield folder
    subprocess.run([*DEMO, "--folder", str(folder), "--down"], check=True)


def started(folder: Path) -> subprocess.Popen[str]:
    """Start the demo and return it once its first Pods run."""
    demo = subprocess.Popen(
        [*DEMO, "--folder", str(folder)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, bufsize=1
    )
    assert demo.stdout is not None
    said = []
    for line in demo.stdout:
        if "each Pod got exactly" in line:
            return demo
        said.append(line)
    raise AssertionError(f"the demo ended before its first Pods ran, with status {demo.wait()}:\n{''.join(said)}")


def running_in(folder: Path) -> list[str]:
    """Return the command lines of all processes that name *folder*, except the demo."""
    return [command for command in commands_with(str(folder)) if "demo.py" not in command]


def promises(picture: Path) -> list[str]:
    """Return the lines of a picture that say a promise held, without amounts and times."""
    lines = re.findall(r">([^<\n]+)</text>", picture.read_text())
    texts = [html.unescape(line).replace("\N{NO-BREAK SPACE}", " ").strip() for line in lines]
    return [re.sub(r"\d+", "N", text) for text in texts if "promises held" in text or text.startswith("✓")]


def first_line(command: list[str]) -> str:
    """Return the first line that *command* prints, and end it."""
    environment = {**os.environ, "BROWSER": "true"}
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        process.terminate()
    return line


def check_next_commands(printed: str) -> None:
    """Run the commands that a demo that stays up has *printed* last."""
    lines = [line.split() for line in printed.partition("The cluster is still up:")[2].splitlines() if line.strip()]
    commands = {words[1]: words for words in lines}
    assert first_line(commands["top"]).startswith("NAMESPACE")
    assert first_line(commands["waiting"]).startswith("NAMESPACE")
    assert first_line(commands["explain"]).startswith("default/resident fits nowhere")
    assert first_line([*commands["ui"], "--port=0"]).startswith("http://127.0.0.1:")


def test_demo_holds_every_promise_and_the_picture_shows_them(tmp_path: Path, demo_folder: Path) -> None:
    """It ends with status 0, the committed picture has the same promises, and the commands it prints last work."""
    picture = tmp_path / "demo.svg"

    done = subprocess.run(
        [*DEMO, "--folder", str(demo_folder), "--picture", str(picture), "--keep"],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )

    assert 0 == done.returncode, done.stdout + done.stderr
    assert promises(ROOT / "docs/demo.svg") == promises(picture)
    check_next_commands(done.stdout)
    assert len(promises(picture)) > 10


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_interrupted_demo_leaves_nothing_and_says_so_without_a_traceback(
    demo_folder: Path, number: signal.Signals
) -> None:
    """No process and no file is left, and the exit status is not 0."""
    demo = started(demo_folder)

    demo.send_signal(number)
    said, _ = demo.communicate(timeout=30)

    assert (130, [], False) == (demo.returncode, running_in(demo_folder), demo_folder.exists()), said
    assert "Traceback" not in said


def test_killed_demo_takes_its_cluster_along(demo_folder: Path) -> None:
    """The kernel ends all processes of the cluster, containers included."""
    demo = started(demo_folder)

    demo.kill()
    demo.communicate()
    deadline = time.monotonic() + 15
    while running_in(demo_folder) and time.monotonic() < deadline:
        time.sleep(0.1)

    assert [] == running_in(demo_folder)


def test_containers_whose_kubelet_was_killed_are_ended_by_the_next_run(demo_folder: Path) -> None:
    """`make down` finds them by the files of their shims."""
    demo = started(demo_folder)
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        command = path.read_bytes().split(b"\0")
        if b"kubelet" in command and f"--root={demo_folder}".encode() in b" ".join(command):
            os.kill(int(path.parent.name), signal.SIGKILL)
    demo.kill()
    demo.communicate()
    assert any("shim" in command for command in running_in(demo_folder))

    subprocess.run([*DEMO, "--folder", str(demo_folder), "--down"], check=True)

    assert [] == [command for command in running_in(demo_folder) if "shim" in command]


def test_demos_of_two_checkouts_have_a_folder_each() -> None:
    """Otherwise the demo of the second would end that of the first."""
    assert folder_of(Path("/home/a/hami")) != folder_of(Path("/home/b/hami"))


def test_second_demo_in_the_same_folder_is_refused_and_harms_nothing(demo_folder: Path) -> None:
    """Otherwise it would remove the cluster of the first."""
    first = started(demo_folder)

    second = subprocess.run([*DEMO, "--folder", str(demo_folder)], capture_output=True, text=True, check=False)
    said, _ = first.communicate(timeout=60)

    assert (1, f"demo: {demo_folder} is in use: wait for the other run, or end it with Ctrl-C\n") == (
        second.returncode,
        second.stderr,
    )
    assert 0 == first.returncode, said
