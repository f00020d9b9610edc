"""What the judge of a history finds: each kind of broken history is found at its first version, a right one passes."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from hamicommon.model import Device, Object
from hamicommon.wire import keys
from hamicommon.wire.limits_file import DeviceLimits, LimitsFile, encode_limits_file
from hamicommon.wire.node_devices import encode_node_devices
from harness.clusters import embedded
from harness.history import __main__ as command
from harness.history.events import (
    CONTAINER,
    DEVICE_CONFIG,
    NODE,
    POD,
    QUOTA,
    Change,
    Event,
    decode_event,
    decode_events,
    encode_event,
)
from harness.history.findings import Finding, Rule
from harness.history.judge import LOCK_AGE_SECONDS, LOCK_SECONDS, LOST_SECONDS, Judge
from harness.history.window import LAG_SECONDS

GRANT, TO_ALLOCATE = "hami.io/vgpu-devices-allocated", "hami.io/vgpu-devices-to-allocate"
REGISTER = "hami.io/node-nvidia-register"
CONFIG = embedded.DEVICE_CONFIG.read_text()
MIB = 2**20


@dataclass
class History:
    """A history that is being written, with a Node `n` of one device `GPU-a`: 10 replicas, 40000 MiB, 100 %."""

    events: list[Event] = field(default_factory=list)
    now: float = 1000.0

    def __post_init__(self) -> None:
        self.add(Change.CONFIG, DEVICE_CONFIG, {"text": CONFIG})
        self.node()

    def add(self, change: Change, kind: str, found: Mapping[str, Any]) -> int:
        """Write an event a tenth of a second after the last one, and return its version."""
        self.now += 0.1
        self.events.append(Event(change, kind, len(self.events) + 1, self.now, found))
        return len(self.events)

    def node(self, *devices: Device, name: str = "n", annotations: Mapping[str, str] | None = None) -> int:
        """Write a version of a Node."""
        inventory = encode_node_devices(devices or [a_device()])
        metadata = {"name": name, "annotations": {REGISTER: inventory, **(annotations or {})}}
        status = {
            "conditions": [{"type": "Ready", "status": "True"}],
            "allocatable": {"nvidia.com/gpu": "10", "pods": "110", "cpu": "2"},
        }
        return self.add(Change.MODIFIED, NODE, {"metadata": metadata, "spec": {}, "status": status})

    def pod(self, pod: Object, change: Change = Change.MODIFIED) -> int:
        """Write a version of a Pod."""
        return self.add(change, POD, pod)

    def seen(self, pod: Object, environment: Mapping[str, str], limits: str | None = None) -> int:
        """Write what was seen of a Pod's container."""
        found = {"uid": pod["metadata"]["uid"], "container": "c0", "environment": environment, "limits": limits}
        return self.add(Change.SEEN, CONTAINER, found)

    def wait(self, seconds: float) -> int:
        """Let time pass until the next version, of another Node."""
        self.now += seconds
        return self.node(name="other")

    def judged(self) -> list[Finding]:
        """Return what the judge finds."""
        judge = Judge()
        return [finding for event in self.events for finding in judge.take(event)]

    def rest(self) -> list[str]:
        """Return what is owed in the end."""
        judge = Judge()
        for event in self.events:
            judge.take(event)
        return judge.debts()


def a_device(uuid: str = "GPU-a", **changes: Any) -> Device:
    """Return a device."""
    return replace(Device(uuid, 10, 40000, 100, "NVIDIA A100", mode="hami-core"), **changes)


def a_pod(
    name: str,
    grant: str | None = None,
    *limits: Mapping[str, int],
    node: str = "n",
    inits: int = 0,
    **status: Any,
) -> Object:
    """
    Return a Pod of which each container has *limits*; the first *inits* are init containers.

    With a *grant* it is bound to *node*; without one it waits. Without *limits* its one container asks what the grant
    `uuid,NVIDIA,mib,percent:;` gives.
    """
    if not limits:
        mib, percent = (int(number) for number in (grant or "GPU-a,NVIDIA,1000,10:;").strip(":;").split(",")[2:4])
        limits = ({"gpu": 1, "gpumem": mib, "gpucores": percent},)
    containers = [
        {"name": f"c{index}", "resources": {"limits": {f"nvidia.com/{key}": str(each[key]) for key in each}}}
        for index, each in enumerate(limits)
    ]
    return {
        "metadata": {
            "name": name,
            "namespace": "d",
            "uid": f"uid-{name}",
            "annotations": {} if grant is None else {GRANT: grant},
        },
        "spec": {
            "schedulerName": "hami-scheduler",
            "initContainers": containers[:inits],
            "containers": containers[inits:],
            **({} if grant is None else {"nodeName": node}),
        },
        "status": {"phase": "Pending", **status},
    }


