"""
The picture of a cluster: offered, granted, used, waiting.
"""

from datetime import timedelta

import pytest

from hamicommon.wire.pod_devices import encode_pod_devices
from kubectl_hami.answer.narrow import Filter, narrowed
from kubectl_hami.answer.state import state_of
from kubectl_hami.values.cluster import ClusterState, Device, Share

from .builders import ALLOCATED, NOW, REGISTER, a_cluster, a_device, a_node, a_pod, a_refusal, a_scrape, a_share

MIB = 2**20


def only_device(state: ClusterState) -> Device:
    """Return the one device of the one Node."""
    [node] = state.nodes
    [device] = node.devices
    return device


def test_granted_is_the_sum_of_the_shares_on_a_device() -> None:
    """Two Pods of 3000 MiB and 25 % hold 6000 MiB and 50 %."""
    pods = (a_pod("p", a_share()), a_pod("q", a_share()))

    device = only_device(state_of(a_cluster(nodes=(a_node("n1", a_device()),), pods=pods)))

    assert (2, 6000, 50) == (device.granted_replicas, device.granted_memory_mib, device.granted_core_percent)
    assert ["p", "q"] == [share.pod for share in device.shares]
    assert (16384, 100) == (device.memory_mib, device.core_percent)


def test_init_container_and_app_that_never_run_together_count_once() -> None:
    """The formula is Kubernetes': the larger of both."""
    pod = a_pod("p", a_share())
    pod["spec"]["initContainers"] = [{"name": "warm-up", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]
    pod["metadata"]["annotations"][ALLOCATED] = encode_pod_devices(((a_share(memory_mib=1000),), (a_share(),)))

    device = only_device(state_of(a_cluster(nodes=(a_node("n1", a_device()),), pods=(pod,))))

    assert 3000 == device.granted_memory_mib
    assert [("warm-up", "init", 1000), ("main", "app", 3000)] == [
        (share.container, share.kind, share.memory_mib) for share in device.shares
    ]


def test_pod_that_has_ended_holds_nothing() -> None:
    """Its annotation stays, its share does not."""
    pod = a_pod("p", a_share(), status={"phase": "Succeeded"})

    assert 0 == only_device(state_of(a_cluster(nodes=(a_node("n1", a_device()),), pods=(pod,)))).granted_memory_mib


def test_annotation_of_a_pod_without_a_node_grants_nothing() -> None:
    """Anybody can write it."""
    pod = a_pod("p", a_share())
    del pod["spec"]["nodeName"]

    assert 0 == only_device(state_of(a_cluster(nodes=(a_node("n1", a_device()),), pods=(pod,)))).granted_memory_mib


def test_use_is_what_the_monitor_exports() -> None:
    """Bytes become MiB, ratios percent."""
    scrape = a_scrape(
        {
            "hami_vgpu_memory_used_bytes": 1000 * MIB,
            "hami_vgpu_memory_limit_bytes": 3000 * MIB,
            "hami_share_busy_ratio": 0.2,
            "hami_share_throttled_seconds_total": 1.5,
            "hami_host_gpu_memory_used_bytes": 1200 * MIB,
            "hami_host_gpu_utilization_ratio": 21,
        }
    )

    device = only_device(
        state_of(a_cluster(nodes=(a_node("n1", a_device()),), pods=(a_pod("p", a_share()),), monitors={"n1": scrape}))
    )

    expected = Share("default", "p", "main", "app", 3000, 25, True, 1000, 3000, 20.0, 1.5)
    assert (expected,) == device.shares
    assert (1200, 21.0) == (device.used_memory_mib, device.used_core_percent)


def test_without_a_monitor_use_is_unknown_and_not_zero() -> None:
    """A zero would say that the device is idle."""
    [node] = state_of(a_cluster(nodes=(a_node("n1", a_device()),), pods=(a_pod("p", a_share()),))).nodes

    assert not node.is_measured
    assert node.devices[0].used_memory_mib is None
    assert node.devices[0].shares[0].used_memory_mib is None


def test_device_that_its_node_no_longer_offers_is_shown_with_its_shares() -> None:
    """A card that was taken out still has Pods that were promised it."""
    device = only_device(state_of(a_cluster(nodes=(a_node("n1"),), pods=(a_pod("p", a_share()),))))

    assert ("GPU-a", 0, False, 3000) == (device.id, device.replicas, device.is_healthy, device.granted_memory_mib)


def test_device_is_not_taken_for_gone_if_no_node_could_be_read() -> None:
    """Whoever may not list Nodes is not told that theirs has lost the device, or is not ready."""
    [node] = state_of(a_cluster(pods=(a_pod("p", a_share()),))).nodes
    [device] = node.devices

    assert (1, 3000, True) == (device.replicas, device.memory_mib, device.is_healthy)
    assert node.is_ready


def test_device_that_its_node_only_counts_is_not_taken_for_one_that_is_gone() -> None:
    """Some vendors register no inventory, so that what is granted is all that is known of a device."""
    pod = a_pod("p", a_share("neuron-0"))
    pod["metadata"]["annotations"] = {"hami.io/aws-neuron-devices-allocated": "neuron-0,AWSNeuron,0,0:;"}

    device = only_device(state_of(a_cluster(nodes=(a_node("n1"),), pods=(pod,))))

    assert ("neuron-0", 1, True) == (device.id, device.replicas, device.is_healthy)


def test_cordoned_and_unhealthy_devices_are_told() -> None:
    """Both take no Pod, for different reasons."""
    node = a_node("n1", a_device("GPU-a"), a_device("GPU-b", index=1, healthy=False))
    node["metadata"]["annotations"]["hami.io/device-cordon"] = "GPU-a"

    [found] = state_of(a_cluster(nodes=(node,))).nodes

    assert [("GPU-a", True, True), ("GPU-b", False, False)] == [
        (device.id, device.is_healthy, device.is_cordoned) for device in found.devices
    ]


def test_node_without_devices_is_left_out() -> None:
    """The picture is of devices."""
    plain = {"metadata": {"name": "cpu"}, "spec": {}, "status": {}}

    assert () == state_of(a_cluster(nodes=(plain,))).nodes


@pytest.mark.parametrize(
    "text", ["", "[", "[{}", "GPU-a,1", "x" * 2**21], ids=("empty", "open", "cut", "short", "huge")
)
def test_unreadable_inventory_is_one_sentence_and_no_device(text: str) -> None:
    """It costs its Node's devices, and nothing of the other Nodes."""
    bad, good = a_node("bad"), a_node("good", a_device())
    bad["metadata"]["annotations"][REGISTER] = text

    state = state_of(a_cluster(nodes=(bad, good)))

    assert ["good"] == [node.name for node in state.nodes]
    assert all(len(problem) < 500 for problem in state.problems)
    assert len(state.problems) <= 1


def test_unreadable_grant_is_one_sentence_and_counts_nothing() -> None:
    """As in the scheduler."""
    pod = a_pod("p", a_share())
    pod["metadata"]["annotations"][ALLOCATED] = "GPU-a,NVIDIA,many,25:;"

    state = state_of(a_cluster(nodes=(a_node("n1", a_device()),), pods=(pod,)))

    [problem] = state.problems
    assert problem.startswith(f"Pod default/p, {ALLOCATED}, container 0, device 0, ")
    assert 0 == only_device(state).granted_memory_mib


@pytest.mark.parametrize(
    "scrape",
    [b"hami_vgpu_memory_used_bytes{", b'hami_vgpu_memory_used_bytes{a="} 1\n', b"hami_vgpu_memory_used_bytes x\n"],
)
def test_malformed_scrape_is_one_sentence_and_its_use_unknown(scrape: bytes) -> None:
    """Anything may answer on a port."""
    state = state_of(a_cluster(nodes=(a_node("n1", a_device()),), monitors={"n1": scrape}))

    [problem] = state.problems
    assert problem.startswith("Node n1: the answer of its monitor ")
    assert only_device(state).used_memory_mib is None


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf"])
def test_value_that_is_no_number_is_unknown(value: str) -> None:
    """It must not end the command."""
    scrape = f'hami_host_gpu_memory_used_bytes{{device_uuid="GPU-a"}} {value}\n'.encode()

    assert (
        only_device(state_of(a_cluster(nodes=(a_node("n1", a_device()),), monitors={"n1": scrape}))).used_memory_mib
        is None
    )


def test_waiting_pod_has_its_age_and_the_causes_of_the_newest_refusal() -> None:
    """The request that the Event repeats is left out: the Pod's own says it."""
    old = {**a_refusal(message="old"), "lastTimestamp": (NOW - timedelta(hours=1)).isoformat()}

    [waiting] = state_of(a_cluster(pods=(a_pod(),), refusals=(a_refusal(), old))).waiting

    assert "0 of 1 nodes: 1 lacks 3000 MiB" == waiting.cause
    assert timedelta(minutes=5) == NOW - waiting.since
    assert "nvidia.com/gpu 1, nvidia.com/gpumem 3000" == waiting.asks


def test_refusal_that_another_namespace_or_the_future_tells_of_is_no_cause() -> None:
    """Whoever may write Events could forge both, the first about Pods of other tenants."""
    elsewhere = {**a_refusal(message="forged"), "metadata": {"namespace": "hostile", "name": "p.2"}}
    ahead = {**a_refusal(message="forged"), "lastTimestamp": (NOW + timedelta(days=900)).isoformat()}

    [waiting] = state_of(a_cluster(pods=(a_pod(),), refusals=(a_refusal(), elsewhere, ahead))).waiting

    assert "0 of 1 nodes: 1 lacks 3000 MiB" == waiting.cause


def test_gate_is_the_cause_whatever_an_event_tells() -> None:
    """No scheduler has asked about the Pod."""
    pod = a_pod(spec={"schedulingGates": [{"name": "queue.example.com/wait"}]})

    [waiting] = state_of(a_cluster(pods=(pod,), refusals=(a_refusal(),))).waiting

    assert "gated by queue.example.com/wait" == waiting.cause


def test_pod_of_another_scheduler_does_not_wait_for_us() -> None:
    """It asks for devices that another plugin hands out."""
    pod = a_pod(spec={"schedulerName": "default-scheduler"})

    assert () == state_of(a_cluster(pods=(pod,))).waiting


def test_namespace_narrows_shares_and_keeps_the_totals_of_their_devices() -> None:
    """What others hold is still granted."""
    other = a_pod("q", a_share(), metadata={"namespace": "other"})
    state = state_of(
        a_cluster(nodes=(a_node("n1", a_device(), a_device("GPU-b")),), pods=(a_pod("p", a_share()), other))
    )

    device = only_device(narrowed(state, Filter(namespace="other")))

    assert ("GPU-a", 6000, ["q"]) == (device.id, device.granted_memory_mib, [share.pod for share in device.shares])


def test_model_narrows_devices() -> None:
    """A part of the name in any case is enough."""
    state = state_of(a_cluster(nodes=(a_node("n1", a_device(), a_device("GPU-b", type="NVIDIA A100")),)))

    assert "GPU-b" == only_device(narrowed(state, Filter(model="a100"))).id
