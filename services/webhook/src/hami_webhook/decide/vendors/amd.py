"""
AMD: cores are a percentage of a device's compute units.

Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/device/amd/device.go (MutateAdmission)
"""

from functools import partial

from hami_webhook.decide.amounts import Bound, Words
from hami_webhook.decide.pod import Container, Pod
from hami_webhook.decide.rules import Rules
from hamicommon.vendors import amd
from hamicommon.vendors.description import Vendor, named


def rules(vendor: Vendor) -> Rules:
    """Return AMD's rules."""
    config: amd.AmdConfig = vendor.config
    count, core = config.resource_count_name, config.resource_core_name
    says = f"{core} must be an integer percentage between 1 and 100"
    return Rules(
        vendor,
        asks=named(count),
        bounds=(Bound(count), Bound.memory(config.resource_memory_name)),
        complete=partial(_complete, config=config, cores=Bound(core, 100, least=1, words=Words(says, says, says))),
    )


def _complete(container: Container, _pod: Pod, config: amd.AmdConfig, cores: Bound) -> bool:
    """Check the cores of a container with a count; memory or cores alone also request a device."""
    if config.resource_count_name in container.limits and cores.name in container.limits:
        cores.check(container)
    names = named(config.resource_count_name, config.resource_memory_name, config.resource_core_name)
    return any(name in container.limits for name in names)
