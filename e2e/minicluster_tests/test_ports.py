"""Processes that ask for free ports at the same time get different ones."""

import itertools
import subprocess
import sys

import pytest

from testbed import ports

OTHER_PROCESS = """
import itertools, sys
from testbed import ports
ports._ports = itertools.count(int(sys.argv[1]))
print(ports.free_port())
"""


def test_port_that_nothing_listens_at_yet_is_not_given_to_another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clusters that start together choose all their ports before their programs listen."""
    monkeypatch.setattr(ports, "_ports", itertools.count(19_000))
    ours = ports.free_port()

    done = subprocess.run([sys.executable, "-c", OTHER_PROCESS, str(ours)], capture_output=True, text=True, check=True)

    assert ours < int(done.stdout)
