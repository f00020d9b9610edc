"""The recorder misses no version, keeps the order of the writes, and tells a gap as a gap."""

import time
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import pytest_asyncio

from hamicommon.model import Object
from hamicommon.wire.node_devices import encode_node_devices
from harness.clusters import embedded
from harness.history import recorder as recorder_module
from harness.history.events import Change, Event, decode_events
from harness.history.findings import Rule
from harness.history.recorder import Recorder
from harness_tests.test_judge import GRANT, REGISTER, a_device, environment, share
from minicluster.apiserver.main import Server
from minicluster.client import Client
from testbed.waiting import eventually

PODS = "/api/v1/namespaces/d/pods"
NODE: Object = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n", "annotations": {REGISTER: encode_node_devices([a_device()])}},
}
RUNNING: Object = {
    "phase": "Running",
    "containerStatuses": [
        {"name": "c0", "containerID": "x://1", "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}
    ],
}
"""The status of a Pod whose container runs."""


def a_granted_pod(name: str, memory_mib: int = 1000) -> Object:
    """Return a Pod on the Node `n` with a share."""
    limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": str(memory_mib), "nvidia.com/gpucores": "10"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": {GRANT: share(memory_mib)}},
        "spec": {"nodeName": "n", "containers": [{"name": "c0", "image": "i", "resources": {"limits": limits}}]},
    }


@pytest_asyncio.fixture(loop_scope="session")
async def api() -> AsyncIterator[Client]:
    """Yield a client of an API server with the Node `n` and the namespace `d`."""
    server = Server()
    async with Client(await server.start("127.0.0.1", 0), "test") as client:
        await client.create("/api/v1/namespaces", {"metadata": {"name": "d"}})
        await client.create("/api/v1/nodes", NODE)
        yield client
    await server.stop()


@pytest.fixture
def looked() -> list[str]:
    """The Pods with a container that the recorder has looked at."""
    return []


@pytest.fixture
def configs() -> list[str]:
    """The device configs of the services, the newest last."""
    return [embedded.DEVICE_CONFIG.read_text()]


@pytest_asyncio.fixture(loop_scope="session")
async def recorder(api: Client, tmp_path: Path, looked: list[str], configs: list[str]) -> AsyncIterator[Recorder]:
    """Yield a recorder that has started, and to which every container has 2000 MiB."""

    async def config() -> str:
        return configs[-1]

    def look(pod: Object, _container: str) -> tuple[dict[str, str], None]:
        looked.append(pod["metadata"]["name"])
        return environment(2000), None

    found = Recorder(Client(api.server, "recorder"), config, look)
    found.turn_over(tmp_path / "history.jsonl")
    await found.start()
    yield found
    await found.stop()


def recorded(recorder: Recorder) -> list[Event]:
    """Return what is in the recorder's file."""
    assert recorder.file is not None
    with recorder.file.open("rb") as lines:
        return list(decode_events(lines))


def changes(recorder: Recorder, kind: str) -> list[str]:
    """Return what happened to the objects of *kind*, in order."""
    return [event.change.value for event in recorded(recorder) if event.kind == kind]


async def test_every_version_is_recorded_in_the_order_of_the_writes(api: Client, recorder: Recorder) -> None:
    """Kinds are watched separately, and written together."""
    await api.create(PODS, a_granted_pod("a"))
    await api.patch("/api/v1/nodes/n", {"metadata": {"labels": {"step": "1"}}})
    await api.patch(f"{PODS}/a", {"metadata": {"labels": {"step": "2"}}})
    await api.delete(f"{PODS}/a", 0)
    await recorder.settle()

    events = recorded(recorder)
    last = [(event.kind, event.change.value) for event in events if event.change not in {Change.CONFIG, Change.LISTED}]
    assert [("Pod", "ADDED"), ("Node", "MODIFIED"), ("Pod", "MODIFIED")] == last[:3]
    assert ("Pod", "DELETED") == last[-1]
    assert [event.version for event in events] == sorted(event.version for event in events)
    assert [] == recorder.findings


@pytest.mark.parametrize("how", ["close", "abort", "gone"])
async def test_broken_watch_misses_nothing(api: Client, recorder: Recorder, how: str) -> None:
    """It goes on from its last version."""
    await api.create(PODS, a_granted_pod("a"))
    await recorder.settle()
    await api.request("POST", "/minicluster/watches/drop", {"path": "", "how": how})
    await api.create(PODS, a_granted_pod("b"))
    await recorder.settle()

    assert ["ADDED", "ADDED"] == changes(recorder, "Pod")


