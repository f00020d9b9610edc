"""
The names that a ResourceSlice of this driver has, and that claims, DeviceClasses and CEL expressions use.
"""

from collections.abc import Mapping
from typing import Any, Final

from hamicommon.wire import keys

API_VERSION: Final = "resource.k8s.io/v1"
DRIVER: Final = "hami-core-gpu.project-hami.io"
"""The driver, and HAMi's DeviceClass of its devices."""
DEVICE_TYPE: Final = "hami-gpu"
"""The attribute `type` of every device, by which HAMi's DeviceClass selects."""
PARTITION_TYPE: Final = "mig"
"""The attribute `type` of every MIG instance, as in NVIDIA's driver. HAMi's DeviceClass selects none of them."""
PARTITION_CLASS: Final = "hami-mig.project-hami.io"
"""Our DeviceClass of MIG instances."""
TOKEN_TYPE: Final = "hami-token"
"""The attribute `type` of every token."""
TOKEN_CLASS: Final = "hami-token.project-hami.io"
"""Our DeviceClass of tokens, which maps the count of devices that Pods ask for by resources."""
NVIDIA_DOMAIN: Final = "gpu.nvidia.com"
"""NVIDIA's driver, and the domain of its attributes."""
CORES: Final = "cores"
"""Capacity: compute in percent of a whole device."""
MEMORY: Final = "memory"
"""Capacity: memory in bytes, in steps of 1 MiB."""
REPLICAS: Final = "replicas"
"""Our own capacity: how many shares a device takes. A share is one, whether or not its claim says so."""
MEMORY_SLICE: Final = "memory-slice-"
"""Start of the names of the counters of a GPU with MIG, one for each of its memory slices; their number follows."""
TAINT_PREFIX: Final = "hami.io/device-"
"""Start of the keys of taints; the rest says why the device takes no new shares."""
OCCUPIED_TAINT: Final = f"{TAINT_PREFIX}occupied"
"""Of a place for a MIG instance where something stands that no claim accounts for, such as a Pod's from before."""


PLUGIN: Final = "plugin"
"""The kind of a Node that shares its devices by HAMi's resources, and of one whose annotation names none."""
DRA: Final = "dra"
"""The kind of a Node that shares its devices by ResourceClaims."""
KINDS: Final = (PLUGIN, DRA)
"""A Node is of one kind, so that each device has one bookkeeper."""


def node_kind(node: Mapping[str, Any]) -> str:
    """
    Return the kind of *node*, an object of the API.

    >>> node_kind({"metadata": {"annotations": {"hami.io/node-kind": "dra"}}}), node_kind({})
    ('dra', 'plugin')
    """
    annotations = (node.get("metadata") or {}).get("annotations") or {}
    return str(annotations.get(keys.NODE_KIND) or PLUGIN)


def device_name(minor: int) -> str:
    """
    Return the name of the device /dev/nvidia*minor* in its slice.

    >>> device_name(3)
    'hami-gpu-3'
    """
    return f"{DEVICE_TYPE}-{minor}"


def base_request(request: str) -> str:
    """
    Return the request that containers name; of alternatives (`firstAvailable`) a result also names the chosen one.

    >>> base_request("gpu/small"), base_request("gpu")
    ('gpu', 'gpu')
    """
    return request.partition("/")[0]