def share(memory_mib: int = 1000, core_percent: int = 10, uuid: str = "GPU-a") -> str:
    """Return the grant of one container with one share."""
    return f"{uuid},NVIDIA,{memory_mib},{core_percent}:;"


def annotated(pod: Object, **annotations: str) -> Object:
    """Return *pod* with other annotations."""
    return {**pod, "metadata": {**pod["metadata"], "annotations": {**pod["metadata"]["annotations"], **annotations}}}


def environment(memory_mib: int = 1000, core_percent: int = 10, uuid: str = "GPU-a") -> dict[str, str]:
    """Return what a container with that share sees."""
    return {
        "CUDA_DEVICE_MEMORY_LIMIT_0": f"{memory_mib}m",
        "CUDA_DEVICE_SM_LIMIT": str(core_percent),
        "HAMI_DEVICE_UUIDS": uuid,
    }


def limits_file(memory_mib: int = 1000, core_percent: int = 10, uuid: str = "GPU-a") -> str:
    """Return the limits file of a container with that share."""
    return encode_limits_file(LimitsFile({uuid: DeviceLimits(memory_mib * MIB, core_percent)})).decode()


def a_quota(memory: int) -> Object:
    """Return a ResourceQuota of the Pods' namespace."""
    return {
        "metadata": {"namespace": "d", "name": "q"},
        "spec": {"hard": {"limits.nvidia.com/gpumem": str(memory)}},
    }


def only(findings: list[Finding], rule: Rule, version: int) -> str:
    """Return the text of the only finding, which must be of *rule* at *version*, the shortest history's last."""
    assert [(rule, version, version)] == [(each.rule, each.version, each.line) for each in findings], findings
    return findings[0].text


def test_right_history_passes() -> None:
    """Pods fill the device to the last MiB, are seen, end, and make room for others under a lock."""
    history = History()
    history.add(Change.ADDED, QUOTA, a_quota(41000))
    for name, size in (("a", 30000), ("b", 10000)):
        history.pod(a_pod(name, None, {"gpu": 1, "gpumem": size, "gpucores": 50}), Change.ADDED)
        lock = {keys.NODE_LOCK: f"2026-01-01T00:00:00Z,d,{name}"}
        history.node(annotations=lock)
        bound = a_pod(name, share(size, 50))
        history.pod(annotated(bound, **{keys.BIND_PHASE: "allocating", TO_ALLOCATE: share(size, 50)}))
        history.pod(annotated(bound, **{keys.BIND_PHASE: "success", TO_ALLOCATE: ";"}))
        history.node()
        history.seen(bound, environment(size, 50), limits_file(size, 50))
    history.pod(a_pod("a", share(30000, 50), phase="Succeeded"))
    history.pod(a_pod("whole", share(30000, 50)))
    history.pod(a_pod("whole", share(30000, 50)), Change.DELETED)
    history.wait(LOST_SECONDS * 2)

    assert [] == history.judged()
    assert [] == history.rest()


def test_two_grants_of_the_same_memory_are_found() -> None:
    """The finding names the version of the second, and who holds what."""
    history = History()
    history.pod(a_pod("a", share(30000)))
    version = history.pod(a_pod("b", share(30000)))

    assert "60000 MiB of 40000 on GPU-a of Node n: d/a 30000, d/b 30000" == only(history.judged(), Rule.MEMORY, version)


def test_compute_beyond_the_device_is_found() -> None:
    """60 and 50 percent."""
    history = History()
    history.pod(a_pod("a", share(1000, 60)))
    version = history.pod(a_pod("b", share(1000, 50)))

    assert "110 % of 100 % compute on GPU-a" in only(history.judged(), Rule.CORES, version)


