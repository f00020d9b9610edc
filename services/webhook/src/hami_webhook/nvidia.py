"""
What admission checks and changes in a container for NVIDIA devices.

Owns NVIDIA's rows of HAMi's admission table. Must never decide on the Pod as a whole: that is `admission`.
Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/device/nvidia/device.go (MutateAdmission)
"""

from typing import Any

from hami_webhook.pod import Container, Pod
from hamicommon import quantity
from hamicommon.config import NvidiaConfig
from hamicommon.errors import HamiError
from hamicommon.vendors.description import amount, named

PRIORITY_ENV = "CUDA_TASK_PRIORITY"
CORE_POLICY_ENV = "GPU_CORE_UTILIZATION_POLICY"
VISIBLE_DEVICES_ENV = "NVIDIA_VISIBLE_DEVICES"

WHOLE_DEVICE_CORES = "100"


class AmountError(HamiError):
    """A container asks for an amount that no device can mean."""

    def __init__(self, resource: str, value: object, container: str, most: int) -> None:
        shown = str(value)[:40]
        super().__init__(
            f"invalid {resource} value {shown} in container {container}: must be an integer between 0 and {most}"
        )


def mutate(container: Container, pod: Pod, config: NvidiaConfig) -> bool:
    """
    Check and change *container* as HAMi does, and return whether it asks for a managed NVIDIA resource.

    Raises:
        AmountError: an amount is out of range.
    """
    _check_percentage(container, config)
    _check_range(container, config.resource_count_name)
    _check_range(container, config.resource_core_name)
    priority = container.limits.get(config.resource_priority_name) if config.resource_priority_name else None
    if priority is not None:
        container.set_env(PRIORITY_ENV, str(_value(container, config.resource_priority_name, priority)))
    if config.gpu_core_policy not in {"", "default"}:
        container.set_env(CORE_POLICY_ENV, config.gpu_core_policy)
    is_managed = _complete(container, config)
    if is_managed and pod.runtime_class_name is None and config.runtime_class_name:
        pod.set_runtime_class_name(config.runtime_class_name)
    if not is_managed and config.overwrite_env:
        container.set_env(VISIBLE_DEVICES_ENV, "none")
    return is_managed


def warnings(container: Container, config: NvidiaConfig) -> list[str]:
    """Return what the author of *container* should hear although it is admitted."""
    text = amount(container.resources, config.resource_memory_name)
    if text is None:
        return []
    units = quantity.whole(text)
    most = quantity.INT32_MAX // max(1, config.memory_factor)
    if units is not None and 0 <= units <= most:
        return []
    return [
        f"container {container.name}: {config.resource_memory_name} {str(text)[:40]} is not a whole number of at most"
        f" {most}; no device will be granted (the unit is {max(1, config.memory_factor)} MiB, so write 16384, not 16Gi)"
    ]


def _complete(container: Container, config: NvidiaConfig) -> bool:
    """Fill in the count and the cores that the container's other amounts imply; return whether it is managed."""
    count, core = config.resource_count_name, config.resource_core_name
    memory = named(config.resource_memory_name, config.resource_memory_percentage_name)
    is_managed = bool(count) and count in container.limits
    if not is_managed and config.default_device_count > 0:
        limited = [name for name in named(core, *memory) if name in container.limits]
        if limited == [core] and count in container.requests and _is_whole_already(container, config):
            return True
        if limited:
            container.set_limit(count, str(config.default_device_count))
            is_managed = True
    if core and amount(container.resources, core) is None and _takes_all_memory(container, config):
        container.set_limit(core, WHOLE_DEVICE_CORES)
        is_managed = True
    return is_managed


def _is_whole_already(container: Container, config: NvidiaConfig) -> bool:
    """
    Return whether the cores were filled in before, for a count that stands in the requests alone.

    HAMi counts devices anew on the second call; its own first answer must stay as it is.
    """
    cores = container.limits[config.resource_core_name]
    return quantity.whole(cores) == int(WHOLE_DEVICE_CORES) and _takes_all_memory(container, config)


def _takes_all_memory(container: Container, config: NvidiaConfig) -> bool:
    """Return whether the container counts devices and asks for all of their memory."""
    resources = container.resources
    if amount(resources, config.resource_count_name) is None:
        return False
    percentage = amount(resources, config.resource_memory_percentage_name)
    if percentage is not None:
        return quantity.whole(percentage) == 100
    return amount(resources, config.resource_memory_name) is None


def _check_percentage(container: Container, config: NvidiaConfig) -> None:
    name = config.resource_memory_percentage_name
    text = amount(container.resources, name)
    if text is None:
        return
    percentage = _value(container, name, text)
    if not 0 <= percentage <= 100:
        raise AmountError(name, percentage, container.name, 100)


def _check_range(container: Container, name: str) -> None:
    """Refuse what HAMi's 32-bit integers would wrap to another amount."""
    text = amount(container.resources, name)
    if text is not None and not 0 <= _value(container, name, text) <= quantity.INT32_MAX:
        raise AmountError(name, text, container.name, quantity.INT32_MAX)


def _value(container: Container, name: str, text: Any) -> int:
    """Return the amount rounded away from zero, as the API server's own arithmetic rounds."""
    try:
        return quantity.rounded(text)
    except quantity.QuantityError as error:
        raise AmountError(name, text, container.name, quantity.INT32_MAX) from error
