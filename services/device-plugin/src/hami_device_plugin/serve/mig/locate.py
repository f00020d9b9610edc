"""
Find out where a MIG instance is: its name by numbers, and its device files.

Neighbours: `decide.mig.address` names them. `identity`, `lock` and `static` grant what this returns, `driver_part`
compares the files with those that NVIDIA's generator found.
"""

import asyncio
from collections.abc import Sequence
from typing import Protocol

from hami_device_plugin.adapters.mig_capabilities import read_minors
from hami_device_plugin.decide.allocation import GrantPolicy
from hami_device_plugin.decide.mig.address import Address, capability_files
from hami_device_plugin.decide.mig.grant import GrantedInstance, needs_address


class AddressReader(Protocol):
    """Reads where an instance is."""

    async def address(self, mig_uuid: str) -> Address:
        """Return it. Raises: HamiError."""


class InstanceLocator:
    """Finds the instances of one Node."""

    def __init__(self, driver: AddressReader) -> None:
        """Ask *driver*."""
        self._driver = driver

    async def granted(self, uuids: Sequence[str], policy: GrantPolicy) -> tuple[GrantedInstance, ...]:
        """
        Return the instances *uuids* with what *policy* gives of them.

        Raises:
            NvmlError: the driver does not answer, or has no such instance.
            CapabilityError: the driver does not list an instance's device files.
        """
        if not needs_address(policy):
            return tuple(GrantedInstance(uuid) for uuid in uuids)
        return tuple([await self._granted(uuid, policy) for uuid in uuids])

    async def capabilities(self, mig_uuid: str) -> dict[str, int]:
        """
        Return the minor number of each capability of an instance, by the path of its device file.

        Raises:
            NvmlError: the driver does not answer, or has no such instance.
            CapabilityError: the driver does not list them.
        """
        return await self._capabilities(await self._driver.address(mig_uuid))

    async def _granted(self, uuid: str, policy: GrantPolicy) -> GrantedInstance:
        address = await self._driver.address(uuid)
        files: tuple[str, ...] = ()
        if policy.minors is not None:
            files = (f"/dev/nvidia{address.gpu_minor}", *await self._capabilities(address))
        return GrantedInstance(uuid, str(address), files)

    async def _capabilities(self, address: Address) -> dict[str, int]:
        return capability_files(address, await asyncio.to_thread(read_minors))
