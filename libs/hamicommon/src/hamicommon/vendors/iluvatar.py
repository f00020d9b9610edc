"""
Iluvatar: the names, keys and requests of each configured chip.

Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/device/iluvatar/device.go
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from hamicommon.model import Request
from hamicommon.vendors.amounts import exact_mib, request_of, saturated, whole_amount
from hamicommon.vendors.description import (
    READ_BY_THE_PLUGIN,
    Description,
    Section,
    Vendor,
    check_words,
    chip_vendor,
    resource_name,
)
from hamicommon.wire.go import yaml_nodes as yaml
from hamicommon.wire.go.yaml_reader import Report, key

UNIT_MIB = 256
"""MiB per unit of requested memory."""


@dataclass(frozen=True, slots=True)
class IluvatarConfig:
    """One chip of the `iluvatars` list."""

    chip_name: str = key("chipName", "", without_effect=READ_BY_THE_PLUGIN)
    common_word: str = key("commonWord", "")
    resource_count_name: str = resource_name("resourceCountName")
    resource_memory_name: str = resource_name("resourceMemoryName")
    resource_core_name: str = resource_name("resourceCoreName")


def vendor(chip: IluvatarConfig) -> Vendor:
    """Return the names and keys of one chip."""
    parse = partial(parse_request, chip=chip)
    return chip_vendor(chip, f"hami.io/node-{chip.common_word}-register", UNIT_MIB, parse, chip)


def parse_request(resources: Mapping[str, Any], chip: IluvatarConfig) -> Request | None:
    """
    Return what a container with these `resources` asks of *chip*, None if nothing. The memory is per device.

    >>> chip = IluvatarConfig("BI-V150", "BI-V150", "vgpu", "vMem", "vCore")
    >>> parse_request({"limits": {"vgpu": "2", "vMem": "16"}}, chip)
    Request(vendor='BI-V150', count=2, memory_mib=4096, memory_percent=None, core_percent=0, profile_size=0)
    """
    return request_of(
        chip.common_word,
        saturated(whole_amount(resources, chip.resource_count_name)),
        exact_mib(resources, chip.resource_memory_name, UNIT_MIB),
        saturated(whole_amount(resources, chip.resource_core_name)),
    )


def _translate(root: yaml.Mapping, report: Report) -> None:
    """Reject the object form of the section, used until v2.7.0."""
    if "iluvatar" in root.items:
        report.problem("iluvatar", "one object until v2.7.0; write a list under iluvatars, one entry a chip")
        del root.items["iluvatar"]


_NONE: Final[tuple[IluvatarConfig, ...]] = ()
SECTION: Final = Section(
    "iluvatars",
    _NONE,
    tuple[IluvatarConfig, ...],
    "The chips.",
    translate=_translate,
    check=lambda chips, report: check_words("iluvatars", chips, report),
)
DESCRIPTION: Final = Description("Iluvatar", SECTION, lambda chips: map(vendor, chips), order=5)
