"""
The watchdog on real processes and region files; only the driver's list is the test's.
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from unittest.mock import AsyncMock

import pytest
from structlog.testing import capture_logs

from hami_monitor.adapters import processes as processes_module
from hami_monitor.adapters.kube import EVENTS_MAX, Events, Node, Pods
from hami_monitor.adapters.nvml import Driver
from hami_monitor.adapters.processes import Processes
from hami_monitor.config import Config
from hami_monitor.decide.containers import ContainerKey
from hami_monitor.decide.watchdog.confirmation import QUIET_SECONDS
from hami_monitor.decide.watchdog.findings import TOLERANCE_BYTES, Kind
from hami_monitor.serve.driver_watch import DriverWatch
from hami_monitor.serve.evictions import Evictions
from hami_monitor.serve.monitor import Monitor
from hami_monitor.serve.watchdog import GroupReader
from hamicommon.pod.control_groups import ContainerGroup
from hamicommon.runtime.api.kube import Kube
from hamicommon.runtime.host.nvml import NvmlError
from hamicommon.runtime.host.records import UNPRELOADED, record
from hamicommon.runtime.host.worker import HangError
from testbed.driver.hardware import StandInCgroups
from testbed.waiting import eventually

from ..pod_server import PodServer, a_pod
from ..region_files import HookPath, Process, a_region
from .values import GPU_A, GPU_B, MIB, a_device


class Clock:
    """A clock that the test sets."""

    seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
async def sleeper() -> AsyncIterator[int]:
    """Yield the pid of a process without the library."""
    process = await asyncio.create_subprocess_exec("sleep", "300")
    yield process.pid
    process.kill()
    await process.wait()


@pytest.fixture
def clock() -> Clock:
    """Return a clock that stands still."""
    return Clock()


@pytest.fixture
async def monitor(hook_path: HookPath, pod_server: PodServer, tmp_path: Path, clock: Clock) -> AsyncIterator[Monitor]:
    """Yield a monitor of a Node whose processes are all of container `main` of the Pod `u1`, which was prepared."""
    (hook_path.path / "containers/u1_main").mkdir(parents=True)
    pod = a_pod(granted=f"{GPU_A},NVIDIA,3000,0:;")
    pod["status"]["containerStatuses"] = [{"name": "main", "containerID": "containerd://c1"}]
    pod_server.put(pod)
    async with await Kube.connect(str(pod_server.kubeconfig(tmp_path)), "test") as kube:
        pods = Pods(kube, "n1")
        events = Events(kube)
        running = [asyncio.create_task(one.run()) for one in (pods, events)]
        await pods.synced.wait()
        processes = Processes(lambda _pid: ContainerGroup("u1", "c1"), has_nodes_pids=True)
        monitor = Monitor(Config("n1", str(hook_path.path)), pods, Node(kube, "n1"), Driver(), processes, events, clock)
        yield monitor
        monitor.close()
        for task in running:
            task.cancel()


def shown(monitor: Monitor) -> set[Kind]:
    """Return the kinds of the findings that a scrape shows."""
    return {finding.kind for finding in monitor.status().watchdog.findings}


async def test_process_without_the_library_is_found_in_its_second_reading(
    monitor: Monitor, sleeper: int, clock: Clock
) -> None:
    """The first asks for another reading soon, and the finding ends with the process."""
    devices = [a_device({sleeper: 100})]

    assert await monitor.watchdog.look(devices)
    assert set() == shown(monitor)
    clock.seconds += 3
    assert not await monitor.watchdog.look(devices)

    assert {Kind.LIBRARY_NOT_LOADED} == shown(monitor)
    assert {Kind.LIBRARY_NOT_LOADED: 1} == monitor.status().watchdog.found
    await monitor.watchdog.look([a_device({})])
    assert set() == shown(monitor)


async def test_container_started_without_the_library_is_not_asked_for_it(
    monitor: Monitor, sleeper: int, clock: Clock, hook_path: HookPath
) -> None:
    """The device plugin's record says so, and a container that restarts with the library has none."""
    containers = hook_path.path / "containers"
    record(containers, UNPRELOADED, "u1_main", is_so=True)
    devices = [a_device({sleeper: 100})]
    for _ in range(2):
        await monitor.watchdog.look(devices)
        clock.seconds += 3
    assert set() == shown(monitor)

    record(containers, UNPRELOADED, "u1_main", is_so=False)
    for _ in range(2):
        await monitor.watchdog.look(devices)
        clock.seconds += 3
    assert {Kind.LIBRARY_NOT_LOADED} == shown(monitor)


