"""
NVIDIA: adds a missing count, all cores to a request for all memory, and variables.

Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/device/nvidia/device.go (MutateAdmission)
"""

from functools import partial

from hami_webhook.decide.amounts import Bound, bounds_of, whole
from hami_webhook.decide.pod import Container, Pod
from hami_webhook.decide.rules import Rules
from hamicommon.pod.variables import CORE_POLICY, TASK_PRIORITY
from hamicommon.vendors import nvidia
from hamicommon.vendors.description import Vendor, amount, named

VISIBLE_DEVICES_ENV = "NVIDIA_VISIBLE_DEVICES"

WHOLE_DEVICE_CORES = 100


def rules(vendor: Vendor) -> Rules:
    """Return NVIDIA's rules."""
    config: nvidia.NvidiaConfig = vendor.config
    has_policy = config.gpu_core_policy not in {"", "default"}
    return Rules(
        vendor,
        asks=named(config.resource_count_name),
        bounds=(
            Bound(config.resource_memory_percentage_name, 100),
            *bounds_of(vendor),
            Bound(config.resource_priority_name),
        ),
        complete=partial(_complete, config=config),
        runtime_class=config.runtime_class_name,
        hidden=(VISIBLE_DEVICES_ENV, "none"),
        of_the_plugin=(VISIBLE_DEVICES_ENV,),
        is_hiding=config.overwrite_env,
        core_percent_most=WHOLE_DEVICE_CORES,
        everywhere=((CORE_POLICY, config.gpu_core_policy),) if has_policy else (),
    )


def _complete(container: Container, _pod: Pod, config: nvidia.NvidiaConfig) -> bool:
    """Set the count and the cores that the container's other amounts imply, and the variable of its priority."""
    if config.resource_priority_name in container.limits:
        priority = whole(container, config.resource_priority_name)
        container.set_env(TASK_PRIORITY, str(priority or 0))
    count, core = config.resource_count_name, config.resource_core_name
    memory = named(config.resource_memory_name, config.resource_memory_percentage_name)
    asked = bool(count) and count in container.limits
    if not asked and count and config.default_device_count > 0:
        limited = [name for name in named(core, *memory) if name in container.limits]
        if limited == [core] and count in container.requests and _is_whole_already(container, config):
            return True
        if limited:
            container.set_limit(count, whole(container, count) or config.default_device_count)
            asked = True
    if core and amount(container.resources, core) is None and _takes_all_memory(container, config):
        container.set_limit(core, WHOLE_DEVICE_CORES)
        asked = True
    return asked


def _is_whole_already(container: Container, config: nvidia.NvidiaConfig) -> bool:
    """
    Return whether an earlier call set the cores, for a count in the requests alone.

    HAMi adds a count in the second call. Here the result of the first call must not change.
    """
    return whole(container, config.resource_core_name) == WHOLE_DEVICE_CORES and _takes_all_memory(container, config)


def _takes_all_memory(container: Container, config: nvidia.NvidiaConfig) -> bool:
    """Return whether the container requests all of the memory of its devices."""
    resources = container.resources
    if amount(resources, config.resource_count_name) is None:
        return False
    if amount(resources, config.resource_memory_percentage_name) is not None:
        return whole(container, config.resource_memory_percentage_name) == 100
    return amount(resources, config.resource_memory_name) is None
