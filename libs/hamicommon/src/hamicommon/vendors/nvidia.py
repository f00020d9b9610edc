"""
NVIDIA: names, keys, and how a container's resources become a request.

Amounts saturate where HAMi's 32-bit integers wrap, so a request that is too large fits nowhere instead of fitting as a
small one; the webhook refuses such amounts before they get here.
Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/device/nvidia/device.go (GenerateResourceRequests)
"""

from collections.abc import Mapping
from typing import Any

from hamicommon.config import NvidiaConfig
from hamicommon.model import Request
from hamicommon.vendors.amounts import WHOLE_PERCENT, exact_mib, saturated, whole_amount
from hamicommon.vendors.description import Vendor, named
from hamicommon.wire import keys

KEY = "NVIDIA"
ALLOCATED_KEY = "hami.io/vgpu-devices-allocated"
"""Pod annotation: what was granted, never erased."""
PAIR_SCORES_KEY = "hami.io/node-nvidia-score"
"""Node annotation: how well each pair of devices is linked."""
NUMA_BIND_KEY = "nvidia.com/numa-bind"
"""Pod annotation: all devices of a container on one NUMA node."""
MODE_KEY = "nvidia.com/vgpu-mode"
"""Pod annotation: the modes a device may have."""


def vendor(config: NvidiaConfig) -> Vendor:
    """Return NVIDIA's names and keys."""
    return Vendor(
        key=KEY,
        resource_names=named(
            config.resource_count_name,
            config.resource_memory_name,
            config.resource_memory_percentage_name,
            config.resource_core_name,
            config.resource_priority_name,
        ),
        to_allocate_key="hami.io/vgpu-devices-to-allocate",
        allocated_key=ALLOCATED_KEY,
        register_key="hami.io/node-nvidia-register",
        handshake_key="hami.io/node-handshake",
        use_uuid_key="nvidia.com/use-gpuuuid",
        nouse_uuid_key="nvidia.com/nouse-gpuuuid",
        use_type_key="nvidia.com/use-gputype",
        nouse_type_key="nvidia.com/nouse-gputype",
        lock_key=keys.NODE_LOCK,
        memory_resource_name=config.resource_memory_name,
        core_resource_name=config.resource_core_name,
        memory_factor=max(1, config.memory_factor),
    )


def parse_request(resources: Mapping[str, Any], config: NvidiaConfig) -> Request | None:
    """
    Return what a container with these `resources` asks of NVIDIA devices, None if nothing.

    A limit is believed before a request. Memory that is negative, broken or beyond 32 bits voids the whole request, as
    in HAMi. Explicit memory wins over a percentage; with neither, the configured default, else the whole device.
    Cores above 100 stay as they are: fitting takes them as 100.

    >>> parse_request({"limits": {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3k"}},
    ...     NvidiaConfig(resource_count_name="nvidia.com/gpu", resource_memory_name="nvidia.com/gpumem"))
    Request(vendor='NVIDIA', count=1, memory_mib=3000, memory_percent=None, core_percent=0, profile_size=0)
    """
    count = saturated(whole_amount(resources, config.resource_count_name))
    memory_mib = exact_mib(resources, config.resource_memory_name, max(1, config.memory_factor))
    if not count or memory_mib is None:
        return None
    percent = whole_amount(resources, config.resource_memory_percentage_name) or 0
    if memory_mib == 0 and percent <= 0:
        memory_mib = config.default_memory_mib
        percent = WHOLE_PERCENT
    cores = whole_amount(resources, config.resource_core_name)
    return Request(
        vendor=KEY,
        count=count,
        memory_mib=memory_mib,
        memory_percent=None if memory_mib else min(percent, WHOLE_PERCENT),
        core_percent=saturated(cores, absent=config.default_core_percent),
    )
