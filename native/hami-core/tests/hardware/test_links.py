"""
How GPUs are connected.
"""

from typing import Any

import pynvml as n
import pytest
from containers import GPU_A, GPU_B, GPU_C
from hardware.process import Process, Start, error

from testbed.driver.hardware import FakeDriver

NOT_SUPPORTED = error(n.NVML_ERROR_NOT_SUPPORTED)
INVALID = error(n.NVML_ERROR_INVALID_ARGUMENT)
SWITCH = "00000008:00:00.0"


def links(process: Process, index: int, count: int) -> list[Any]:
    """Return state, kind and address of the other end of the first links of a GPU."""
    return [
        process.ask_all(
            f"n.nvmlDeviceGetNvLinkState(gpu({index}), {number})",
            f"n.nvmlDeviceGetNvLinkRemoteDeviceType(gpu({index}), {number})",
            f"n.nvmlDeviceGetNvLinkRemotePciInfo(gpu({index}), {number}).busId",
        )
        for number in range(count)
    ]


def test_gpus_without_nvlink_do_not_support_it(start: Start) -> None:
    """
    Peer-to-peer access works over PCIe, and not over NVLink.
    """
    process = start()
    calls = [f"n.nvmlDeviceGetNvLink{what}(gpu(0), 0)" for what in ("State", "RemotePciInfo", "Version")]
    access = "[n.nvmlDeviceGetP2PStatus(gpu(0), gpu(1), way) for way in (0, 1, 2, 4)]"

    assert [NOT_SUPPORTED] * 3 == process.ask_all(*calls)
    assert [0, 0, 5, 0] == process.ask(access)


def test_links_lead_to_gpus_and_switches(start: Start, driver: FakeDriver) -> None:
    """
    Each side numbers its links in the order in which they were connected. A number beyond the last is invalid.
    """
    driver.connect(GPU_A, GPU_B, 2)
    driver.connect(GPU_A, "switch", 1)
    driver.connect(GPU_B, GPU_A, 1)
    process = start()

    to_b, to_switch = [1, 0, "00000000:65:00.0"], [1, 2, SWITCH]
    assert [to_b, to_b, to_switch] == links(process, 0, 3)
    assert [[1, 0, "00000000:17:00.0"]] == links(process, 1, 1)
    assert INVALID == process.ask("n.nvmlDeviceGetNvLinkState(gpu(0), 3)")
    assert 3 == process.ask("n.nvmlDeviceGetFieldValues(gpu(0), [n.NVML_FI_DEV_NVLINK_LINK_COUNT])[0].value.ullVal")
    assert [0, 5] == process.ask("[n.nvmlDeviceGetP2PStatus(gpu(0), gpu(other), 2) for other in (1, 2)]")


def test_link_may_go_down_and_come_up(start: Start, driver: FakeDriver) -> None:
    """
    It keeps its number, and the others stay up.
    """
    driver.connect(GPU_A, GPU_B, 3)
    process = start()
    states = "[n.nvmlDeviceGetNvLinkState(gpu(0), number) for number in range(3)]"

    driver.break_link(GPU_A, 1)
    assert [1, 0, 1] == process.ask(states)
    driver.mend_link(GPU_A, 1)
    assert [1, 1, 1] == process.ask(states)


@pytest.mark.parametrize(
    ("name", "level"),
    [("internal", 0), ("single", 10), ("multiple", 20), ("hostbridge", 30), ("node", 40), ("system", 50)],
)
def test_gpus_have_the_ancestor_that_a_test_gives_them(start: Start, driver: FakeDriver, name: str, level: int) -> None:
    """
    Both sides see the same. Without it, the level follows from their NUMA nodes.
    """
    process = start()
    levels = "[n.nvmlDeviceGetTopologyCommonAncestor(gpu(a), gpu(b)) for a, b in ((0, 1), (0, 2), (2, 0), (1, 1))]"

    assert [40, 50, 50, 0] == process.ask(levels)
    driver.place(GPU_C, GPU_A, name)
    assert [40, level, level, 0] == process.ask(levels)
    assert GPU_C in process.ask(
        f"[n.nvmlDeviceGetUUID(g) for g in n.nvmlDeviceGetTopologyNearestGpus(gpu(0), {level})]"
    )


def test_link_errors_are_what_a_test_sets(start: Start, driver: FakeDriver) -> None:
    """
    Every link of the GPU has them.
    """
    driver.connect(GPU_A, GPU_B, 2)
    driver.set(GPU_A, nvlink_crc_data_errors=7)
    counters = "[n.nvmlDeviceGetNvLinkErrorCounter(gpu(0), 1, counter) for counter in range(4)]"

    assert [0, 0, 0, 7] == start().ask(counters)
