"""
Ascend: the names, keys and requests of each configured chip.

Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/device/ascend/device.go
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from hamicommon.model import Request
from hamicommon.vendors.amounts import request_of, rounded_amount, whole_amount, within
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
from hamicommon.wire.quantity import INT32_MAX

MODE_KEY = "huawei.com/vnpu-mode"
"""Pod annotation: with SHARED_MODE the library enforces shares, otherwise the chip's templates do."""
SHARED_MODE = "hami-core"
"""The mode, of a Pod and of a Node's devices, in which shares need no template."""
SHARED_NODE_KEY = "hami-vnpu-core"
"""Node annotation: whether the Node has shares without template; it overrides the configuration."""


@dataclass(frozen=True, slots=True)
class AscendTemplate:
    """A size to which an Ascend chip can be cut."""

    name: str = key("name", "")
    memory_mib: int = key("memory", 0, least=0, most=INT32_MAX)
    ai_core: int = key("aiCore", 0, least=0, most=INT32_MAX, without_effect=READ_BY_THE_PLUGIN)
    ai_cpu: int = key("aiCPU", 0, least=0, most=INT32_MAX, without_effect=READ_BY_THE_PLUGIN)


@dataclass(frozen=True, slots=True)
class AscendChipConfig:
    """One chip of `vnpus.configs`. Its templates are sorted by memory."""

    chip_name: str = key("chipName", "", without_effect=READ_BY_THE_PLUGIN)
    common_word: str = key("commonWord", "")
    resource_count_name: str = resource_name("resourceName")
    resource_memory_name: str = resource_name("resourceMemoryName")
    resource_core_name: str = resource_name("resourceCoreName")
    memory_allocatable_mib: int = key("memoryAllocatable", 0, least=0, most=INT32_MAX)
    memory_capacity_mib: int = key("memoryCapacity", 0, least=0, most=INT32_MAX)
    memory_factor: int = key("memoryFactor", 1, least=0, most=INT32_MAX)
    ai_core: int = key("aiCore", 0, least=0, most=INT32_MAX, without_effect=READ_BY_THE_PLUGIN)
    ai_cpu: int = key("aiCPU", 0, least=0, most=INT32_MAX, without_effect=READ_BY_THE_PLUGIN)
    runtime_class_name: str = key("runtimeClassName", "")
    overwrite_env: bool = key("overwriteEnv", False)
    super_pod: bool = key("superPod", False)
    templates: tuple[AscendTemplate, ...] = key("templates", ())
    hami_vnpu_core: bool = False
    """The setting of the section."""


@dataclass(frozen=True, slots=True)
class AscendConfig:
    """The `vnpus` section."""

    hami_vnpu_core: bool = key("hamiVnpuCore", False)
    """Whether Nodes without the annotation accept Pods with `huawei.com/vnpu-mode: hami-core`."""
    chips: tuple[AscendChipConfig, ...] = key("configs", ())
    """The chips, with their templates."""


def vendor(chip: AscendChipConfig) -> Vendor:
    """Return the names and keys of one chip."""
    parse = partial(parse_request, chip=chip)
    found = chip_vendor(chip, f"hami.io/node-register-{chip.common_word}", max(1, chip.memory_factor), parse, chip)
    return replace(found, author_keys=(MODE_KEY,))


def parse_request(resources: Mapping[str, Any], chip: AscendChipConfig) -> Request | None:
    """
    Return what a container with these `resources` asks of *chip*, None if nothing.

    The webhook has already rounded the memory up to a template.

    >>> chip = AscendChipConfig("910B3", "Ascend910B3", "npu", "npu-memory", "npu-core")
    >>> parse_request({"limits": {"npu": "1", "npu-memory": "16384"}}, chip)
    Request(vendor='Ascend910B3', count=1, memory_mib=16384, memory_percent=None, core_percent=0, profile_size=0)
    """
    memory = whole_amount(resources, chip.resource_memory_name) or 0
    return request_of(
        chip.common_word,
        within(whole_amount(resources, chip.resource_count_name)),
        within(memory * max(1, chip.memory_factor)),
        within(rounded_amount(resources, chip.resource_core_name)),
    )


def template_for(chip: AscendChipConfig, memory_mib: int) -> str:
    """
    Return the name of the smallest template with at least *memory_mib*, empty if only a whole device has it.

    >>> templates = (AscendTemplate("vir05_1c_16g", 16384), AscendTemplate("vir10_3c_32g", 32768))
    >>> chip = AscendChipConfig(templates=templates)
    >>> [template_for(chip, memory_mib) for memory_mib in (10000, 16384, 16385, 65536)]
    ['vir05_1c_16g', 'vir05_1c_16g', 'vir10_3c_32g', '']
    """
    return next((template.name for template in chip.templates if memory_mib <= template.memory_mib), "")


def _translate(root: yaml.Mapping, report: Report) -> None:
    """Read the list form of `vnpus`, used until v2.8."""
    vnpus = root.items.get("vnpus")
    if isinstance(vnpus, yaml.Sequence):
        report.old_form("vnpus", "a list until v2.8; read as vnpus.configs")
        root.items["vnpus"] = yaml.Mapping(vnpus.line, {"configs": vnpus})


def _finish(config: AscendConfig) -> AscendConfig:
    """Sort each chip's templates by memory, and copy the setting of the section to each chip."""
    chips = (
        replace(
            chip,
            templates=tuple(sorted(chip.templates, key=lambda template: template.memory_mib)),
            hami_vnpu_core=config.hami_vnpu_core,
        )
        for chip in config.chips
    )
    return replace(config, chips=tuple(chips))


SECTION: Final = Section(
    "vnpus",
    AscendConfig(),
    translate=_translate,
    check=lambda config, report: check_words("vnpus.configs", config.chips, report),
    finish=_finish,
)
DESCRIPTION: Final = Description("Ascend", SECTION, lambda config: map(vendor, config.chips), order=2)
