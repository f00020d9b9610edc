"""
Moore Threads: whole devices for whoever asks for several, and one of seven sizes for whoever shares one.

Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/device/mthreads/device.go (MutateAdmission)
"""

from functools import partial

from hami_webhook.decide.amounts import AmountError, Bound, Words, whole
from hami_webhook.decide.pod import Container, Pod
from hami_webhook.decide.rules import Rules
from hamicommon.vendor import Vendor, named
from hamicommon.vendors import mthreads

COUNT_KEY = "mthreads.com/request-gpu-num"
"""Pod annotation, for the vendor's plugin: how many devices the last container that asks for several asks for."""
SIZES = (2, 4, 8, 16, 32, 64, 96)
"""What the memory of a device can be cut to, in its resource's units; the last is all of it."""


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
    """Set cores and memory of whole devices; look at the size of a part of one."""
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
