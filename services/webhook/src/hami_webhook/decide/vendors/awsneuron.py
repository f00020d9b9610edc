"""
AWS Neuron: devices, or cores. Cores come singly or in whole devices.

Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/device/awsneuron/device.go (MutateAdmission)
"""

from functools import partial

from hami_webhook.decide.amounts import AmountError, Bound, Words, whole
from hami_webhook.decide.pod import Container, Pod
from hami_webhook.decide.rules import Rules
from hamicommon.vendors import awsneuron
from hamicommon.vendors.description import Vendor, named
from hamicommon.wire.quantity import INT32_MAX

CORES = awsneuron.CORES_PER_DEVICE


def rules(vendor: Vendor) -> Rules:
    """Return AWS Neuron's rules."""
    config: awsneuron.AwsNeuronConfig = vendor.config
    count, core = config.resource_count_name, config.resource_core_name
    return Rules(
        vendor,
        asks=named(count, core),
        complete=partial(
            _complete,
            count=_bound(count, INT32_MAX),
            core=_bound(core, INT32_MAX * CORES),
        ),
    )


def _bound(name: str, most: int) -> Bound:
    words = Words(
        fraction=f"{name} must be an integer",
        less=f"{name} must be greater than 0",
        more=f"{name} must not exceed {most}",
    )
    return Bound(name, most, least=1, words=words)


def _complete(container: Container, _pod: Pod, count: Bound, core: Bound) -> bool:
    """Check the count of devices, or else the cores."""
    if container.names_any((count.name,)):
        count.check(container)
        return True
    core.check(container)
    cores = whole(container, core.name)
    if cores is not None and cores > CORES and cores % CORES:
        raise AmountError(
            f"{core.name} must be 1 or a multiple of {CORES}, got {cores}: in container {container.name} write"
            f" {cores + 1}"
        )
    return cores is not None