def test_more_shares_than_replicas_are_found() -> None:
    """Three Pods on a device that two may share."""
    history = History()
    history.node(a_device(count=2))
    history.wait(LAG_SECONDS * 2)
    for name in "ab":
        history.pod(a_pod(name, share()))
    version = history.pod(a_pod("c", share()))

    assert "3 shares of 2 on GPU-a" in only(history.judged(), Rule.COUNT, version)


@pytest.mark.parametrize("order", ["ab", "ba"])
def test_exclusive_share_with_a_neighbour_is_found(order: str) -> None:
    """Whichever comes first; a share of no compute passes the sum."""
    history = History()
    pods = {"a": a_pod("a", share(1000, 100)), "b": a_pod("b", share(1000, 0))}
    history.pod(pods[order[0]])
    version = history.pod(pods[order[1]])

    assert "d/a has all compute of GPU-a" in only(history.judged(), Rule.EXCLUSIVE, version)


def test_exclusive_share_beside_a_container_of_the_same_pod_is_found() -> None:
    """Both run at once."""
    history = History()
    limits = [{"gpu": 1, "gpumem": 1000, "gpucores": percent} for percent in (100, 0)]
    version = history.pod(a_pod("a", share(1000, 100) + share(1000, 0), *limits))

    assert "d/a has all compute" in only(history.judged(), Rule.EXCLUSIVE, version)


def test_init_container_and_app_may_have_the_device_one_after_the_other() -> None:
    """The Pod holds the larger of both, and only the app's part when the init container has succeeded."""
    history = History()
    limits = [{"gpu": 1, "gpumem": size, "gpucores": 100} for size in (40000, 10000)]
    grant = share(40000, 100) + share(10000, 100)
    history.pod(a_pod("a", grant, *limits, inits=1))
    done = [{"name": "c0", "state": {"terminated": {"exitCode": 0}}}]
    history.pod(a_pod("a", grant, *limits, inits=1, initContainerStatuses=done))

    assert [] == history.judged()


def test_share_of_a_pod_whose_init_containers_run_again_is_found() -> None:
    """Its neighbour was granted what the init container had left."""
    history = History()
    limits = [{"gpu": 1, "gpumem": size, "gpucores": 10} for size in (40000, 10000)]
    grant = share(40000) + share(10000)
    done = [{"name": "c0", "state": {"terminated": {"exitCode": 0}}}]
    history.pod(a_pod("a", grant, *limits, inits=1, initContainerStatuses=done))
    history.pod(a_pod("b", share(30000)))
    version = history.pod(a_pod("a", grant, *limits, inits=1))

    assert "70000 MiB of 40000" in only(history.judged(), Rule.MEMORY, version)


@pytest.mark.parametrize("change", [share(2000), None, "nonsense,"], ids=str)
def test_grant_that_changes_after_the_bind_is_found(change: str | None) -> None:
    """It grows, is removed, or becomes unreadable."""
    history = History()
    bound = a_pod("a", share())
    history.pod(bound)
    changed = {**bound, "metadata": {**bound["metadata"], "annotations": {GRANT: change} if change else {}}}
    version = history.pod(changed)

    found = [each for each in history.judged() if each.rule is Rule.CHANGED]
    assert f"its grant of NVIDIA was {share()!r} when it was bound, and is {change!r}" == only(
        found, Rule.CHANGED, version
    )


def test_grant_added_to_a_bound_pod_is_found() -> None:
    """A Pod that asks for nothing was bound without one."""
    history = History()
    plain: Mapping[str, int] = {}
    bound = a_pod("a", share(), plain)
    history.pod({**bound, "metadata": {**bound["metadata"], "annotations": {}}})
    version = history.pod(bound)

    assert "was None when it was bound" in only(history.judged(), Rule.CHANGED, version)


