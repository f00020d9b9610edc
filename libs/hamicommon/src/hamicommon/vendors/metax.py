"""
MetaX: names, keys and requests of two vendors, whole devices and shared ones.

It also reads the annotations in which MetaX's plugin describes a Node.

Source: https://github.com/Project-HAMi/HAMi/tree/v2.10.0/pkg/device/metax
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from hamicommon.model import Device, Request
from hamicommon.vendors.amounts import WHOLE_PERCENT, limit_of, request_of, saturated, whole_amount, within
from hamicommon.vendors.description import Description, Section, Vendor, named, resource_name
from hamicommon.wire import keys, quantity
from hamicommon.wire.go import json_reader as json
from hamicommon.wire.go.yaml_reader import key

GPU_KEY = "Metax-GPU"
SGPU_KEY = "Metax-SGPU"
SGPU_REGISTER_KEY = "metax-tech.com/node-gpu-devices"
"""Node annotation: the devices that can be shared."""
LOSSES_KEY = "metax-tech.com/gpu.topology.losses"
"""Node annotation: by number of devices, the loss of links if so many are taken."""
SCORES_KEY = "metax-tech.com/gpu.topology.scores"
"""Node annotation: by number of devices, the score of the links between so many."""
QOS_KEY = "metax-tech.com/sgpu-qos-policy"
"""Pod annotation: `best-effort`, `fixed-share` or `burst-share`. Pods with the same policy share a device."""
CLASS_KEY = "metax-tech.com/sgpu-app-class"
"""Pod annotation: `online` or `offline`. An online Pod stops the offline Pods on its device."""
TOPOLOGY_KEY = "metax-tech.com/sgpu-topology-aware"
"""Pod annotation: whether links count in the rating of Nodes; it overrides the configuration."""
DEVICE_QOS, DEVICE_ZONE = "qosPolicy", "linkZone"
"""Keys of a device's `custom`: its QoS policy, and the zone of its links, 0 for none."""
_MIB = 1024 * 1024
_MIB_PER_GIB = 1024


@dataclass(frozen=True, slots=True)
class MetaxConfig:
    """The `metax` section: whole devices (count) and shared ones (vcount, vmemory, vcore)."""

    resource_count_name: str = resource_name("resourceCountName", "metax-tech.com/gpu")
    resource_vcount_name: str = resource_name("resourceVCountName", "metax-tech.com/sgpu")
    resource_vmemory_name: str = resource_name("resourceVMemoryName", "metax-tech.com/vmemory")
    resource_vcore_name: str = resource_name("resourceVCoreName", "metax-tech.com/vcore")
    sgpu_topology_aware: bool = key("sgpuTopologyAware", False)
    """Keep linked devices together, also for Pods without the annotation."""


def gpu_vendor(config: MetaxConfig) -> Vendor:
    """Return the names and keys of whole devices, counted by the Node's capacity, without lists and lock."""
    return Vendor(
        key=GPU_KEY,
        resource_names=named(config.resource_count_name),
        to_allocate_key="hami.io/metax-gpu-devices-to-allocate",
        allocated_key="hami.io/metax-gpu-devices-allocated",
        parse_request=partial(parse_gpu_request, config=config),
        config=config,
    )


def sgpu_vendor(config: MetaxConfig) -> Vendor:
    """Return the names and keys of shared devices."""
    return Vendor(
        key=SGPU_KEY,
        resource_names=named(config.resource_vcount_name, config.resource_vmemory_name, config.resource_vcore_name),
        to_allocate_key="hami.io/metax-sgpu-devices-to-allocate",
        allocated_key="hami.io/metax-sgpu-devices-allocated",
        register_key=SGPU_REGISTER_KEY,
        use_uuid_key="metax-tech.com/use-gpuuuid",
        nouse_uuid_key="metax-tech.com/nouse-gpuuuid",
        author_keys=(QOS_KEY, CLASS_KEY, TOPOLOGY_KEY),
        lock_key=keys.NODE_LOCK,
        memory_resource_name=config.resource_vmemory_name,
        core_resource_name=config.resource_vcore_name,
        read_memory_limit=limit_mib,
        parse_request=partial(parse_sgpu_request, config=config),
        config=config,
    )


def parse_gpu_request(resources: Mapping[str, Any], config: MetaxConfig) -> Request | None:
    """
    Return how many whole devices a container with these `resources` asks for, None if none.

    >>> parse_gpu_request({"limits": {"gpu": "2"}}, MetaxConfig(resource_count_name="gpu"))
    Request(vendor='Metax-GPU', count=2, memory_mib=0, memory_percent=100, core_percent=100, profile_size=0)
    """
    return request_of(GPU_KEY, saturated(whole_amount(resources, config.resource_count_name)), 0, WHOLE_PERCENT)