async def test_annotation_hides_no_program_without_the_library(
    monitor: Monitor, sleeper: int, clock: Clock, pod_server: PodServer
) -> None:
    """A tenant can write it when its container runs already."""
    pod = a_pod(granted=f"{GPU_A},NVIDIA,3000,0:;")
    pod["status"]["containerStatuses"] = [{"name": "main", "containerID": "containerd://c1"}]
    pod["metadata"]["annotations"]["hami.io/enforcement"] = "driver"
    pod_server.put(pod)
    for _ in range(2):
        await monitor.watchdog.look([a_device({sleeper: 100})])
        clock.seconds += 3

    assert {Kind.LIBRARY_NOT_LOADED} == shown(monitor)


async def test_mps_server_in_a_container_is_not_asked_for_the_library(
    monitor: Monitor, clock: Clock, tmp_path: Path
) -> None:
    """Its clients are. They are listed as processes of their own."""
    program = tmp_path / "nvidia-cuda-mps-server"
    program.symlink_to("/bin/sleep")
    server = await asyncio.create_subprocess_exec(str(program), "300")
    try:
        for _ in range(2):
            await monitor.watchdog.look([a_device({server.pid: 100})])
            clock.seconds += 3
        assert set() == shown(monitor)
    finally:
        server.kill()
        await server.wait()


async def test_pod_is_evicted_for_a_finding_that_lasts(
    monitor: Monitor, sleeper: int, clock: Clock, pod_server: PodServer
) -> None:
    """If the settings name its kind."""
    watchdog = monitor.watchdog
    watchdog.evictions = Evictions(watchdog._pods, watchdog._events, frozenset({Kind.LIBRARY_NOT_LOADED}))
    evicting = asyncio.create_task(watchdog.evictions.run())
    for seconds in (3, 26, 1, 3):
        await watchdog.look([a_device({sleeper: 100})])
        assert not pod_server.evictions
        clock.seconds += seconds
    await watchdog.look([a_device({sleeper: 100})])
    await eventually(lambda: monitor.status().watchdog.evictions)
    evicting.cancel()

    assert [{"uid": "u1"}] == [one["deleteOptions"]["preconditions"] for one in pod_server.evictions]