async def test_lost_versions_are_told_as_a_gap(api: Client, recorder: Recorder) -> None:
    """The differences follow, and are judged."""
    await api.create(PODS, a_granted_pod("a", 30000))
    await recorder.settle()
    await api.request("POST", "/minicluster/faults", {"path": "watch=true", "times": 0, "status": 503})
    await api.request("POST", "/minicluster/watches/drop", {"path": "pods"})
    await api.delete(f"{PODS}/a", 0)
    await api.create(PODS, a_granted_pod("b", 30000))
    await api.create(PODS, a_granted_pod("c", 30000))
    await api.request("POST", "/minicluster/compact")
    await api.request("DELETE", "/minicluster/faults")
    await recorder.settle()

    assert ["ADDED", "GAP", "DELETED", "LISTED", "LISTED"] == changes(recorder, "Pod")
    assert 1 == recorder.judge.gaps
    assert [Rule.MEMORY] == [finding.rule for finding in recorder.findings]


async def test_container_that_is_known_by_a_gap_is_judged_after_the_gap(api: Client, recorder: Recorder) -> None:
    """Its Pod has the version of its last change, and the history has it from the list that told of it."""
    granted = a_granted_pod("a", 2000)
    spec = {name: value for name, value in granted["spec"].items() if name != "nodeName"}
    await api.create(PODS, {**granted, "metadata": {"name": "a"}, "spec": spec})
    await recorder.settle()
    await api.request("POST", "/minicluster/faults", {"path": "watch=true", "times": 0, "status": 503})
    await api.request("POST", "/minicluster/watches/drop", {"path": "pods"})
    target = {"apiVersion": "v1", "kind": "Node", "name": "n"}
    await api.create(f"{PODS}/a/binding", {"metadata": {**granted["metadata"]}, "target": target})
    await api.patch(f"{PODS}/a/status", {"status": RUNNING})
    await api.create(PODS, a_granted_pod("later"))
    await api.request("POST", "/minicluster/compact")
    await api.request("DELETE", "/minicluster/faults")
    await eventually(lambda: "later" in {name for _, name in recorder._streams["Pod"].objects}, "the gap is bridged")
    await recorder.look_again()

    assert "GAP" in changes(recorder, "Pod")
    assert [] == recorder.findings


async def test_running_container_is_looked_at_once_and_again_at_rest(api: Client, recorder: Recorder) -> None:
    """Its environment is judged."""
    made = await api.create(PODS, a_granted_pod("a"))
    await api.replace(f"{PODS}/a/status", {**made, "status": RUNNING})
    await api.patch(f"{PODS}/a", {"metadata": {"labels": {"step": "1"}}})
    await recorder.settle()
    assert 1 == changes(recorder, "Container").count("SEEN")
    await recorder.look_again()

    assert [Rule.ENVIRONMENT] * 2 == [finding.rule for finding in recorder.findings]


async def test_container_is_judged_by_the_grant_at_the_time_of_the_look(
    api: Client, recorder: Recorder, looked: list[str]
) -> None:
    """A Pod that is granted and starts after the last judged version is not judged by what it was then."""
    waiting = a_granted_pod("a", 2000)
    waiting["metadata"]["annotations"], waiting["spec"]["nodeName"] = {}, None
    await api.create(PODS, waiting)
    await recorder.settle()
    await api.patch(f"{PODS}/a", {"metadata": {"annotations": {GRANT: share(2000)}}})
    await api.create(f"{PODS}/a/binding", {"metadata": {"name": "a"}, "target": {"kind": "Node", "name": "n"}})
    made = await api.get(f"{PODS}/a")
    await api.replace(f"{PODS}/a/status", {**made, "status": RUNNING})
    await eventually(lambda: looked)

    await recorder.look_again()

    assert ["a", "a"] == looked
    assert [] == recorder.findings


async def test_what_is_judged_late_is_judged_by_what_was_known_at_its_time(
    api: Client, recorder: Recorder, looked: list[str], configs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A device may be given away 8 s after it has failed, even if the config has changed before that is judged."""
    now = time.time()
    monkeypatch.setattr(recorder_module, "time", SimpleNamespace(time=lambda: now))
    failed = encode_node_devices([a_device(healthy=False)])
    await api.patch("/api/v1/nodes/n", {"metadata": {"annotations": {REGISTER: failed}}})
    await recorder.settle()
    now += 8
    made = await api.create(PODS, a_granted_pod("a", 2000))
    await api.replace(f"{PODS}/a/status", {**made, "status": RUNNING})
    await eventually(lambda: looked)

    now += 20
    configs.append(configs[-1] + "# changed")
    await recorder.settle()

    assert [] == recorder.findings


async def test_new_file_begins_with_the_present_state(api: Client, recorder: Recorder, tmp_path: Path) -> None:
    """So each test's file can be replayed by itself, and a finding names its line there."""
    await api.create(PODS, a_granted_pod("a", 30000))
    await recorder.settle()
    assert [] == recorder.turn_over(tmp_path / "next.jsonl")
    await api.create(PODS, a_granted_pod("b", 30000))
    await recorder.settle()

    events = recorded(recorder)
    [finding] = recorder.findings
    assert [Change.CONFIG, Change.LISTED, Change.LISTED] == [event.change for event in events[:3]]
    assert "b" == events[finding.line - 1].object["metadata"]["name"]
    assert [finding] == recorder.turn_over(None)
