"""
Only a scheduler may write grants on Pods: the API server rejects everybody else, with a message that says what to do.

The grants of bound Pods are counted, so a policy of the chart protects the annotations. The embedded API server has no
such policies. Every other test of the real cluster shows that the scheduler's Bindings pass the policy.
"""

import pytest

from controlplane.cluster import ClusterError
from hamicommon.config.device_config import load_device_config
from hamicommon.model import Object
from hamicommon.vendors import nvidia
from hamicommon.wire import keys
from harness.cluster import ClusterOf, Settings
from harness.clusters.real import RealCluster
from harness.clusters.release import HAMI
from harness.manifests import SLEEP, a_container, a_pod
from promises.trust.editor import HAMIS_SCHEDULER, Editor
from testbed.driver.hardware import TWO_NODES
from testbed.waiting import eventually

pytestmark = pytest.mark.real_only

KEY = "hami.io/vgpu-devices-allocated"
FORGED = f"{TWO_NODES[0].gpus[0].uuid},NVIDIA,20000,50:;"
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"


async def marked(cluster: RealCluster, name: str) -> dict[str, str]:
    """Wait until a Pod runs and the device plugin has marked it, which it does later; return its annotations."""
    await cluster.pod_in_phase(name, "Running")

    async def annotations() -> dict[str, str] | None:
        found: dict[str, str] = (await cluster.pod(name))["metadata"]["annotations"]
        return found if found[keys.BIND_PHASE] == keys.BIND_PHASE_SUCCESS else None

    return await eventually(annotations, f"Pod {name} is marked as allocated")


def a_forged_pod(name: str = "forged", key: str = KEY, **spec: str) -> Object:
    """Return a Pod that requests nothing and claims a grant of most of a device."""
    pod = a_pod(name, [{**a_container(command=SLEEP), "resources": {}}], spec=dict(spec))
    pod["metadata"]["annotations"] = {key: FORGED}
    return pod


def refusal(error: pytest.ExceptionInfo[ClusterError]) -> str:
    """Return the message of the policy."""
    _, found, message = str(error.value).partition("denied request: ")
    assert found, str(error.value)
    return message


@pytest.mark.parametrize("spec", [{}, {"nodeName": TWO_NODES[0].name}, {"schedulerName": "hami-scheduler"}], ids=str)
async def test_pod_with_a_forged_grant_is_not_created(editor: Editor, spec: dict[str, str]) -> None:
    """Bound or unbound. The message names the annotation and what to do."""
    with pytest.raises(ClusterError) as error:
        await editor.creates(a_forged_pod(**spec))

    assert refusal(error) == (
        f"only a scheduler says which devices a Pod was granted: leave out annotation {KEY} when creating, and leave "
        f"it as it is when changing; if {editor.user} is a scheduler that grants devices, name it in "
        "scheduler.reservedAnnotations.trustedUsers of the chart"
    )


async def test_annotation_of_every_vendor_that_is_on_is_kept(editor: Editor) -> None:
    """The grants of every vendor are protected, not only NVIDIA's."""
    [config] = [
        found["data"]["device-config.yaml"]
        for found in (await editor.cluster.api.list(f"/api/v1/namespaces/{HAMI}/configmaps"))[0]
        if "device-config.yaml" in found.get("data", {})
    ]
    vendors = load_device_config(config).enabled(has_ascend=False, has_iluvatar=False).vendors()

    for vendor in vendors:
        with pytest.raises(ClusterError, match=f"leave out annotation {vendor.allocated_key} when"):
            await editor.creates(a_forged_pod(key=vendor.allocated_key))


@pytest.mark.parametrize("key", nvidia.PLUGIN_POD_KEYS)
async def test_what_is_left_to_hand_out_is_not_changed(editor: Editor, key: str) -> None:
    """A device plugin that serves by it would hand out another share; nor does a Pod bring it along."""
    await editor.creates(a_pod("granted", gpu=1, gpumem=1000))
    before = await marked(editor.cluster, "granted")

    with pytest.raises(ClusterError, match=f"leave out annotation {key} when"):
        await editor.creates(a_forged_pod(key=key))
    for options in ((), ("--subresource=status",)):
        with pytest.raises(ClusterError, match=f"leave out annotation {key} when"):
            await editor.annotates("granted", key, FORGED, *options)

    assert before == (await editor.cluster.pod("granted"))["metadata"]["annotations"]


PROGRESS = {
    keys.BIND_PHASE: keys.BIND_PHASE_ALLOCATING,
    keys.BIND_TIME: "1700000000",
    keys.POD_NODE: TWO_NODES[0].name,
    keys.POD_TIME: "1700000000",
}
"""What schedulers and device plugins note on a Pod beside its grant."""


@pytest.mark.parametrize("allocation", ["identity", "lock"])
async def test_forged_progress_gives_no_device_and_takes_none(cluster_of: ClusterOf, allocation: str) -> None:
    """A Pod that claims to wait for its devices gets none, and a Pod with a grant still gets its own."""
    async with cluster_of(TWO_NODES, Settings(allocation=allocation)) as cluster:
        waiting = a_pod("waiting", [{**a_container(command=SLEEP), "image": "nowhere/image:none", "resources": {}}])
        waiting["metadata"]["annotations"] = PROGRESS
        waiting["spec"]["nodeName"] = TWO_NODES[0].name
        await cluster.create(waiting)
        here = {"nodeSelector": {"kubernetes.io/hostname": TWO_NODES[0].name}}
        await cluster.create(a_pod("granted", spec=here, gpu=1, gpumem=1000))

        granted = await cluster.pod_in_phase("granted", "Running")

        assert ",NVIDIA,1000,0:" in granted["metadata"]["annotations"][KEY]
        assert KEY not in (await cluster.pod("waiting"))["metadata"]["annotations"]


