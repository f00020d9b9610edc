"""
NVIDIA: names, keys and requests.

Amounts saturate where HAMi's 32-bit integers wrap, so that a request that is too large fits nowhere, instead of fitting
as a small one. The webhook has already rejected such amounts.
Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/device/nvidia/device.go (GenerateResourceRequests)
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from hamicommon.model import Request
from hamicommon.vendors.amounts import WHOLE_PERCENT, exact_mib, saturated, whole_amount
from hamicommon.vendors.description import Description, Section, Vendor, named, resource_name
from hamicommon.wire import keys
from hamicommon.wire.go import yaml_nodes as yaml
from hamicommon.wire.go.yaml_reader import Report, key
from hamicommon.wire.quantity import INT32_MAX

KEY = "NVIDIA"
ALLOCATED_KEY = "hami.io/vgpu-devices-allocated"
"""Pod annotation: the granted shares; it is never removed."""
TO_ALLOCATE_KEY = "hami.io/vgpu-devices-to-allocate"
"""Pod annotation: the shares that the device plugin has not handed out yet."""
REGISTER_KEY = "hami.io/node-nvidia-register"
"""Node annotation: the inventory, see `wire.node_devices`."""
HANDSHAKE_KEY = "hami.io/node-handshake"
"""Node annotation: the liveness note of plugins up to HAMi 2.7."""
PAIR_SCORES_KEY = "hami.io/node-nvidia-score"
"""Node annotation: the score of the link between each pair of devices."""
PLUGIN_POD_KEYS = (keys.MIG_ALLOCATIONS, TO_ALLOCATE_KEY)
"""Pod annotations of a grant that the scheduler writes and the device plugin changes while it hands the grant out."""
PLUGIN_NODE_KEYS = (
    REGISTER_KEY,
    HANDSHAKE_KEY,
    PAIR_SCORES_KEY,
    keys.NODE_DEVICE_LIST,
    keys.NODE_ENFORCEMENT,
    keys.NODE_KIND,
    keys.NODE_LOCK,
    keys.DEVICE_FAULTS,
    keys.DEVICE_RESTORE,
    keys.MIG_CHANGE,
    keys.OLD_NODE_ALLOCATION,
)
"""Every Node annotation that the device plugin writes or removes."""
NUMA_BIND_KEY = "nvidia.com/numa-bind"
"""Pod annotation: all devices of a container on one NUMA node."""
MODE_KEY = "nvidia.com/vgpu-mode"
"""Pod annotation: the device modes that the Pod accepts."""
MIG_PREFERENCE_KEY = "nvidia.com/mig-profile-preference"
"""Pod annotation: comma list of the MIG profiles to try first, of HAMi after 2.10."""
_MIG_PROFILE: Final = re.compile(r"[0-9]+g\..+")


def _mig_profile(text: str) -> str | None:
    return None if _MIG_PROFILE.fullmatch(text) else f"{text[:40]!r} is not a MIG profile such as 1g.10gb"


@dataclass(frozen=True, slots=True)
class MigProfileRule:
    """Which MIG profiles may be cut from some models."""

    models: tuple[str, ...] = key("models", ())
    """As the driver names them."""
    profiles: tuple[str, ...] = key("profiles", (), check=_mig_profile)
    """As 1g.10gb."""


@dataclass(frozen=True, slots=True)
class NvidiaConfig:
    """The `nvidia` section."""

    resource_count_name: str = resource_name("resourceCountName")
    resource_memory_name: str = resource_name("resourceMemoryName")
    resource_memory_percentage_name: str = resource_name("resourceMemoryPercentageName")
    resource_core_name: str = resource_name("resourceCoreName")
    resource_priority_name: str = resource_name("resourcePriorityName")
    overwrite_env: bool = key("overwriteEnv", False)
    """In Pods with a share, hide every device from containers without one."""
    default_memory_mib: int = key("defaultMemory", 0, least=0, most=INT32_MAX)
    """Memory in MiB of a request without memory; 0 is the whole device."""
    default_core_percent: int = key("defaultCores", 0, least=0, most=100)
    """Compute in percent of a request without `gpucores`."""
    default_device_count: int = key("defaultGPUNum", 1, least=0, most=INT32_MAX)
    """Devices of a request with only memory or cores; 0 leaves such a request unmanaged."""
    memory_factor: int = key("memoryFactor", 1, least=0, most=INT32_MAX)
    """MiB per unit of requested memory; 0 counts as 1."""
    disable_core_limit: bool = key("disableCoreLimit", False)
    """Turn the compute limit off, on every Node."""
    gpu_core_policy: str = key("gpuCorePolicy", "default", choices=("default", "force", "disable", ""))
    """When the compute limit applies: `default` beside other containers, `force` always, `disable` never."""
    runtime_class_name: str = key("runtimeClassName", "")
    """RuntimeClass of Pods with a share that have none."""
    mig_profile_allowlist: tuple[MigProfileRule, ...] = key("migProfileAllowlist", ())
    """Allowed MIG profiles, by model."""
    device_split_count: int = key("deviceSplitCount", 10, least=1, most=INT32_MAX)
    """Containers that may share one device."""
    device_memory_scaling: float = key("deviceMemoryScaling", 1.0, least=1e-6, most=1000)
    """Factor on the memory that a device offers."""
    device_core_scaling: float = key("deviceCoreScaling", 1.0, least=1e-6, most=1000)
    """Factor on the compute that a device offers."""
    pre_configured_device_memory_mib: int = key("preConfiguredDeviceMemory", 0, least=0, most=INT32_MAX)
    """Memory in MiB of a device whose driver does not report it; 0: unknown."""
    lib_cuda_log_level: int = key("libCudaLogLevel", 1, least=0, most=9, quoted_number=True)
    """Log level of the library: 0 prints only errors, 4 everything."""
    enable_numa_topology: bool = key("enableNumaTopology", False)
    """Report the devices' NUMA nodes to the kubelet."""


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
        to_allocate_key=TO_ALLOCATE_KEY,
        allocated_key=ALLOCATED_KEY,
        register_key=REGISTER_KEY,
        handshake_key=HANDSHAKE_KEY,
        use_uuid_key="nvidia.com/use-gpuuuid",
        nouse_uuid_key="nvidia.com/nouse-gpuuuid",
        use_type_key="nvidia.com/use-gputype",
        nouse_type_key="nvidia.com/nouse-gputype",
        author_keys=(NUMA_BIND_KEY, MODE_KEY, MIG_PREFERENCE_KEY),
        lock_key=keys.NODE_LOCK,
        memory_resource_name=config.resource_memory_name,
        core_resource_name=config.resource_core_name,
        memory_factor=max(1, config.memory_factor),
        parse_request=partial(parse_request, config=config),
        config=config,
    )


