"""
Kunlun: one, two, four or eight devices, and three sizes of memory for shared ones.

Source: https://github.com/Project-HAMi/HAMi/tree/v2.10.0/pkg/device/kunlun (MutateAdmission, and what can be placed)
"""

from functools import partial

from hami_webhook.decide.amounts import AmountError, Bound, whole
from hami_webhook.decide.pod import Container, Pod
from hami_webhook.decide.rules import Rules
from hamicommon.vendors import kunlun
from hamicommon.vendors.description import Vendor, named

COUNTS = (0, 1, 2, 4, 8)


def rules(vendor: Vendor) -> Rules:
    """Return the rules of whole devices, or of shared ones, which also have memory."""
    config: kunlun.KunlunConfig = vendor.config
    is_shared = vendor.key == kunlun.XPU_KEY
    count = config.resource_vcount_name if is_shared else config.resource_count_name
    memory = config.resource_vmemory_name if is_shared else ""
    return Rules(
        vendor,
        asks=named(count),
        bounds=(Bound.memory(memory),) if is_shared else (),
        complete=partial(_complete, count_name=count, memory_name=memory),
    )


def _complete(container: Container, _pod: Pod, count_name: str, memory_name: str) -> bool:
    """Check the count, and round the memory up to a size, at most a whole device's."""
    if count_name not in container.limits:
        return False
    if (count := whole(container, count_name)) not in COUNTS:
        raise AmountError(
            f"invalid {count_name} value {count} in container {container.name}: must be 1, 2, 4 or 8, as devices are"
            " linked"
        )
    if memory_name in container.limits:
        asked = whole(container, memory_name) or 0
        container.set_amount(
            memory_name, next((size for size in kunlun.SHARE_SIZES_MIB if asked <= size), kunlun.DEVICE_MIB)
        )
    return True
