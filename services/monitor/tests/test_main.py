"""What the probes say of the monitor's life."""

import asyncio

import pytest

from hami_monitor.adapters.kube import Pods
from hami_monitor.adapters.nvml import Nvml
from hami_monitor.config import Config
from hami_monitor.serve.monitor import STALLED_SECONDS, Monitor
from hamicommon.runtime.kube import Kube


class Clock:
    """A time that passes when told to."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self):
        return self.seconds


@pytest.fixture
def clock():
    """Return a clock that stands still."""
    return Clock()


@pytest.fixture
async def monitor(hook_path, pod_server, tmp_path, clock):
    """Yield a monitor that knows the Pods of its Node, which are none."""
    async with await Kube.connect(str(pod_server.kubeconfig(tmp_path)), "test") as kube:
        pods = Pods(kube, "n1")
        following = asyncio.create_task(pods.run())
        await pods.synced.wait()
        monitor = Monitor(Config("n1", str(hook_path.path)), pods, Nvml(), clock)
        yield monitor
        monitor.close()
        following.cancel()


async def test_monitor_is_ready_after_its_first_round(monitor) -> None:
    """Before it, a scrape would leave containers out."""
    assert "the first round has not ended yet" == monitor.ready()

    await monitor.round()

    assert monitor.ready() is None


async def test_monitor_without_rounds_is_not_alive(monitor, clock) -> None:
    """A disk that hangs is noticed by the kubelet, which starts the monitor anew."""
    clock.seconds += STALLED_SECONDS
    assert monitor.live() is None

    clock.seconds += 1

    assert "the last round ended 61 s ago" == monitor.live()


async def test_folder_that_cannot_be_listed_is_survived_and_named(monitor, hook_path) -> None:
    """The round is skipped, readiness says why, and the next one finds the folder mended."""
    hook_path.path.mkdir()
    hook_path.containers.symlink_to(hook_path.containers)

    await monitor.round()
    assert (0, True) == (monitor.status().rounds, "symbolic links" in monitor.ready())

    hook_path.containers.unlink()
    await monitor.round()
    assert (1, None) == (monitor.status().rounds, monitor.ready())


async def test_scrape_shows_a_region_that_is_newer_than_the_last_round(monitor, hook_path, a_region) -> None:
    """What a container uses is shown from its first launch on, not from the next round on."""
    await monitor.round()
    hook_path.add("u1_main", a_region(limits=(3000,)))

    usages = monitor.observe().usages

    assert [3000] == [device.memory_limit_bytes for usage in usages.values() for device in usage.devices]