def parse_request(resources: Mapping[str, Any], config: NvidiaConfig) -> Request | None:
    """
    Return what a container with these `resources` asks of NVIDIA devices, None if nothing.

    A limit is preferred to a request. Memory that is negative, broken or beyond 32 bits voids the request, as in HAMi.
    Explicit memory is preferred to a percentage. Without both it is the configured default, else the whole device.
    Cores above 100 are kept; fitting reads them as 100.

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


def _translate(root: yaml.Mapping, report: Report) -> None:
    """Remove the MIG geometries, used before v2.10."""
    section = root.items.get("nvidia")
    if isinstance(section, yaml.Mapping) and "knownMigGeometries" in section.items:
        report.warn("nvidia.knownMigGeometries", "ignored since v2.10; write migProfileAllowlist")
        del section.items["knownMigGeometries"]


def _check(config: NvidiaConfig, report: Report) -> None:
    """Report MIG profile rules without a model or a profile."""
    for index, rule in enumerate(config.mig_profile_allowlist):
        for name in ("models", "profiles"):
            if not getattr(rule, name):
                report.problem(f"nvidia.migProfileAllowlist[{index}].{name}", "must name at least one")


SECTION: Final = Section("nvidia", NvidiaConfig(), translate=_translate, check=_check)
DESCRIPTION: Final = Description("NVIDIA", SECTION, lambda config: (vendor(config),), order=1)
