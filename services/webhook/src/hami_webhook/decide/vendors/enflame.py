"""
Enflame: a part of a device, by its size or by memory and cores; limits and requests become equal.

Source: https://github.com/Project-HAMi/HAMi/tree/v2.10.0/pkg/device/enflame (MutateAdmission)
"""

from functools import partial

from hami_webhook.decide.amounts import Bound, Words, whole
from hami_webhook.decide.pod import Container, Pod
from hami_webhook.decide.rules import Rules, counted
from hamicommon.vendors import enflame
from hamicommon.vendors.description import Vendor, named


def rules(vendor: Vendor) -> Rules:
    """Return the rules of partitioned devices; whole devices are counted."""
    if vendor.key == enflame.GCU_KEY:
        return counted(vendor)
    config: enflame.EnflameConfig = vendor.config
    count = config.resource_drs_name or config.legacy_resource_vgcu_name
    counts = (_positive(count),)
    core = config.resource_core_name
    says = f"{core} must be in range (0,100]"
    amounts = (
        _positive(config.resource_memory_name),
        Bound(core, 100, least=1, words=Words(says, says, says)),
    )
    return Rules(
        vendor,
        asks=named(count, config.resource_memory_name, config.resource_core_name),
        complete=partial(_complete, choices=(counts, amounts)),
    )


def _positive(name: str) -> Bound:
    says = f"{name} must be greater than 0"
    return Bound(name, least=1, words=Words(fraction=says, less=says))


def _complete(container: Container, _pod: Pod, choices: tuple[tuple[Bound, ...], ...]) -> bool:
    """Check the count, or else memory and cores, and set limits and requests to the same amounts."""
    for bounds in choices:
        present = [bound for bound in bounds if container.names_any((bound.name,))]
        for bound in present:
            bound.check(container)
            container.set_amount(bound.name, whole(container, bound.name) or 0)
        if present:
            return True
    return False
