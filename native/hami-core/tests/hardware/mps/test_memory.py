"""
Limits on the memory of clients.
"""

from pathlib import Path

import pytest
from containers import GPU_A
from hardware.mps.node import Node
from hardware.process import Start

from testbed.driver.hardware import FakeDriver, StandInCgroups


def test_pinned_limit_shows_as_free_and_not_as_total(node: Node) -> None:
    """
    It is one for all devices, and the context counts.
    """
    node.control.ask("namespace", "create", "n", "--server=s")
    node.control.ask("namespace", "set", "n", "--server=s", "--pinned-memory-limit=5G")
    client = node.process("s", "n", FAKE_DRIVER_CONTEXT_MIB="256")

    assert [[5120 - 256, 16384], 4864] == client.ask_all("Cuda().visible()", "fill(256)")


@pytest.mark.parametrize(
    ("own", "expected_mib"),
    [("0=2G", 2048), (f"{GPU_A}=2G", 2048), ("0=20G", 5120), ("0=2G,3=4G", 16128), ("GPU-absent=1G", 16128)],
)
def test_client_lowers_its_pinned_limit_or_voids_it(node: Node, own: str, expected_mib: int) -> None:
    """
    An entry for a device that it does not see ends every limit, that of the namespace included. The server has 30 MiB.
    """
    node.control.ask("namespace", "create", "n", "--server=s")
    node.control.ask("namespace", "set", "n", "--server=s", "--pinned-memory-limit=5G")

    client = node.process("s", "n", CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=own)
    assert expected_mib == client.ask("fill(256)")


def test_limit_of_a_cgroup_holds_for_a_client(node: Node, driver: FakeDriver, start: Start, tmp_path: Path) -> None:
    """
    Together with the percentage of its namespace.
    """
    cgroups = StandInCgroups(tmp_path / "cgroup", driver.folder / "devices.csv")
    folder = cgroups.create("/kubepods/pod1/c1")
    assert start(**cgroups.variables("/")).ask(f"set_limits({str(folder)!r}, 0, {3000 << 20})") is None
    node.control.add_namespace("s", "n", 50)
    client = node.client("s", "n", **cgroups.variables("/kubepods/pod1/c1"))

    assert [54, 2944] == client.ask_all("multiprocessors()", "fill(128)")
