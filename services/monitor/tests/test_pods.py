"""
What the monitor reads from Pod objects.
"""

from collections.abc import Sequence

import pytest

from hami_monitor.decide.containers import ContainerKey
from hami_monitor.decide.grants import Grant, grants_of
from hami_monitor.decide.pods import MonitoredPod, monitored_pod, pod_uid
from hamicommon.model import MigAllocation, MigPlacement, Object, Share

NODE = "n1"
MIG_TEXT = (
    '[{"containerIndex":1,"deviceIndex":0,"gpuUUID":"GPU-a","profile":"1g.5gb","placement":{"start":0,"size":1},'
    '"migUUID":"MIG-x","gpuInstanceID":4,"computeInstanceID":0}]'
)
MIG = MigAllocation(1, 0, "GPU-a", "1g.5gb", MigPlacement(0, 1), "MIG-x", 4, 0)
GPU_A = Share("GPU-a", "NVIDIA", 3000, 25)


def a_container(name: str, *, gpus: int = 1, **more: str) -> Object:
    """Return a container that requests *gpus* devices."""
    return {"name": name, "resources": {"limits": {"nvidia.com/gpu": str(gpus)} if gpus else {"cpu": "1"}}, **more}


def a_pod(
    *,
    containers: Sequence[str | Object] = ("main",),
    init: Sequence[str | Object] = (),
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    phase: str = "Running",
    init_statuses: Sequence[Object] = (),
) -> Object:
    """Return a Pod of NODE; a name stands for a container that requests one device."""
    return {
        "metadata": {
            "uid": "u1",
            "namespace": "ns",
            "name": "p1",
            "labels": labels,
            "annotations": {"hami.io/vgpu-node": NODE} if annotations is None else annotations,
        },
        "spec": {
            "nodeName": NODE,
            "initContainers": [item if isinstance(item, dict) else a_container(item) for item in init],
            "containers": [item if isinstance(item, dict) else a_container(item) for item in containers],
        },
        "status": {"phase": phase, "initContainerStatuses": list(init_statuses)},
    }


def granted(pod: Object) -> MonitoredPod:
    """Return what is monitored of *pod*, which was granted devices on NODE."""
    found = monitored_pod(pod, NODE)
    assert found is not None
    return found


def with_allocation(text: str) -> dict[str, str]:
    """Return the annotations of a Pod that was granted *text* on NODE."""
    return {"hami.io/vgpu-node": NODE, "hami.io/vgpu-devices-allocated": text}


@pytest.mark.parametrize(
    ("labels", "annotations", "is_shown"),
    [
        pytest.param({"hami.io/vgpu-node": NODE}, {}, True, id="label"),
        pytest.param(None, {"hami.io/vgpu-node": NODE}, True, id="annotation"),
        pytest.param({"hami.io/vgpu-node": "n2"}, {"hami.io/vgpu-node": "n2"}, False, id="granted-elsewhere"),
        pytest.param({}, {}, False, id="not-ours"),
    ],
)
def test_pod_is_shown_when_its_devices_were_granted_here(
    labels: dict[str, str] | None, annotations: dict[str, str], is_shown: bool
) -> None:
    """By the label that HAMi sets since 2.5, or the annotation of all versions."""
    assert is_shown == (monitored_pod(a_pod(labels=labels, annotations=annotations), NODE) is not None)


def test_bare_object_is_no_pod_of_ours() -> None:
    """An object without metadata has no UID and is not shown."""
    assert ("", None) == (pod_uid({}), monitored_pod({}, NODE))


