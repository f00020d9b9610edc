"""
A failed device takes its places with it, and no others, whatever IDs its Pods hold.
"""

from device_plugin_builders import RESOURCE, VENDOR, a_pod, entry, share
from hypothesis import given
from hypothesis import strategies as st

from hami_device_plugin.decide.health.lost_replicas import owned_devices, with_lost
from hami_device_plugin.decide.replicas.ids import Replica
from hamicommon.wire.pod_devices import encode_pod_devices

DEVICES = ("GPU-a", "GPU-b", "GPU-c")
PLACES = 4
IDS = [f"{device}-{number}" for device in DEVICES for number in range(PLACES)]


@given(
    lost=st.sets(st.sampled_from(DEVICES), min_size=1, max_size=2),
    held=st.permutations(IDS),
    on=st.lists(st.sampled_from(DEVICES), max_size=len(IDS)),
)
def test_kubelet_has_as_many_free_replicas_as_healthy_devices_have_places(
    lost: set[str], held: list[str], on: list[str]
) -> None:
    """Whatever replicas the kubelet chose for whom: a Pod that a healthy device has a place for is not rejected."""
    fits = [device for number, device in enumerate(on) if on[:number].count(device) < PLACES]
    owned = dict(zip(held, fits, strict=False))
    listed = [Replica(name, name.rpartition("-")[0] not in lost) for name in IDS]
    found = with_lost(listed, lost, owned)

    free = [replica for replica in found if replica.is_healthy and replica.id not in owned]
    places = PLACES * (len(DEVICES) - len(lost)) - sum(device not in lost for device in owned.values())
    assert IDS == [replica.id for replica in found]
    assert places == len(free)
    assert PLACES * len(lost) == sum(not replica.is_healthy for replica in found)
    assert not any(replica.is_healthy for replica in found if owned.get(replica.id) in lost)


def test_replica_is_owned_on_the_device_of_the_grant() -> None:
    """By container; of an init container's replicas that an app container reuses, the app container says whose."""
    granted = ((share("GPU-b"), share("GPU-c")), (share("GPU-a"),))
    init = {"name": "init", "resources": {"limits": {RESOURCE: "2"}}}
    pod = a_pod({VENDOR.allocated_key: encode_pod_devices(granted)}, initContainers=[init])
    entries = (entry(pod.uid, "main", "GPU-a-0"), entry(pod.uid, "init", "GPU-a-0", "GPU-a-1"))

    expected = {"GPU-a-0": "GPU-a", "GPU-a-1": "GPU-c"}
    assert expected == owned_devices(entries, {pod.uid: pod}, pod.node, VENDOR)


def test_replica_without_a_grant_is_lost_with_the_device_in_its_id() -> None:
    """Its Pod is unknown, or was never granted anything."""
    pod = a_pod({})
    entries = (entry("gone", "main", "GPU-a-0"), entry(pod.uid, "main", "GPU-b-1"))
    owned = owned_devices(entries, {pod.uid: pod}, pod.node, VENDOR)
    listed = [Replica("GPU-a-0", False), Replica("GPU-a-1", False), Replica("GPU-b-0", True), Replica("GPU-b-1", True)]

    assert {"GPU-a-0": None, "GPU-b-1": None} == owned
    assert tuple(listed) == with_lost(listed, {"GPU-a"}, owned)
