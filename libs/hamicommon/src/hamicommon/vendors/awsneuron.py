"""
AWS Neuron: names, keys and requests. Devices are counted by the Node's capacity. There is no lock.

Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/device/awsneuron/device.go
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from hamicommon.model import Request
from hamicommon.vendors.amounts import whole_amount
from hamicommon.vendors.description import Description, Section, Vendor, amount, named, resource_name
from hamicommon.wire.quantity import INT32_MAX

KEY = "AWSNeuron"
CORES_PER_DEVICE = 2
"""HAMi's number, also for devices with more cores."""


@dataclass(frozen=True, slots=True)
class AwsNeuronConfig:
    """The `awsneuron` section."""

    resource_count_name: str = resource_name("resourceCountName", "aws.amazon.com/neuron")
    resource_core_name: str = resource_name("resourceCoreName", "aws.amazon.com/neuroncore")


def vendor(config: AwsNeuronConfig) -> Vendor:
    """Return AWS Neuron's names and keys."""
    return Vendor(
        key=KEY,
        resource_names=named(config.resource_count_name, config.resource_core_name),
        to_allocate_key="",
        allocated_key="hami.io/aws-neuron-devices-allocated",
        use_uuid_key="aws.amazon.com/use-neuron-uuid",
        nouse_uuid_key="aws.amazon.com/nouse-neuron-uuid",
        core_resource_name=config.resource_core_name,
        grants_percent=False,
        cores_of_a_device=CORES_PER_DEVICE,
        parse_request=partial(parse_request, config=config),
        config=config,
    )


def parse_request(resources: Mapping[str, Any], config: AwsNeuronConfig) -> Request | None:
    """
    Return what a container with these `resources` asks of AWS Neuron, None if nothing.

    `core_percent` is a number of cores of each device, 0 for all of them. A number of cores that neither fits into one
    device nor fills several devices is no request.

    >>> config = AwsNeuronConfig("neuron", "neuroncore")
    >>> parse_request({"limits": {"neuroncore": "4"}}, config)
    Request(vendor='AWSNeuron', count=2, memory_mib=0, memory_percent=None, core_percent=2, profile_size=0)
    >>> parse_request({"limits": {"neuroncore": "3"}}, config) is None
    True
    """
    if amount(resources, config.resource_count_name) is not None:
        count = whole_amount(resources, config.resource_count_name) or 0
        return Request(KEY, count, 0, None, 0) if 0 < count <= INT32_MAX else None
    cores = whole_amount(resources, config.resource_core_name) or 0
    if 0 < cores <= CORES_PER_DEVICE:
        return Request(KEY, 1, 0, None, cores)
    count, rest = divmod(cores, CORES_PER_DEVICE)
    return Request(KEY, count, 0, None, CORES_PER_DEVICE) if 0 < count <= INT32_MAX and not rest else None


SECTION: Final = Section("awsneuron", AwsNeuronConfig())
DESCRIPTION: Final = Description("AWS Neuron", SECTION, lambda config: (vendor(config),), order=10)