@pytest.mark.parametrize(
    ("init", "state", "expected"),
    [
        pytest.param("setup", {"running": {}}, {"setup", "main"}, id="init-running"),
        pytest.param("setup", {"waiting": {}}, {"setup", "main"}, id="init-waiting"),
        pytest.param("setup", {"terminated": {"exitCode": 0}}, {"main"}, id="init-done"),
        pytest.param("setup", {"terminated": {"exitCode": 1}}, {"setup", "main"}, id="init-failed-and-tried-again"),
        pytest.param(
            a_container("proxy", restartPolicy="Always"), {"running": {}}, {"proxy", "main"}, id="sidecar-running"
        ),
        pytest.param(
            a_container("proxy", restartPolicy="Always"),
            {"terminated": {"exitCode": 0}},
            {"proxy", "main"},
            id="sidecar-restarting",
        ),
    ],
)
def test_init_container_is_shown_while_it_may_run(init: str | Object, state: Object, expected: set[str]) -> None:
    """A finished one would count its share twice; a sidecar counts like the others."""
    name = init if isinstance(init, str) else init["name"]

    pod = granted(a_pod(init=[init], init_statuses=[{"name": name, "state": state}]))

    assert expected == set(pod.shown)


def test_share_belongs_to_its_container_in_pod_order() -> None:
    """Init containers come first, and a container without a request has an empty place."""
    pod = granted(
        a_pod(
            init=["setup"],
            containers=[a_container("web", gpus=0), "main"],
            annotations=with_allocation(";;GPU-a,NVIDIA,3000,25:;"),
        )
    )

    assert {"main": (GPU_A,)} == dict(pod.shares)


def test_share_of_a_value_that_lost_its_empty_places_finds_its_container() -> None:
    """HAMi schedulers may leave out empty places; the container with a request gets the share."""
    pod = granted(
        a_pod(containers=[a_container("web", gpus=0), "main"], annotations=with_allocation("GPU-a,NVIDIA,3000,25:;"))
    )

    assert {"main": (GPU_A,)} == dict(pod.shares)


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_ended_pod_has_no_shares(phase: str) -> None:
    """Its grant is free again."""
    pod = granted(a_pod(phase=phase, annotations=with_allocation("GPU-a,NVIDIA,3000,25:;")))

    assert {} == pod.shares


def test_mig_instance_is_named_with_its_container() -> None:
    """The index counts init containers first."""
    pod = granted(
        a_pod(init=["setup"], annotations={"hami.io/vgpu-node": NODE, "hami.io/vgpu-mig-allocations": MIG_TEXT})
    )

    assert (("main", MIG),) == pod.mig_allocations


@pytest.mark.parametrize(
    ("key", "text"),
    [
        pytest.param("hami.io/vgpu-devices-allocated", "GPU-a,NVIDIA,lots,25:;", id="shares"),
        pytest.param("hami.io/vgpu-mig-allocations", "{", id="mig-not-json"),
        pytest.param("hami.io/vgpu-mig-allocations", MIG_TEXT, id="mig-of-a-container-past-the-last"),
    ],
)
def test_unreadable_annotation_is_a_problem_of_its_pod_only(key: str, text: str) -> None:
    """The Pod is still shown, and one sentence names the annotation."""
    pod = granted(a_pod(annotations={"hami.io/vgpu-node": NODE, key: text}))

    assert ({}, (), [True]) == (pod.shares, pod.mig_allocations, [key in problem for problem in pod.problems])


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param("0", {"main": 0}, id="highest"),
        pytest.param("7", {"main": 7}, id="lower"),
        pytest.param("-3", {"main": -3}, id="negative"),
        pytest.param("", {}, id="empty"),
        pytest.param("high", {}, id="no-number"),
        pytest.param("99999999999", {}, id="too-large"),
    ],
)
def test_priority_is_the_variable_of_the_pod(value: str, expected: dict[str, int]) -> None:
    """The webhook sets it; one that is no number counts as none."""
    container = a_container("main") | {"env": [{"name": "CUDA_TASK_PRIORITY", "value": value}]}

    pod = granted(a_pod(containers=[container, "other"]))

    assert expected == dict(pod.priorities)


def test_mig_instance_is_no_grant() -> None:
    """A container with MIG instances has no library, so it has no part in the feedback."""
    annotations = with_allocation("GPU-a,NVIDIA,3000,25:;GPU-b,NVIDIA,3000,25:;")
    pod = granted(
        a_pod(containers=["web", "main"], annotations=annotations | {"hami.io/vgpu-mig-allocations": MIG_TEXT})
    )

    assert {ContainerKey("u1", "web"): Grant((GPU_A,))} == grants_of([pod])