async def test_use_by_the_driver_is_shown_as_long_as_its_processes_are_known(
    monitor: Monitor, sleeper: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside what its library counts; without the processes it is unknown, and not 0."""
    monitor.driver.devices = (a_device({sleeper: 100}),)

    def counted() -> list[int | None]:
        return [uses.of(ContainerKey("u1", "main")).used_bytes for uses in monitor.observe().driver_uses.values()]

    assert [] == counted()
    await monitor.watchdog.look(monitor.driver.devices)
    assert [100 * MIB] == counted()

    async def hang(*_arguments: object) -> None:
        raise HangError("no answer", is_first=True)

    monkeypatch.setattr(Processes, "find", hang)
    await monitor.watchdog.look(monitor.driver.devices)
    assert [] == counted()


async def test_container_without_a_directory_is_found_until_it_has_one(
    monitor: Monitor, clock: Clock, hook_path: HookPath
) -> None:
    """Without a process on its device. A Node where nothing can be listed is not full of such containers."""
    containers = hook_path.path / "containers"
    hidden = containers.with_name("hidden")
    (containers / "u1_main").rename(containers / "u2_other")

    async def look_twice() -> set[Kind]:
        for _ in range(2):
            await monitor.watchdog.look([a_device({})])
            clock.seconds += 3
        return shown(monitor)

    assert {Kind.WITHOUT_DEVICES} == await look_twice()
    containers.rename(hidden)
    containers.write_text("no directory")
    assert set() == await look_twice()
    containers.unlink()
    hidden.rename(containers)
    assert {Kind.WITHOUT_DEVICES} == await look_twice()
    (containers / "u1_main").mkdir()
    assert set() == await look_twice()


async def test_finding_is_an_event_of_its_pod_once_an_hour(
    monitor: Monitor, sleeper: int, clock: Clock, pod_server: PodServer
) -> None:
    """A container that restarts again and again does not fill the API server."""
    devices = [a_device({sleeper: 100})]
    for _ in range(3):
        for some in (devices, devices, [a_device({})]):
            await monitor.watchdog.look(some)
            clock.seconds += 3
    await eventually(lambda: pod_server.events)
    clock.seconds += QUIET_SECONDS
    for _ in range(2):
        await monitor.watchdog.look(devices)
        clock.seconds += 3
    await eventually(lambda: len(pod_server.events) > 1)

    found = [(one["involvedObject"]["uid"], one["type"], one["reason"], one["message"]) for one in pod_server.events]
    problem = f"uses device {GPU_A} without the library, so no limit of the library holds for it"
    sentence = f"Process {sleeper} of container main {problem}"
    assert [("u1", "Warning", "LibraryNotLoaded", sentence)] * 2 == found
    assert {Kind.LIBRARY_NOT_LOADED: 4} == monitor.status().watchdog.found


async def test_process_that_delays_the_reading_of_its_mappings_hides_nothing(
    monitor: Monitor, sleeper: int, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is said once, and the other comparisons go on; the library is looked for again when it has let go."""
    lets_go = Event()
    monkeypatch.setattr(processes_module, "_map_library", lambda pids: lets_go.wait(60) and dict.fromkeys(pids, True))
    monkeypatch.setattr(processes_module, "CALL_SECONDS", 0.1)
    device = a_device({sleeper: 100})
    with capture_logs() as logs:
        for _ in range(3):
            await monitor.watchdog.look([device, a_device({sleeper: 100}, GPU_B)])
            clock.seconds += 3
    lets_go.set()

    assert {Kind.DEVICE_NOT_GRANTED, Kind.NOT_IN_REGION} == shown(monitor)
    assert ["mappings"] == [line["what"] for line in logs if line["event"] == "The watchdog cannot read"]


class ReadOften(DriverWatch):
    """Readings of no devices, the third of which fails; `waits` are the seconds between them, which do not pass."""

    waits: list[float]

    async def _read(self) -> str | None:
        return "lost" if len(self.waits) == 2 else None

    async def _wait(self, seconds: float) -> None:
        self.waits.append(seconds)
        if len(self.waits) == 4:
            raise asyncio.CancelledError


async def test_next_reading_follows_soon_while_a_finding_is_not_settled(monitor: Monitor) -> None:
    """Five seconds and three: so a process is named within ten, and a driver that is lost is not asked more often."""
    answers = iter((True, False, True, True))

    async def look(_devices: object) -> bool:
        return next(answers)

    watch = ReadOften(Driver(), monitor.driver._node, 5.0, look)
    watch._node.seen = {"metadata": {"name": "n1"}}
    watch.waits = []
    with suppress(asyncio.CancelledError):
        await watch.run()

    assert watch.waits[2] >= 5
    assert [3.0, 5.0, 3.0] == [watch.waits[0], watch.waits[1], watch.waits[3]]


async def test_events_beyond_the_queue_are_lost(pod_server: PodServer, tmp_path: Path) -> None:
    """The watchdog does not wait for an API server that does not answer."""
    async with await Kube.connect(str(pod_server.kubeconfig(tmp_path)), "test") as kube:
        events = Events(kube)
        for number in range(EVENTS_MAX + 1):
            events.warn("ns", "p", "u1", "NotInRegion", str(number))
        writing = asyncio.create_task(events.run())
        await eventually(lambda: len(pod_server.events) == EVENTS_MAX, seconds=20)
        writing.cancel()

    assert [str(number) for number in range(EVENTS_MAX)] == [one["message"] for one in pod_server.events]


async def test_process_counted_in_a_region_made_since_the_last_round_is_no_finding(
    monitor: Monitor, sleeper: int, clock: Clock, hook_path: HookPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regions are read after the driver."""
    monkeypatch.setattr("hami_monitor.adapters.processes.LIBRARY", b"sleep")  # which it maps
    await monitor.rounds.round()
    region = a_region(uuids=(GPU_A.encode(),), processes=(Process({0: (1, 0, 0, 0, 1)}),))
    path = hook_path.add("u1_main", region)
    pids = [monitor.rounds.usages()[key].pids for key in monitor.rounds.usages()]
    assert [frozenset({100, 1000})] == pids
    at = region.index((100).to_bytes(4, "little") + (1000).to_bytes(4, "little"))
    with path.open("r+b") as file:
        file.seek(at)
        file.write(sleeper.to_bytes(4, "little"))
    devices = [a_device({sleeper: 100})]

    assert not await monitor.watchdog.look(devices)
    path.unlink()
    assert await monitor.watchdog.look(devices)
    clock.seconds += 3
    await monitor.watchdog.look(devices)

    assert {Kind.NOT_IN_REGION} == shown(monitor)


class CountingDriver:
    """A driver that limits memory, and so counts that of cgroups."""

    def __init__(self) -> None:
        self.used_bytes: dict[str, int] = {}
        """By the cgroup's folder."""
        self.is_freed_after_reading = False

    async def __call__(self, device_uuid: str, cgroups: Collection[str]) -> Mapping[str, int]:
        """Return what each of *cgroups* has of the device."""
        found = {cgroup: self.used_bytes[cgroup] for cgroup in cgroups if device_uuid == GPU_A}
        if self.is_freed_after_reading:
            self.used_bytes = dict.fromkeys(self.used_bytes, 0)
        return found


@dataclass
class Grouped:
    """A container with a control group, of a Pod that has a share of GPU_A."""

    folder: str
    uid: str
    driver: CountingDriver


@pytest.fixture
async def grouped(monitor: Monitor, pod_server: PodServer, hook_path: HookPath, tmp_path: Path) -> Grouped:
    """Return a container of which the driver lists no process; it counts what the test says."""
    uid, container_id, driver = "0f0f0f0f-0000-4000-8000-000000000001", "c" * 64, CountingDriver()
    (hook_path.path / f"containers/{uid}_main").mkdir()
    pod = a_pod(uid, granted=f"{GPU_A},NVIDIA,3000,0:;")
    pod["status"]["containerStatuses"] = [{"name": "main", "containerID": f"containerd://{container_id}"}]
    pod_server.put(pod)
    await eventually(lambda: uid in monitor.watchdog._pods.owners())
    folder = StandInCgroups(tmp_path / "groups").create(f"/kubepods/pod{uid}/{container_id}")
    monitor.watchdog._groups = GroupReader(str(tmp_path / "groups"), driver)
    return Grouped(str(folder), uid, driver)


async def test_process_outside_any_region_is_found_by_its_control_group(
    monitor: Monitor, clock: Clock, pod_server: PodServer, grouped: Grouped
) -> None:
    """Though the driver lists none of its processes. The finding ends with the memory."""
    grouped.driver.used_bytes[grouped.folder] = TOLERANCE_BYTES + MIB
    for _ in range(2):
        assert set() == shown(monitor)
        await monitor.watchdog.look([a_device({})])
        clock.seconds += 3
    await eventually(lambda: pod_server.events)

    assert {Kind.NOT_IN_REGION} == shown(monitor)
    [event] = pod_server.events
    assert (grouped.uid, "NotInRegion") == (event["involvedObject"]["uid"], event["reason"])
    assert f"has 513 MiB of device {GPU_A} by its control group" in event["message"]
    grouped.driver.used_bytes[grouped.folder] = 0
    await monitor.watchdog.look([a_device({})])
    assert set() == shown(monitor)


async def test_memory_freed_between_two_readings_is_no_finding(
    monitor: Monitor, clock: Clock, grouped: Grouped
) -> None:
    """The driver is read again after the regions, before a finding counts."""
    grouped.driver.is_freed_after_reading = True
    for _ in range(2):
        grouped.driver.used_bytes[grouped.folder] = TOLERANCE_BYTES + MIB
        await monitor.watchdog.look([a_device({})])
        assert 0 == grouped.driver.used_bytes[grouped.folder]
        clock.seconds += 3

    assert set() == shown(monitor)


async def test_driver_that_cannot_say_the_use_of_control_groups_hides_nothing_else(
    monitor: Monitor, sleeper: int, clock: Clock, monkeypatch: pytest.MonkeyPatch, grouped: Grouped
) -> None:
    """It is said once, and processes are compared as before."""
    monkeypatch.setattr(monitor.watchdog._groups, "read", AsyncMock(side_effect=NvmlError("Unknown Error")))
    with capture_logs() as logs:
        for _ in range(2):
            await monitor.watchdog.look([a_device({sleeper: 100})])
            clock.seconds += 3

    assert {Kind.LIBRARY_NOT_LOADED} == shown(monitor)
    assert ["control groups"] == [line["what"] for line in logs if line["event"] == "The watchdog cannot read"]


async def test_monitor_without_the_nodes_pids_judges_nothing(
    monitor: Monitor, sleeper: int, pod_server: PodServer, tmp_path: Path
) -> None:
    """The driver's pids would mean other processes there."""
    async with await Kube.connect(str(pod_server.kubeconfig(tmp_path)), "test") as kube:
        config = Config("n1", str(tmp_path))
        processes = Processes(has_nodes_pids=False)
        blind = Monitor(config, Pods(kube, "n1"), Node(kube, "n1"), Driver(), processes, Events(kube))

        assert not await blind.watchdog.look([a_device({sleeper: 100})])
        assert [False, True] == [one.status().watchdog.is_active for one in (blind, monitor)]