@pytest.mark.parametrize(
    ("grant", "limits", "text"),
    [
        (share(2000), {"gpu": 1, "gpumem": 1000, "gpucores": 10}, "requests 1000 MiB and was granted 2000 MiB"),
        (share(500), {"gpu": 1, "gpumem": 1000, "gpucores": 10}, "requests 1000 MiB and was granted 500 MiB"),
        (share(1000, 20), {"gpu": 1, "gpumem": 1000, "gpucores": 10}, "requests 10 % of compute and was granted 20 %"),
        (share(), {}, "requests 0 devices of NVIDIA and was granted 1"),
        (share(), {"gpu": 2, "gpumem": 1000, "gpucores": 10}, "requests 2 devices of NVIDIA and was granted 1"),
        (share(1000), {"gpu": 1, "gpumem-percentage": 50, "gpucores": 10}, "requests 20000 MiB and was granted 1000"),
        (share()[:-1] + share(), {"gpu": 2, "gpumem": 1000, "gpucores": 10}, "was granted a device twice"),
    ],
    ids=["more", "less", "compute", "unasked", "count", "percentage", "twice"],
)
def test_grant_unlike_its_request_is_found(grant: str, limits: dict[str, int], text: str) -> None:
    """At the version of the bind."""
    history = History()
    version = history.pod(a_pod("a", grant, limits))

    assert text in only(history.judged(), Rule.REQUEST, version)


def test_container_may_have_two_instances_of_a_device() -> None:
    """Of one in MIG mode, where each share is an instance."""
    history = History()
    history.node(a_device(mode="mig"))
    history.pod(a_pod("a", share()[:-1] + share(), {"gpu": 2, "gpumem": 1000, "gpucores": 10}))

    assert [] == history.judged()


def test_pod_that_is_bound_without_a_grant_is_found() -> None:
    """It waited for devices of ours. A Pod that was created on its Node is nobody's decision."""
    history = History()
    waiting = a_pod("a")
    history.pod(waiting, Change.ADDED)
    version = history.pod({**waiting, "spec": {**waiting["spec"], "nodeName": "n"}})
    static = a_pod("static")
    history.pod({**static, "spec": {**static["spec"], "nodeName": "n"}}, Change.ADDED)

    assert "was bound without a grant" in only(history.judged(), Rule.REQUEST, version)


@pytest.mark.parametrize(
    "annotations", [{"nvidia.com/nouse-gpuuuid": "GPU-a"}, {"nvidia.com/use-gputype": "T4"}], ids=str
)
def test_device_that_the_pod_excludes_is_found(annotations: dict[str, str]) -> None:
    """By UUID or model."""
    history = History()
    version = history.pod(annotated(a_pod("a", share()), **annotations))

    assert "which annotations of the Pod exclude" in only(history.judged(), Rule.REQUEST, version)


@pytest.mark.parametrize(
    ("device", "annotations"),
    [
        (a_device("GPU-b"), {}),
        (a_device(healthy=False), {}),
        (a_device(), {keys.NODE_CORDON: "GPU-a"}),
    ],
    ids=["missing", "unhealthy", "cordoned"],
)
def test_device_that_is_not_offered_is_found(device: Device, annotations: dict[str, str]) -> None:
    """Unless the Node has changed so shortly before that a scheduler could not know."""
    for seconds, count in ((LAG_SECONDS / 2, 0), (LAG_SECONDS * 2, 1)):
        history = History()
        history.node(device, annotations=annotations)
        history.wait(seconds)
        history.pod(a_pod("a", share()))

        assert count == len([each for each in history.judged() if each.rule is Rule.OFFER])


def test_device_that_shrinks_makes_no_grant_wrong() -> None:
    """But a later one, by what is left."""
    history = History()
    history.pod(a_pod("a", share(30000)))
    history.node(a_device(memory_mib=20000))
    history.wait(LAG_SECONDS * 2)
    assert [] == history.judged()
    version = history.pod(a_pod("b", share(1000)))

    assert "31000 MiB of 20000" in only(history.judged(), Rule.MEMORY, version)


def test_quota_that_is_passed_is_found() -> None:
    """By the Pod that passes it."""
    history = History()
    history.add(Change.ADDED, QUOTA, a_quota(1500))
    history.wait(LAG_SECONDS * 2)
    history.pod(a_pod("a", share(1000)))
    version = history.pod(a_pod("b", share(1000)))

    assert "namespace d holds 2000 MiB, limits.nvidia.com/gpumem is 1500" == only(history.judged(), Rule.QUOTA, version)


def test_quota_that_comes_later_or_is_gone_forbids_nothing() -> None:
    """What a namespace has, it keeps."""
    history = History()
    history.pod(a_pod("a", share(2000)))
    history.add(Change.ADDED, QUOTA, a_quota(1500))
    history.wait(LAG_SECONDS * 2)
    history.add(Change.DELETED, QUOTA, a_quota(1500))
    history.pod(a_pod("b", share(2000)))

    assert [] == history.judged()


