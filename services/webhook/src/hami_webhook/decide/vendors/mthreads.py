"""
Moore Threads: several devices are whole devices, and a share has one of seven sizes.

Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/device/mthreads/device.go (MutateAdmission)
"""

from functools import partial

from hami_webhook.decide.amounts import AmountError, Bound, Words, whole
from hami_webhook.decide.pod import Container, Pod
from hami_webhook.decide.rules import Rules
from hamicommon.vendors import mthreads
from hamicommon.vendors.description import Vendor, named

COUNT_KEY = "mthreads.com/request-gpu-num"
"""Pod annotation for the vendor's plugin: the count of the last container that requests several devices."""
SIZES = (2, 4, 8, 16, 32, 64, 96)
"""Sizes of a share's memory, in the resource's unit; the last is the whole device's."""


def rules(vendor: Vendor) -> Rules:
    """Return Moore Threads' rules."""
    config: mthreads.MthreadsConfig = vendor.config
    count = config.resource_count_name
    return Rules(
        vendor,
        asks=named(count),
        bounds=(Bound(count, least=1, words=Words(less=f"{count} must be greater than 0")),),
        complete=partial(_complete, config=config),
    )


def _complete(container: Container, pod: Pod, config: mthreads.MthreadsConfig) -> bool:
    """Set cores and memory of whole devices; check the size of a share."""
    count = whole(container, config.resource_count_name)
    if count is None:
        return False
    core, memory = config.resource_core_name, config.resource_memory_name
    if count == 1 and memory in container.limits:
        if whole(container, memory) not in SIZES:
            raise AmountError(
                f"sGPU memory request value is invalid, valid values are {list(SIZES)}: container {container.name} asks"
                f" for {memory} {container.limits[memory]}"
            )
        Bound(core, mthreads.CORES_PER_DEVICE).check(container)
        return True
    for name, units in ((core, mthreads.CORES_PER_DEVICE), (memory, SIZES[-1])):
        if name:
            container.set_limit(name, units * count)
    if count > 1:
        pod.set_annotation(COUNT_KEY, str(count))
    return True
