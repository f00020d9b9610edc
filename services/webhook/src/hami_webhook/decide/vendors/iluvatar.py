"""
Iluvatar: all cores for a container that requests several devices, and its name in a variable for the vendor's plugin.

Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/device/iluvatar/device.go (MutateAdmission)
"""

from functools import partial

from hami_webhook.decide.amounts import bounds_of, whole
from hami_webhook.decide.pod import Container, Pod
from hami_webhook.decide.rules import Rules
from hamicommon.vendors import iluvatar
from hamicommon.vendors.description import Vendor, named
from hamicommon.wire.quantity import INT32_MAX

NAME_ENV = "SOL_CONTINER_NAME"
"""The vendor's plugin uses this spelling."""
WHOLE_DEVICE_CORES = 100


def rules(vendor: Vendor) -> Rules:
    """Return the rules of one chip."""
    chip: iluvatar.IluvatarConfig = vendor.config
    return Rules(
        vendor,
        asks=named(chip.resource_count_name),
        bounds=bounds_of(vendor),
        complete=partial(_complete, chip=chip),
    )


def _complete(container: Container, _pod: Pod, chip: iluvatar.IluvatarConfig) -> bool:
    """Set the cores of several devices, and the variable with the container's name unless it exists."""
    if chip.resource_count_name not in container.limits:
        return False
    count = whole(container, chip.resource_count_name) or 0
    if count > 1 and chip.resource_core_name:
        container.set_limit(chip.resource_core_name, min(WHOLE_DEVICE_CORES * count, INT32_MAX))
    if container.name and all(variable.get("name") != NAME_ENV for variable in container.env):
        container.set_env(NAME_ENV, container.name)
    return True
