"""
The network between machines, in plain network namespaces.
"""

import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from controlplane.machines import network

pytestmark = pytest.mark.usefixtures("able_machine")

Namespace = Callable[[], int]


@contextmanager
def _namespace() -> Iterator[int]:
    """Yield the pid of a process in a new network namespace, which ends with it."""
    process = subprocess.Popen(["unshare", "--net", "sh", "-c", "echo; exec sleep 1000"], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    try:
        yield process.pid
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def namespace() -> Iterator[Namespace]:
    """Return a function that makes network namespaces."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(_namespace())


def _reaches(pid: int, address: str) -> bool:
    """Return whether *address* answers a packet from the network of *pid*."""
    ask = ["nsenter", f"--target={pid}", "--net", "bash", "-c", f"exec 3<>/dev/tcp/{address}/9"]
    done = subprocess.run(ask, capture_output=True, text=True, check=False)
    return "Connection refused" in done.stderr


def test_nodes_reach_each_other_and_nothing_is_in_this_machines_network(namespace: Namespace) -> None:
    """The bridge is in the control machine."""
    before = sorted(path.name for path in Path("/sys/class/net").iterdir())
    control, one, two = namespace(), namespace(), namespace()
    network.prepare_control(control)

    network.connect(control, one, 1, [2])
    network.connect(control, two, 2, [1])

    assert network.is_connected(one)
    assert _reaches(one, network.CONTROL_ADDRESS)
    assert _reaches(one, network.node_address(2))
    assert before == sorted(path.name for path in Path("/sys/class/net").iterdir())


def test_node_is_connected_again_while_its_old_network_still_exists(namespace: Namespace) -> None:
    """The kernel removes a network some time after its last process has ended."""
    control, former, node = namespace(), namespace(), namespace()
    network.prepare_control(control)
    network.connect(control, former, 1, [])

    network.connect(control, node, 1, [])

    assert _reaches(node, network.CONTROL_ADDRESS)
    assert not network.is_connected(former)
