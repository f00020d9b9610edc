"""
Ascend: names, keys and requests of each configured chip.

Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/device/ascend/device.go
"""

from collections.abc import Mapping
from typing import Any

from hamicommon.config import AscendChipConfig
from hamicommon.model import Request
from hamicommon.vendors.amounts import request_of, rounded_amount, whole_amount, within
from hamicommon.vendors.description import Vendor, chip_vendor

MODE_KEY = "huawei.com/vnpu-mode"
"""Pod annotation: with `hami-core` shares need no template."""
SHARED_NODE_KEY = "hami-vnpu-core"
"""Node annotation: whether shares without template are possible there, in place of the configuration."""


def vendor(chip: AscendChipConfig) -> Vendor:
    """Return the names and keys of one chip."""
    return chip_vendor(chip, f"hami.io/node-register-{chip.common_word}", max(1, chip.memory_factor))


def parse_request(resources: Mapping[str, Any], chip: AscendChipConfig) -> Request | None:
    """
    Return what a container with these `resources` asks of *chip*, None if nothing.

    Memory is what it says: the webhook has brought it to the size of a template where the device is to be cut by one.

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
    Return the name of the smallest template with at least *memory_mib*, empty where only a whole device has it.

    >>> from hamicommon.config import AscendTemplate
    >>> templates = (AscendTemplate("vir05_1c_16g", 16384), AscendTemplate("vir10_3c_32g", 32768))
    >>> chip = AscendChipConfig(templates=templates)
    >>> [template_for(chip, memory_mib) for memory_mib in (10000, 16384, 16385, 65536)]
    ['vir05_1c_16g', 'vir05_1c_16g', 'vir10_3c_32g', '']
    """
    return next((template.name for template in chip.templates if memory_mib <= template.memory_mib), "")
