"""
The cluster's network: a bridge in the control machine, a veth pair to each node, a route to each node's Pods.

Owns the addresses. Everything is in the network namespaces of the machines, so two clusters can have the same
addresses at the same time. Must never know what runs in a machine.
"""

import subprocess
from collections.abc import Iterable

CONTROL_ADDRESS = "10.99.0.1"
POD_RANGE = "10.244.0.0/16"
SERVICE_RANGE = "10.96.0.0/16"
API_SERVICE = "10.96.0.1"
DNS_SERVICE = "10.96.0.10"
"""The name server of Pods. Where none runs, a query fails at once."""

_PREFIX = 24
_FIRST_NODE = 10


class NetworkError(Exception):
    """A change of a machine's network failed. The message has the command and the reason."""


def node_address(index: int) -> str:
    """Return the address of node *index*, from 1."""
    return f"10.99.0.{_FIRST_NODE + index}"


def pod_range(index: int) -> str:
    """Return the address range of the Pods of node *index*."""
    return f"10.244.{index}.0/24"


def prepare_control(pid: int) -> None:
    """Make the bridge in the network of process *pid*, which is in the control machine."""
    _ip(
        pid,
        "link set lo up",
        "link add cluster type bridge",
        f"address add {CONTROL_ADDRESS}/{_PREFIX} dev cluster",
        "link set cluster up",
    )
    _forward(pid)


def connect(control: int, pid: int, index: int, others: Iterable[int]) -> None:
    """
    Connect node *index*, whose first process is *pid*, to the control machine, with routes to the nodes *others*.

    *others* are the indices of present and future nodes. Their routes to this node are made by their `connect`.
    """
    cable = f"node{index}"
    # After a power cut, the kernel may still have the node's old network and interface.
    _run(control, ["ip", "link", "delete", cable])
    _ip(
        control,
        f"link add {cable} type veth peer name eth0 netns {pid}",
        f"link set {cable} master cluster up",
        f"route replace {pod_range(index)} via {node_address(index)}",
    )
    _ip(
        pid,
        "link set lo up",
        f"address add {node_address(index)}/{_PREFIX} dev eth0",
        "link set eth0 up",
        f"route replace default via {CONTROL_ADDRESS}",
        *(f"route replace {pod_range(other)} via {node_address(other)}" for other in others),
    )
    _forward(pid)


def add_route(pid: int, index: int) -> None:
    """Add a route to the Pods of node *index* in the network of process *pid*."""
    _ip(pid, f"route replace {pod_range(index)} via {node_address(index)}")


def is_connected(pid: int) -> bool:
    """Return whether the network of process *pid* has its interface."""
    shown = _enter(pid, ["ip", "-brief", "link", "show"], "")
    return any(line.startswith(("eth0@", "cluster ")) for line in shown.splitlines())


def _forward(pid: int) -> None:
    _enter(pid, ["sysctl", "-q", "-w", "net.ipv4.ip_forward=1"], "")


def _ip(pid: int, *commands: str) -> None:
    _enter(pid, ["ip", "-batch", "-"], "\n".join([*commands, ""]))


def _enter(pid: int, argv: list[str], content: str) -> str:
    """Run a command of this machine in the network of *pid*, and return its output. Raises: NetworkError."""
    done = _run(pid, argv, content)
    if done.returncode != 0:
        raise NetworkError(f"{' '.join(argv)} in the network of process {pid}: {done.stderr.strip()}: {content}")
    return done.stdout


def _run(pid: int, argv: list[str], content: str = "") -> subprocess.CompletedProcess[str]:
    enter = ["nsenter", f"--target={pid}", "--net"]
    return subprocess.run([*enter, *argv], input=content, capture_output=True, text=True, check=False)