@pytest.mark.parametrize(
    ("told", "text"),
    [
        (environment(2000), "CUDA_DEVICE_MEMORY_LIMIT_0': '2000m'"),
        (environment(1000, 20), "CUDA_DEVICE_SM_LIMIT': '20'"),
        (environment(uuid="GPU-b"), "its environment lists GPU-b"),
        ({"HAMI_DEVICE_UUIDS": "GPU-a"}, "its environment has {}"),
    ],
    ids=["memory", "compute", "device", "no limit"],
)
def test_environment_unlike_the_grant_is_found(told: dict[str, str], text: str) -> None:
    """Of a container that was seen running."""
    history = History()
    pod = a_pod("a", share())
    history.pod(pod)
    version = history.seen(pod, told)

    assert text in only(history.judged(), Rule.ENVIRONMENT, version)


def test_container_without_a_share_has_no_limits() -> None:
    """Variables of another container would be a leak."""
    history = History()
    pod = a_pod("a", "")
    pod["spec"]["containers"][0]["resources"] = {}
    history.pod(pod)
    history.seen(pod, {})
    version = history.seen(pod, environment())

    assert "was granted {}" in only(history.judged(), Rule.ENVIRONMENT, version)


@pytest.mark.parametrize("text", [limits_file(2000), limits_file(1000, 50), limits_file(uuid="GPU-b"), "nonsense"])
def test_limits_file_unlike_the_grant_is_found(text: str) -> None:
    """Other memory, compute, device, or no limits file at all."""
    history = History()
    pod = a_pod("a", share())
    history.pod(pod)
    version = history.seen(pod, environment(), text)

    assert "limits file" in only(history.judged(), Rule.LIMITS, version)


@pytest.mark.parametrize("end", ["gone", "ended", "elsewhere", "allocated"])
def test_lock_that_outlives_its_purpose_is_found(end: str) -> None:
    """At rest at once, and while a cluster works after some seconds."""
    history = History()
    history.pod(a_pod("a", share()))
    history.node(annotations={keys.NODE_LOCK: "2026-01-01T00:00:00Z,d,a"})
    assert [] == history.rest()
    match end:
        case "gone":
            history.pod(a_pod("a", share()), Change.DELETED)
        case "ended":
            history.pod(a_pod("a", share(), phase="Failed"))
        case "elsewhere":
            history.pod(a_pod("a", share(), node="other"))
        case "allocated":
            history.pod(annotated(a_pod("a", share()), **{keys.BIND_PHASE: "success"}))
    assert ["lock"] == [each.partition(":")[0] for each in history.rest()]
    history.wait(LOCK_SECONDS / 2)
    assert [] == [each for each in history.judged() if each.rule is Rule.LOCK]
    version = history.wait(LOCK_SECONDS)

    found = [each for each in history.judged() if each.rule is Rule.LOCK]
    assert "its lock 2026-01-01T00:00:00Z,d,a stays" in only(found, Rule.LOCK, version)


def test_lock_without_an_owner_is_found_when_it_is_old() -> None:
    """Nobody can say when it has served."""
    history = History()
    history.node(annotations={keys.NODE_LOCK: "2026-01-01T00:00:00Z"})
    history.wait(LOCK_AGE_SECONDS)
    history.wait(LOCK_AGE_SECONDS)

    assert [Rule.LOCK] == [each.rule for each in history.judged()]


def test_pod_that_waits_although_it_fits_is_found() -> None:
    """At rest at once, and while a cluster works after a while."""
    history = History()
    history.pod(a_pod("a", None, {"gpu": 1, "gpumem": 40000}), Change.ADDED)
    assert ["lost: Pod d/a: it waits although it fits"] == history.rest()
    history.wait(LOST_SECONDS / 2)
    assert [] == history.judged()
    version = history.wait(LOST_SECONDS)

    assert "it waits although it fits, since version 3" in only(history.judged(), Rule.LOST, version)


