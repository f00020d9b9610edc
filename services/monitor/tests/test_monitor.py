"""
Probes and scrapes of the monitor.
"""

import asyncio
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from hami_monitor.adapters.kube import Events, Node, Pods
from hami_monitor.adapters.nvml import Driver
from hami_monitor.adapters.processes import Processes
from hami_monitor.config import Config
from hami_monitor.metrics.collector import MonitorCollector
from hami_monitor.serve.monitor import Monitor
from hami_monitor.serve.rounds import STALLED_SECONDS
from hamicommon.runtime.api.kube import Kube
from hamicommon.wire.region.codec import decode_region
from hamicommon.wire.region.layout import SLOTS
from testbed.waiting import eventually

from .pod_server import PodServer, a_pod
from .region_files import HookPath, Process, a_region


class Clock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> Clock:
    """Return a clock that stands still."""
    return Clock()


@pytest.fixture
async def monitor(hook_path: HookPath, pod_server: PodServer, tmp_path: Path, clock: Clock) -> AsyncIterator[Monitor]:
    """Yield a monitor of a Node without Pods."""
    async with await Kube.connect(str(pod_server.kubeconfig(tmp_path)), "test") as kube:
        pods = Pods(kube, "n1")
        following = asyncio.create_task(pods.run())
        await pods.synced.wait()
        monitor = Monitor(
            Config("n1", str(hook_path.path)), pods, Node(kube, "n1"), Driver(), Processes(), Events(kube), clock
        )
        yield monitor
        monitor.close()
        following.cancel()


async def test_monitor_is_ready_after_its_first_round(monitor: Monitor) -> None:
    """An earlier scrape would leave containers out."""
    assert "the first round has not ended yet" == monitor.rounds.ready()

    await monitor.rounds.round()

    assert monitor.rounds.ready() is None


async def test_monitor_without_rounds_is_not_alive(monitor: Monitor, clock: Clock) -> None:
    """The kubelet restarts a monitor whose disk hangs."""
    clock.seconds += STALLED_SECONDS
    assert monitor.rounds.live() is None

    clock.seconds += 1

    assert "the last round ended 61 s ago" == monitor.rounds.live()


async def test_folder_that_cannot_be_listed_is_survived_and_named(monitor: Monitor, hook_path: HookPath) -> None:
    """The round is skipped, readiness says why, and a later round succeeds."""
    hook_path.path.mkdir()
    hook_path.containers.symlink_to(hook_path.containers)

    await monitor.rounds.round()
    assert (0, True) == (monitor.status().rounds, "symbolic links" in (monitor.rounds.ready() or ""))

    hook_path.containers.unlink()
    await monitor.rounds.round()
    assert (1, None) == (monitor.status().rounds, monitor.rounds.ready())


async def test_scrape_shows_a_region_that_is_newer_than_the_last_round(
    monitor: Monitor, hook_path: HookPath, pod_server: PodServer
) -> None:
    """A container's use is shown from its first launch, not from the next round."""
    await monitor.rounds.round()
    pod_server.put(a_pod(granted="GPU-a,NVIDIA,3000,0:;"))
    await eventually(lambda: monitor.observe().pods)
    hook_path.add("u1_main", a_region(processes=(Process({0: (1, 2, 3, 0, 6)}),)))

    usages = monitor.observe().usages

    assert [6] == [sums.total for usage in usages.values() for sums in usage.devices.values()]


async def with_regions(
    monitor: Monitor, hook_path: HookPath, pod_server: PodServer, **regions: bytearray
) -> list[Path]:
    """Give each Pod in *regions*, which shares GPU-a with the others, its region; return their paths."""
    paths = [hook_path.add(f"{uid}_main", content) for uid, content in regions.items()]
    for uid in regions:
        pod_server.put(a_pod(uid, granted="GPU-a,NVIDIA,3,0:;"))
    await eventually(lambda: len(monitor.observe().pods) == len(regions))
    return paths


async def test_forged_priority_blocks_no_neighbour(
    monitor: Monitor, hook_path: HookPath, pod_server: PodServer
) -> None:
    """The Pod says which priority a container has; neither of these has any."""
    forged, honest = a_region(priority=0), a_region(priority=1)
    _, path = await with_regions(monitor, hook_path, pod_server, forger=forged, honest=honest)

    await monitor.rounds.round()

    region = decode_region(path.read_bytes())
    assert (1, 1) == (region.recent_kernel, region.utilization_switch)


async def test_one_store_does_not_keep_a_container_active(
    monitor: Monitor, hook_path: HookPath, pod_server: PodServer
) -> None:
    """Two rounds after its last launch a container is idle, and its neighbour has the device for itself."""
    regions = {"forger": a_region(recent_kernel=2047), "honest": a_region(recent_kernel=2)}
    forger, honest = await with_regions(monitor, hook_path, pod_server, **regions)

    for _ in range(2):
        await monitor.rounds.round()

    assert 0 == decode_region(forger.read_bytes()).recent_kernel
    assert 0 == decode_region(honest.read_bytes()).utilization_switch


async def test_text_in_a_region_is_in_no_metric(monitor: Monitor, hook_path: HookPath, pod_server: PodServer) -> None:
    """Labels are those of the Pod and its grant; a region adds and renames no series."""
    names = tuple(f"invented-{index}".encode() for index in range(15))
    forged = a_region(uuids=(*names, b"GPU-a"), processes=(Process({15: (1, 2, 3, 0, 6)}),))
    await with_regions(monitor, hook_path, pod_server, forger=forged)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(MonitorCollector(monitor.observe, monitor.status))

    text = generate_latest(registry).decode()

    assert "invented" not in text
    [line] = [line for line in text.splitlines() if line.startswith("hami_vgpu_memory_used_bytes{")]
    assert 'device_uuid="GPU-a"' in line
    assert line.endswith(" 6.0")


async def test_forged_regions_cost_a_bounded_amount_of_memory(
    monitor: Monitor, hook_path: HookPath, pod_server: PodServer
) -> None:
    """Twenty containers that claim 1024 processes with use on 16 devices cost less than one more copy of a region."""
    everything = dict.fromkeys(range(16), (1, 2, 3, 4, 10))
    forged = a_region(uuids=(b"GPU-a",) * 16, processes=(Process(everything, dict.fromkeys(range(16), 5)),) * SLOTS)
    await with_regions(monitor, hook_path, pod_server, **{f"u{index}": forged for index in range(20)})
    del forged

    tracemalloc.start()
    try:
        await monitor.rounds.round()
        monitor.observe()
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert most < 4 << 20
