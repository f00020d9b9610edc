"""
What a vendor is to the rest of the system: names and keys, nothing that acts.

Neighbours: one module a vendor builds its descriptions from the device config and reads requests its own way.
Source: https://github.com/Project-HAMi/HAMi/tree/v2.10.0/pkg/device (one package a vendor)
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from hamicommon.config import AscendChipConfig, IluvatarConfig
from hamicommon.quantity import parse_quantity, rounded_down
from hamicommon.wire import keys


@dataclass(frozen=True, slots=True)
class Vendor:
    """
    The names and keys of one vendor, or of one chip of a vendor that has several.

    An empty key means the vendor has no such thing.
    """

    key: str
    """How shares name the vendor (`NVIDIA`), unique among all."""
    resource_names: tuple[str, ...]
    """Extended resources a container asks with; the first is the one that counts devices."""
    to_allocate_key: str
    """Pod annotation: what the device plugin still has to hand out."""
    allocated_key: str
    """Pod annotation: what was granted."""
    register_key: str = ""
    """Node annotation: the inventory; empty where it comes from the Node's capacity."""
    handshake_key: str = ""
    """Node annotation by which plugin and scheduler see each other alive."""
    use_uuid_key: str = ""
    """Pod annotations: lists of device UUIDs and models to use, or not to."""
    nouse_uuid_key: str = ""
    also_use_uuid_key: str = ""
    """The same lists of UUIDs under other keys; a device must pass all of them."""
    also_nouse_uuid_key: str = ""
    use_type_key: str = ""
    nouse_type_key: str = ""
    lock_key: str = ""
    """Node annotation: the allocation lock."""
    lock_seconds: int = 0
    """After how long its lock, which names no owner, is anyone's; 0 where it names one."""
    memory_resource_name: str = ""
    """The resource whose `limits.` quota bounds granted memory."""
    core_resource_name: str = ""
    """The resource whose `limits.` quota bounds granted cores."""
    memory_factor: int = 1
    """MiB per unit of `memory_resource_name`."""
    read_memory_limit: Callable[[str | int], int] | None = None
    """What a quota's limit on it is in MiB, rounded down, where it is not simply a number of such units."""


def chip_vendor(chip: AscendChipConfig | IluvatarConfig, register_key: str, memory_factor: int) -> Vendor:
    """Return one chip of a vendor that has several: its common word is the key, and part of every other."""
    word = chip.common_word
    return Vendor(
        key=word,
        resource_names=named(chip.resource_count_name, chip.resource_memory_name, chip.resource_core_name),
        to_allocate_key=f"hami.io/{word}-devices-to-allocate",
        allocated_key=f"hami.io/{word}-devices-allocated",
        register_key=register_key,
        handshake_key=f"hami.io/node-handshake-{word}",
        use_uuid_key=f"hami.io/use-{word}-uuid",
        nouse_uuid_key=f"hami.io/no-use-{word}-uuid",
        lock_key=keys.NODE_LOCK,
        memory_resource_name=chip.resource_memory_name,
        core_resource_name=chip.resource_core_name,
        memory_factor=memory_factor,
    )


def limit_readers(vendors: Iterable[Vendor]) -> dict[str, Callable[[str | int], int]]:
    """
    Return how a quota's limit on each resource of *vendors* is read: memory as MiB, cores as they are, rounded down.

    >>> names = {"memory_resource_name": "memory", "core_resource_name": "cores"}
    >>> readers = limit_readers([Vendor("v", ("gpu",), "", "", **names, memory_factor=256)])
    >>> {resource: read("1500m") for resource, read in readers.items()}
    {'memory': 384, 'cores': 1}
    """
    found: dict[str, Callable[[str | int], int]] = {}
    for vendor in vendors:
        in_units = partial(_units_as_mib, factor=vendor.memory_factor)
        found[vendor.memory_resource_name] = vendor.read_memory_limit or in_units
        found[vendor.core_resource_name] = rounded_down
    found.pop("", None)
    return found


def _units_as_mib(text: str | int, factor: int) -> int:
    return parse_quantity(text) * factor // 1


def named(*names: str) -> tuple[str, ...]:
    """Return the names that are configured."""
    return tuple(name for name in names if name)


def amount(resources: Mapping[str, Any], name: str) -> Any | None:
    """Return what a container's `resources` say of *name*: the limit, else the request, else None."""
    if not name:
        return None
    for part in ("limits", "requests"):
        amounts = resources.get(part)
        if isinstance(amounts, Mapping) and name in amounts:
            return amounts[name]
    return None
