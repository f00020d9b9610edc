"""
What a description of a vendor consists of.

Neighbours: `vendors` has one module with one `DESCRIPTION` for each vendor, `config` reads their sections.
Source: https://github.com/Project-HAMi/HAMi/tree/v2.10.0/pkg/device (one package a vendor)
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from hamicommon.config_schema import Report, key
from hamicommon.config_yaml import Mapping as YamlMapping
from hamicommon.model import Request
from hamicommon.quantity import parse_quantity, rounded_down
from hamicommon.wire import keys

T = TypeVar("T")
RequestParser = Callable[[Mapping[str, Any]], Request | None]
"""Reads from a container's `resources` what it asks of one vendor, None for nothing."""

READ_BY_THE_PLUGIN = "the vendor's own device plugin reads it"
"""Why some keys of the device config have no effect here."""
_RESOURCE_NAME = re.compile(r"[a-zA-Z0-9]([a-zA-Z0-9._/-]*[a-zA-Z0-9])?")


@dataclass(frozen=True, slots=True)
class Vendor:
    """
    The names and keys of one vendor, or of one chip of a vendor that has several.

    An empty key means the vendor has no such thing.
    """

    key: str
    """How shares name the vendor (`NVIDIA`). No two vendors have the same."""
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
    """Reads a quota's limit on memory in MiB, rounded down. None: the limit is a number of units."""
    grants_percent: bool = True
    """Whether a share's compute is a percentage, as it is asked for and limited, and not units or bits."""
    cores_of_a_device: int = 0
    """What a request for all cores of a device counts against a quota where it says 0."""
    amounts_before_placement: Callable[[Request], tuple[int, int]] | None = None
    """Returns the MiB and cores of each device that a request counts as before it has a device. None: as it says."""
    parse_request: RequestParser = field(default=lambda _resources: None, compare=False)
    config: Any = field(default=None, compare=False)
    """The vendor's section of the device config, or the chip in it."""
    name: str = ""
    """The module of `hamicommon.vendors` that describes it, and of each service that has functions for it."""


@dataclass(frozen=True, slots=True)
class Section(Generic[T]):
    """A vendor's section of the device config."""

    name: str
    """Its key in the file."""
    empty: T
    """Its value where the file has no such key: no resource has a name."""
    kind: Any = None
    """Its type, if that is not the type of `empty`."""
    meaning: str = ""
    """What it is, for the documentation; empty where its keys say enough."""
    translate: Callable[[YamlMapping, Report], None] | None = None
    """Brings what older versions wrote in the file to the present form, or reports what to write instead."""
    check: Callable[[T, Report], None] | None = None
    """Reports what is wrong between fields."""
    finish: Callable[[T], T] | None = None
    """Brings a value that was read to the form the rest of the code expects."""


@dataclass(frozen=True, slots=True)
class Description:
    """All that is known of one vendor."""

    title: str
    """Its name in the documentation."""
    section: Section[Any]
    vendors: Callable[[Any], Iterable[Vendor]]
    """Returns the vendors of a section: one, one for each chip, or one each for whole and shared devices."""
    order: int = 1000
    """Vendors are asked in this order, which for HAMi's vendors is HAMi's; equal ones by name."""


def resource_name(name: str, chart: str = "") -> Any:
    """Return a field for the name of a resource: *name* is its key in the file, *chart* its value in the chart."""
    return key(name, "", check=is_resource_name, chart=chart)


def is_resource_name(text: str) -> str | None:
    """Return what is wrong with *text* as the name of a resource, None where nothing is."""
    if text and (len(text) > 317 or not _RESOURCE_NAME.fullmatch(text)):
        return f"{text[:40]!r} is not a resource name such as nvidia.com/gpu"
    return None


class Chip(Protocol):
    """One entry of a section that lists chips."""

    @property
    def common_word(self) -> str: ...
    @property
    def resource_count_name(self) -> str: ...
    @property
    def resource_memory_name(self) -> str: ...
    @property
    def resource_core_name(self) -> str: ...


def chip_vendor(
    chip: Chip, register_key: str, memory_factor: int, parse_request: RequestParser, config: object
) -> Vendor:
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
        parse_request=parse_request,
        config=config,
    )


def check_words(path: str, chips: Iterable[Chip], report: Report) -> None:
    """Report chips whose annotation keys, which are made of the common word, would be empty or another chip's."""
    words: list[str] = []
    for index, chip in enumerate(chips):
        if not chip.common_word:
            report.problem(f"{path}[{index}].commonWord", "must not be empty; annotation keys are made of it")
        elif chip.common_word in words:
            report.problem(f"{path}[{index}].commonWord", f"{chip.common_word!r} is another entry's, too")
        words.append(chip.common_word)


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
