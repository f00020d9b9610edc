"""
Probes and scrapes of the monitor.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hami_monitor.adapters.kube import Node, Pods
from hami_monitor.adapters.nvml import Driver
from hami_monitor.config import Config
from hami_monitor.serve.monitor import Monitor
from hami_monitor.serve.rounds import STALLED_SECONDS
from hamicommon.runtime.kube import Kube

from .pod_server import PodServer
from .region_files import HookPath, a_region


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
        monitor = Monitor(Config("n1", str(hook_path.path)), pods, Node(kube, "n1"), Driver(), clock)
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


async def test_scrape_shows_a_region_that_is_newer_than_the_last_round(monitor: Monitor, hook_path: HookPath) -> None:
    """A container's use is shown from its first launch, not from the next round."""
    await monitor.rounds.round()
    hook_path.add("u1_main", a_region(limits=(3000,)))

    usages = monitor.observe().usages

    assert [3000] == [device.memory_limit_bytes for usage in usages.values() for device in usage.devices]
