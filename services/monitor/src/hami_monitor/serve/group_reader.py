"""
Read what the driver counts for the control groups of containers.

Neighbours: `watchdog` asks after each reading of the driver, `hami_monitor.decide.watchdog.group_use` compares.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Mapping

from hami_monitor.adapters.cgroups import ControlGroups
from hami_monitor.decide.watchdog.control_groups import ContainerGroup
from hami_monitor.decide.watchdog.findings import Place

ReadUse = Callable[[str, Collection[str]], Awaitable[Mapping[str, int]]]
"""Returns the bytes of a device that each of some cgroups has, if it has a limit there."""


class GroupReader:
    """The control groups of the Node, and the driver's numbers of them."""

    def __init__(self, cgroup_root: str, used_by_cgroup: ReadUse) -> None:
        """Look for the groups below *cgroup_root*, and ask *used_by_cgroup* about them."""
        self._groups = ControlGroups(cgroup_root)
        self._used_by_cgroup = used_by_cgroup

    async def read(self, places: Mapping[Place, ContainerGroup]) -> dict[Place, int]:
        """
        Return the bytes that the driver counts for each of *places*, by the control group that it is given with.

        Places without a limit of the driver are left out.

        Raises:
            NvmlError: the driver does not answer.
        """
        folders = await asyncio.to_thread(self._groups.find, frozenset(places.values()))
        by_device: dict[str, dict[Place, str]] = defaultdict(dict)
        for place, group in places.items():
            if group in folders:
                by_device[place.device_uuid][place] = folders[group]
        used: dict[Place, int] = {}
        for device_uuid, wanted in by_device.items():
            found = await self._used_by_cgroup(device_uuid, frozenset(wanted.values()))
            used |= {place: found[folder] for place, folder in wanted.items() if folder in found}
        return used
