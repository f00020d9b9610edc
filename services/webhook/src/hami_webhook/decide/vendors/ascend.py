"""
Ascend: memory comes in templates, the NPUs of a 910C in modules of two, and cores in hami-core mode only.

Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/device/ascend/device.go (MutateAdmission)
"""

from functools import partial

from hami_webhook.decide.amounts import AmountError, bounds_of, whole
from hami_webhook.decide.pod import Container, Pod
from hami_webhook.decide.rules import Rules
from hamicommon.vendors import ascend
from hamicommon.vendors.description import Vendor, named

VISIBLE_DEVICES_ENV = "ASCEND_VISIBLE_DEVICES"

_MODULE = 2
"""NPUs in one module of a chip with `superPod`."""


def rules(vendor: Vendor) -> Rules:
    """Return the rules of one chip."""
    chip: ascend.AscendChipConfig = vendor.config
    return Rules(
        vendor,
        asks=named(chip.resource_count_name),
        bounds=bounds_of(vendor),
        complete=partial(_complete, chip=chip),
        runtime_class=chip.runtime_class_name,
        hidden=(VISIBLE_DEVICES_ENV, ""),
        is_hiding=chip.overwrite_env,
    )


def _complete(container: Container, pod: Pod, chip: ascend.AscendChipConfig) -> bool:
    """Round the count to modules and the memory to a template, in the limit and the request."""
    if chip.resource_count_name not in container.limits:
        return False
    count = whole(container, chip.resource_count_name) or 0
    if chip.super_pod:
        _fill_modules(container, chip, count)
    is_soft = pod.annotations.get(ascend.MODE_KEY) == ascend.SHARED_MODE
    core = chip.resource_core_name
    if not is_soft and whole(container, core):
        raise AmountError(
            f"{core} is only supported in hami-core (soft split) mode: remove it from container {container.name},"
            f" or annotate the Pod with {ascend.MODE_KEY}: {ascend.SHARED_MODE}"
        )
    memory = chip.resource_memory_name
    units = _memory_units(container, chip, is_soft)
    is_part = not is_soft and units != _whole_device_units(chip)
    if count > 1 and is_part and not _is_filled_module(container, pod, chip, units):
        raise AmountError(
            f"vNPU not supported for multiple devices: container {container.name} asks for {count} and a part of the"
            f" memory of each; write {memory}: {_whole_device_units(chip)}, or {chip.resource_count_name}: 1"
        )
    if memory:
        container.set_amount(memory, units)
    return True


def _fill_modules(container: Container, chip: ascend.AscendChipConfig, count: int) -> None:
    """Give a container that requests one NPU a module; reject any other odd number."""
    if count == 1:
        container.set_limit(chip.resource_count_name, _MODULE)
    elif count % _MODULE:
        raise AmountError(
            f"{chip.common_word} device request must be 1 or 2*n, got {count}: in container {container.name} write"
            f" {chip.resource_count_name}: {count + 1}"
        )


def _is_filled_module(container: Container, pod: Pod, chip: ascend.AscendChipConfig, units: int) -> bool:
    """
    Return whether an earlier admission replaced one NPU and a part of its memory by this module and this template.

    HAMi rejects its own result in a second call. Here an admitted Pod is admitted again: it has the scheduler that
    admission sets, one module, and exactly a template's memory.
    """
    count, memory = whole(container, chip.resource_count_name), whole(container, chip.resource_memory_name)
    return chip.super_pod and pod.has_our_scheduler and (count, memory) == (_MODULE, units)


def _memory_units(container: Container, chip: ascend.AscendChipConfig, is_soft: bool) -> int:
    """Return the memory of each device in its resource's unit: the request, rounded up to a template."""
    name, factor = chip.resource_memory_name, max(1, chip.memory_factor)
    if name not in container.limits:
        return _whole_device_units(chip)
    asked = whole(container, name) or 0
    if asked * factor > chip.memory_capacity_mib:
        most = chip.memory_capacity_mib // factor
        raise AmountError(
            f"{name} {asked} is invalid: no {chip.common_word} has more than {chip.memory_capacity_mib} MiB; in"
            f" container {container.name} write at most {most}"
        )
    if is_soft:
        return asked
    sizes = (template.memory_mib for template in chip.templates if asked * factor <= template.memory_mib)
    size = next(sizes, None)
    return _whole_device_units(chip) if size is None else max(1, size // factor)


def _whole_device_units(chip: ascend.AscendChipConfig) -> int:
    return max(1, chip.memory_allocatable_mib // max(1, chip.memory_factor))