def parse_sgpu_request(resources: Mapping[str, Any], config: MetaxConfig) -> Request | None:
    """
    Return what a container with these `resources` asks of shared devices, None if nothing. Only limits count.

    Without cores it asks for all cores. `memory_mib` reads the memory.

    >>> config = MetaxConfig("", "sgpu", "vmemory", "vcore")
    >>> [parse_sgpu_request({"limits": {"sgpu": "1", "vmemory": text}}, config).memory_mib for text in ("4", "2048Mi")]
    [4096, 2048]
    """
    limits = {"limits": resources.get("limits")}
    return request_of(
        SGPU_KEY,
        within(whole_amount(limits, config.resource_vcount_name)),
        _sgpu_mib(limit_of(resources, config.resource_vmemory_name)),
        within(whole_amount(limits, config.resource_vcore_name), absent=WHOLE_PERCENT),
    )


def _sgpu_mib(text: Any | None) -> int | None:
    """Return the MiB of *text*, 0 if it is None or no whole number. The result None voids the request."""
    return 0 if text is None or quantity.whole(text) is None else within(memory_mib(text))


def memory_mib(text: str | int) -> int:
    """
    Return the MiB of an amount of memory, rounded down. With a letter it is bytes, without one GiB.

    >>> [memory_mib(text) for text in ("4", "4Gi", "2G", "1k")]
    [4096, 4096, 1907, 0]

    Raises:
        QuantityError: *text* is no quantity.
    """
    amount = quantity.parse_quantity(text)
    has_unit = any(character.isalpha() for character in str(text))
    return amount // _MIB if has_unit else amount * _MIB_PER_GIB // 1


def limit_mib(text: str | int) -> int:
    """
    Return the MiB of a quota's limit, read as `memory_mib` reads the original text.

    The API server rewrites 1000 as `1k` and 0.5 as `500m`. Requests with such amounts are rejected at admission.

    >>> [limit_mib(text) for text in ("4", "4Gi", "1k", "500m")]
    [4096, 4096, 1024000, 512]

    Raises:
        QuantityError: *text* is no quantity.
    """
    was_number = str(text).strip().endswith(("k", "m", "u", "n"))
    return quantity.parse_quantity(text) * _MIB_PER_GIB // 1 if was_number else memory_mib(text)


@dataclass(frozen=True, slots=True)
class _Registered:
    uuid: str = ""
    count: int = 0
    compute: int = 0
    memory_mib: int = 0
    numa: int = 0
    healthy: bool = False
    qos: str = ""
    zone: int = 0


_REGISTERED: Final = json.array(
    json.optional(
        json.struct(
            _Registered(),
            {
                "uuid": ("uuid", json.string),
                "bdf": ("", json.string),
                "model": ("", json.string),
                "totalDevCount": ("count", json.whole_number(32)),
                "totalCompute": ("compute", json.whole_number(32)),
                "totalVRam": ("memory_mib", json.whole_number(32)),
                "availableDevCount": ("", json.whole_number(32)),
                "availableCompute": ("", json.whole_number(32)),
                "availableVRam": ("", json.whole_number(32)),
                "numa": ("numa", json.whole_number(32)),
                "healthy": ("healthy", json.truth),
                "qosPolicy": ("qos", json.string),
                "linkZone": ("zone", json.whole_number(32)),
            },
        )
    )
)
_FIGURES: Final = json.mapping(json.whole_number(64))


def decode_sgpu_devices(text: str) -> tuple[Device, ...]:
    """
    Return the devices of `SGPU_REGISTER_KEY`. A device's index is its place in the list.

    >>> [device] = decode_sgpu_devices('[{"uuid":"GPU-a","totalVRam":65536,"healthy":true,"linkZone":1}]')
    >>> device.memory_mib, device.healthy, device.custom
    (65536, True, {'qosPolicy': '', 'linkZone': 1})

    A `null` in the list is left out; HAMi 2.10 crashes on it.

    Raises: DecodeError when the text is not that list.
    """
    return tuple(
        Device(
            id=found.uuid,
            index=index,
            count=found.count,
            memory_mib=found.memory_mib,
            core_percent=found.compute,
            type=SGPU_KEY,
            numa=found.numa,
            healthy=found.healthy,
            custom={DEVICE_QOS: found.qos, DEVICE_ZONE: found.zone},
        )
        for index, found in enumerate(json.decode(text, _REGISTERED))
        if found is not None
    )


def decode_figures(text: str) -> dict[int, int]:
    """
    Return the figures of `LOSSES_KEY` or `SCORES_KEY` by number of devices. Keys that are no number are left out.

    >>> decode_figures('{"1":10,"2":30}')
    {1: 10, 2: 30}

    Raises: DecodeError when the text is no object of whole numbers.
    """
    return {int(count): figure for count, figure in json.decode(text, _FIGURES).items() if count.isdecimal()}


SECTION: Final = Section("metax", MetaxConfig())
DESCRIPTION: Final = Description("MetaX", SECTION, lambda config: (gpu_vendor(config), sgpu_vendor(config)), order=7)