def waiting_pods() -> Iterator[Object]:
    """Yield Pods that may have a reason to wait."""
    yield a_pod("too-large", None, {"gpu": 1, "gpumem": 40001})
    yield a_pod("too-many", None, {"gpu": 2, "gpumem": 1})
    yield annotated(a_pod("other-model"), **{"nvidia.com/use-gputype": "T4"})
    yield annotated(a_pod("with-a-policy"), **{keys.GPU_SCHEDULER_POLICY: "numa"})
    group = ("schedulingGroup", {"podGroupName": "g"})
    for name, value in (("nodeSelector", {"a": "b"}), ("schedulingGates", [{"name": "g"}]), group):
        chosen = a_pod(name)
        yield {**chosen, "spec": {**chosen["spec"], name: value}}
    of_others = a_pod("of-others")
    yield {**of_others, "spec": {**of_others["spec"], "schedulerName": "theirs"}}
    with_cpu = a_pod("cpu")
    with_cpu["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "100"}
    yield with_cpu


@pytest.mark.parametrize("pod", list(waiting_pods()), ids=lambda pod: pod["metadata"]["name"])
def test_pod_that_may_have_a_reason_to_wait_is_not_called_lost(pod: Object) -> None:
    """The judge knows only some of what a scheduler must heed."""
    history = History()
    history.pod(pod, Change.ADDED)
    history.wait(LOST_SECONDS * 2)

    assert [] == history.rest()


def test_replicas_of_the_kubelet_count() -> None:
    """A Pod without a grant of ours holds them as well."""
    history = History()
    static = a_pod("static", None, {"gpu": 10})
    history.pod({**static, "spec": {**static["spec"], "nodeName": "n"}})
    history.pod(a_pod("a"), Change.ADDED)

    assert [] == history.rest()


def test_unreadable_grants_and_inventories_are_found() -> None:
    """Once, however long they stay."""
    history = History()
    node = {"metadata": {"name": "broken", "annotations": {REGISTER: "[nonsense"}}}
    first = history.add(Change.ADDED, NODE, node)
    history.add(Change.MODIFIED, NODE, node)
    pod = a_pod("a", "GPU-a,NVIDIA,much,0:;", {"gpu": 1})
    second = history.pod(pod)
    history.pod(pod)

    assert [(Rule.READABLE, first), (Rule.READABLE, second)] == [(each.rule, each.version) for each in history.judged()]


def test_gap_is_counted_and_what_follows_is_judged() -> None:
    """A grant that changed within it has changed all the same."""
    history = History()
    history.pod(a_pod("a", share()))
    history.add(Change.GAP, POD, {"after": 3})
    history.pod(a_pod("a", share(2000)), Change.LISTED)

    assert [Rule.CHANGED] == [each.rule for each in history.judged()]


def test_cost_of_an_event_does_not_grow_with_the_history() -> None:
    """What has ended leaves nothing behind."""
    judge, history = Judge(), History()
    for number in range(50):
        history.pod(a_pod(f"p{number}", share()))
        history.pod(a_pod(f"p{number}", share()), Change.DELETED)
    for event in history.events:
        assert [] == judge.take(event)

    assert ({}, {}) == (judge.pods, judge.held())


def test_event_is_read_as_it_was_written() -> None:
    """Every kind of event."""
    history = History()
    history.pod(a_pod("a", share()))
    history.seen(a_pod("a", share()), environment(), limits_file())

    assert history.events == [decode_event(encode_event(event)) for event in history.events]


@pytest.mark.parametrize("line", [b"{}\n", b"nonsense\n", b'{"change":"SUNK"}\n'])
def test_line_that_is_no_event_is_refused(line: bytes) -> None:
    """Its beginning is named."""
    with pytest.raises(ValueError, match="is no event of a history"):
        list(decode_events([line]))


def test_file_is_judged_by_a_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It prints the findings, and leaves out a last line that a crash cut off."""
    history = History()
    history.pod(a_pod("a", share(30000)))
    history.pod(a_pod("b", share(30000)))
    file = tmp_path / "history.jsonl"
    file.write_bytes(b"".join(map(encode_event, history.events)) + b'{"change":"MODI')
    monkeypatch.setattr("sys.argv", ["history", str(file)])

    assert 1 == command.main()
    assert capsys.readouterr().out.startswith("memory: version 4 (line 4): Pod d/b: 60000 MiB of 40000")
