"""
The command `kubectl hami ui`, and the Events that its page shows.
"""

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest
import yaml

from kubectl_hami.answer.events import events_about

from .builders import a_refusal

PROGRAM = Path(sys.executable).with_name("kubectl-hami")


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Path:
    """A kubeconfig whose server is not there: the page starts without it."""
    names = {"cluster": {"server": "http://127.0.0.1:1"}, "context": {"cluster": "c", "user": "u"}, "user": {}}
    config = {f"{kind}s": [{"name": kind[0], kind: value}] for kind, value in names.items()}
    file = tmp_path / "kubeconfig"
    file.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config", "current-context": "c", **config}))
    return file


@pytest.fixture
def port() -> Iterator[int]:
    """A port of loopback that somebody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        yield taken.getsockname()[1]


def test_ui_prints_the_address_answers_there_and_ends_well_on_ctrl_c(kubeconfig: Path) -> None:
    """The address is the only line on stdout, so that a script can open it."""
    # A shell lets what a script starts in the background ignore Ctrl-C, these tests for example.
    heeds_ctrl_c = ("env", "--default-signal=INT")
    command = [*heeds_ctrl_c, str(PROGRAM), "ui", "--port=0", f"--kubeconfig={kubeconfig}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        with pytest.raises(OSError, match="403"):
            urlopen(address, timeout=10)  # follows the redirect, without the cookie
        process.send_signal(signal.SIGINT)
        rest, errors = process.communicate(timeout=20)

    assert address.startswith("http://127.0.0.1:")
    assert ("", 0) == (rest, process.returncode)
    assert "kubectl hami ui: the page is at this address, for you alone; Ctrl-C ends it\n" == errors


@pytest.mark.parametrize("bad", ["taken", "-1", "65536"])
def test_ui_says_that_its_port_cannot_be_used(kubeconfig: Path, port: int, bad: str) -> None:
    """It names the option and what to write instead."""
    number = str(port) if bad == "taken" else bad
    command = [str(PROGRAM), "ui", f"--port={number}", f"--kubeconfig={kubeconfig}"]

    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert 2 == done.returncode
    assert done.stderr.startswith(f"kubectl hami ui: --port {number} cannot be used: ")
    assert done.stderr.endswith("; --port 0 takes any free one\n")


def test_events_come_newest_first_whichever_form_they_have() -> None:
    """A count with a last time, a series, and a single moment; one without any is the oldest."""
    counted = {**a_refusal(message="counted"), "lastTimestamp": "2026-11-25T12:00:00Z", "count": 3}
    series = {"message": "series", "series": {"count": 9, "lastObservedTime": "2026-11-25T12:02:00.000000Z"}}
    single = {"message": "single", "eventTime": "2026-11-25T12:01:00.000000Z", "lastTimestamp": None}

    found = events_about([{"message": "bare"}, counted, series, single])

    assert [("series", 9), ("single", 1), ("counted", 3), ("bare", 1)] == [(one.message, one.count) for one in found]


def test_an_event_with_a_count_that_is_no_number_counts_once() -> None:
    """A tenant who may create Events can write any value."""
    [found] = events_about([{"message": "odd", "count": "many", "series": ["x"], "lastTimestamp": 7}])

    assert (1, None) == (found.count, found.at)