async def test_grant_of_a_running_pod_is_not_changed(editor: Editor) -> None:
    """It cannot be increased, removed, or added to a Pod without one, also not through the status."""
    await editor.creates(a_pod("granted", gpu=1, gpumem=1000))
    await editor.creates(a_pod("plain", [{**a_container(command=SLEEP), "resources": {}}]))
    granted = await marked(editor.cluster, "granted")
    await editor.cluster.pod_in_phase("plain", "Running")

    for name, text in (("granted", FORGED), ("granted", None), ("plain", FORGED)):
        for options in ((), ("--subresource=status",)):
            with pytest.raises(ClusterError, match="denied request: only a scheduler says"):
                await editor.annotates(name, KEY, text, *options)

    assert granted == (await editor.cluster.pod("granted"))["metadata"]["annotations"]


async def test_binding_with_a_forged_grant_is_refused(editor: Editor) -> None:
    """The annotations of a Binding become those of the Pod. A Binding without any is accepted."""
    pod = a_pod("waiting", [{**a_container(command=SLEEP), "resources": {}}], spec={"schedulerName": "theirs"})
    await editor.creates(pod)
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "waiting"},
        "target": {"apiVersion": "v1", "kind": "Node", "name": TWO_NODES[0].name},
    }
    forged = {**binding, "metadata": {"name": "waiting", "annotations": {KEY: FORGED}}}

    for resource in ("pods/waiting/binding", "bindings"):
        with pytest.raises(ClusterError, match="only a scheduler says"):
            await editor.posts(resource, forged)
    await editor.posts("pods/waiting/binding", binding)

    assert KEY not in (await editor.cluster.pod_in_phase("waiting", "Running"))["metadata"].get("annotations", {})


async def test_scheduler_of_hamis_may_write_grants(editor: Editor) -> None:
    """Its filter writes them on the pending Pod, so that a cluster can replace its services one by one."""
    hami = Editor(editor.cluster, HAMIS_SCHEDULER)
    pod = a_pod("waiting", [{**a_container(command=SLEEP), "resources": {}}], spec={"schedulerName": "theirs"})
    await editor.creates(pod)

    await hami.annotates("waiting", KEY, FORGED)

    assert FORGED == (await editor.cluster.pod("waiting"))["metadata"]["annotations"][KEY]
    with pytest.raises(ClusterError, match="only a scheduler says"):
        await editor.annotates("waiting", KEY, None)


async def test_everything_else_of_a_pod_is_theirs(editor: Editor) -> None:
    """Pods with and without a grant can be created, changed, evicted and deleted."""
    bare = a_pod("bare", [{**a_container(command=SLEEP), "resources": {}}])
    del bare["metadata"]["annotations"]
    await editor.creates(bare)
    await editor.creates(a_pod("granted", gpu=1, gpumem=1000))
    before = await marked(editor.cluster, "granted")
    await editor.cluster.pod_in_phase("bare", "Running")

    for name in ("bare", "granted"):
        for options in ((), ("--subresource=status",)):
            await editor.annotates(name, "team.io/name", "one", *options)
            await editor.annotates(name, "team.io/name", None, *options)
    await editor.does("label", "pod", "granted", "team=one")
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "bare"}}
    await editor.posts("pods/bare/eviction", eviction)

    assert before == (await editor.cluster.pod("granted"))["metadata"]["annotations"]
    await editor.does("delete", "pod", "granted", "--wait=false")


async def test_copy_of_a_running_pod_starts_without_its_grant(editor: Editor) -> None:
    """The webhook removes the grant from a Pod that requests a share, so that a backup can be restored."""
    await editor.creates(a_pod("first", gpu=1, gpumem=1000))
    first = await editor.cluster.pod_in_phase("first", "Running")
    spec = {key: value for key, value in first["spec"].items() if key != "nodeName"}
    metadata = {"name": "second", "annotations": {KEY: FORGED, "team.io/name": "one"}}
    await editor.creates({**first, "metadata": metadata, "spec": spec})

    second = await editor.cluster.pod_in_phase("second", "Running")

    assert "one" == second["metadata"]["annotations"]["team.io/name"]
    assert ",NVIDIA,1000,0:;" in second["metadata"]["annotations"][KEY]
    assert FORGED != second["metadata"]["annotations"][KEY]


async def test_api_server_finds_nothing_odd_in_the_policy(cluster: RealCluster) -> None:
    """The API server checks the expressions of the policy against the types of the objects."""

    async def checked() -> Object | None:
        status: Object = (await cluster.api.get(f"{POLICIES}/hami-reserved-annotations")).get("status", {})
        return status if "typeChecking" in status else None

    status = await eventually(checked, "the policy is checked", 30)
    assert status is not None
    assert [] == status["typeChecking"].get("expressionWarnings", [])
