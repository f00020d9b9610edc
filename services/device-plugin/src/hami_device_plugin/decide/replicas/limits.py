"""
Say whether the kubelet and the API server take what a config makes of the devices.

Owns the limits of the receivers. A list that is too large would be rejected again and again, and nothing be offered.
Neighbours: `ids` lists the replicas, `hamicommon.wire.node_devices` writes the inventory.
"""

from collections.abc import Iterator, Sequence

from hami_device_plugin.decide.inventory import SharingPolicy
from hami_device_plugin.decide.replicas.ids import SEPARATORS
from hamicommon.model import Device
from hamicommon.wire.node_devices import encode_node_devices

LIST_BYTES = 4 * 1024 * 1024
"""
Largest list of replicas that the kubelet reads.

Source: https://github.com/grpc/grpc-go/blob/v1.72.1/clientconn.go (defaultClientMaxReceiveMessageSize), which the
kubelet leaves as it is: https://github.com/kubernetes/kubernetes/blob/v1.34.1/pkg/kubelet/cm/devicemanager/plugin/v1beta1
"""
ANNOTATIONS_BYTES = 256 * 1024
"""
All annotations of an object together.

Source: TotalAnnotationSizeLimitB in
https://github.com/kubernetes/apimachinery/blob/v0.34.1/pkg/api/validation/objectmeta.go
"""
INVENTORY_BYTES = ANNOTATIONS_BYTES * 3 // 4
"""What the inventory may take of them: a Node has other annotations."""
UUID_CHARACTERS = 40
"""Of `GPU-` and a UUID."""
_FRAME_BYTES = 24
"""Around an ID: lengths, the health and the NUMA node."""


def most_replicas(device_count: int, spelling: str) -> int:
    """
    Return how many replicas each of *device_count* devices may have.

    >>> most_replicas(1, "hami"), most_replicas(8, "hami"), most_replicas(8, "nvidia")
    (59918, 7598, 7489)
    """
    most = 0
    for digits in range(1, 8):
        size = UUID_CHARACTERS + len(SEPARATORS[spelling]) + digits + _FRAME_BYTES
        most = max(most, min(LIST_BYTES // size // device_count, 10**digits))
    return most


def problems(devices: Sequence[Device], policy: SharingPolicy) -> Iterator[str]:
    """Yield a sentence for each list that *policy* makes too large of *devices*."""
    if devices and policy.split_count > most_replicas(len(devices), policy.spelling):
        yield (
            f"nvidia.deviceSplitCount: {policy.split_count} replicas of each of {len(devices)} devices are a list of "
            f"more than {LIST_BYTES} bytes, which the kubelet does not read; "
            f"write at most {most_replicas(len(devices), policy.spelling)}"
        )
    size = len(encode_node_devices(devices).encode()) if devices else 0
    if size > INVENTORY_BYTES:
        yield (
            f"nvidia.migProfileAllowlist: the inventory of {len(devices)} devices has {size} bytes, and may take "
            f"{INVENTORY_BYTES} of a Node's annotations; name fewer profiles or devices"
        )
