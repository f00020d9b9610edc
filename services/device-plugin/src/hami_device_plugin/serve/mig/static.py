"""
Find the MIG instances that an administrator created and that the Node offers, by `--mig-strategy`.

Under `single` the instances take the place of the GPUs in the Node's inventory. Under `mixed` each size is a resource.
Neighbours: `decide.mig.static` says what is offered, `allocate.instance_resource` serves a resource of `mixed`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import structlog

from hami_device_plugin.adapters.nvml.mig import MigNvml
from hami_device_plugin.config.settings import Config
from hami_device_plugin.decide.inventory import FoundDevice
from hami_device_plugin.decide.mig.static import NONE, MigDevice, StaticOffer, static_offer
from hamicommon.model import ContainerShares
from hamicommon.pod.reading import Pod
from hamicommon.runtime.host.nvml import Nvml

logger = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Offered:
    """What the Node offers by its strategy."""

    found: tuple[FoundDevice, ...]
    """Under the usual resource: GPUs, or under `single` instances."""
    by_resource: tuple[tuple[str, tuple[MigDevice, ...]], ...] = ()


async def offered_devices(nvml: Nvml, config: Config, found: Sequence[FoundDevice]) -> Offered:
    """
    Return what the Node offers of the GPUs *found*.

    Raises:
        NvmlError: the driver does not answer.
        MigStrategyError: the instances do not suit the strategy.
    """
    if config.mig_strategy == NONE:
        return Offered(tuple(found))
    driver = MigNvml(nvml)
    offer = static_offer(config.mig_strategy, await driver.read_gpus(), await driver.read_devices(), config.sharing)
    for warning in offer.warnings:
        _warn(warning)
    return Offered(_usual(offer, found), offer.by_resource)


async def realized(_pod: Pod, _container: str, shares: ContainerShares) -> tuple[str, ...]:
    """Return the UUIDs of *shares*: under the strategy `single` each is an instance."""
    return tuple(share.uuid for share in shares)


@lru_cache(maxsize=64)
def _warn(problem: str) -> None:
    """Log *problem* once in the life of the process, however often the devices are read."""
    logger.warning("MIG instances are not all offered", problem=problem)


def _usual(offer: StaticOffer, found: Sequence[FoundDevice]) -> tuple[FoundDevice, ...]:
    parents = {device.uuid: device for device in found}
    instances = [
        FoundDevice(
            uuid=device.uuid,
            index=index,
            name=device.name,
            memory_bytes=device.memory_mib * 2**20,
            numa=parents[device.gpu_uuid].numa,
            minor=parents[device.gpu_uuid].minor,
        )
        for index, device in enumerate(offer.usual)
        if device.gpu_uuid in parents
    ]
    return (*(device for device in found if device.uuid in offer.gpu_uuids), *instances)
