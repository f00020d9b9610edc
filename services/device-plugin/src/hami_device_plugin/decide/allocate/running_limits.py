"""
Decide what the driver must limit now: the limits of the containers that run.

A container's hook sets them before it starts. A driver that is loaded again has forgotten them, and a container may
survive that.
Neighbours: `container_limits` says how a container is limited, `serve.limit_loop` compares with the driver.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from hami_device_plugin.decide.allocate.container_limits import ContainerLimits
from hami_device_plugin.decide.allocate.pods import Sharing
from hami_device_plugin.decide.probe.enforcement import EnforcementError
from hamicommon.model import ContainerShares
from hamicommon.pod.containers import ContainerState
from hamicommon.pod.control_groups import ContainerGroup
from hamicommon.pod.reading import Pod

_SLACK_BYTES = 2 << 20
"""A driver counts in whole pages of a device, and may round a limit to them."""


@dataclass(frozen=True, slots=True)
class RunningLimit:
    """What the driver was told about one device of a container that runs."""

    pod: Pod
    container: str
    group: ContainerGroup
    uuid: str
    size_bytes: int | None
    """None to allow everything."""


def running_limits(
    sharing: Iterable[Sharing], limits: Callable[[Pod, ContainerShares], ContainerLimits]
) -> Iterator[RunningLimit]:
    """Yield what the driver was told about the containers of *sharing* that run, by *limits*."""
    for pod, container, shares in sharing:
        if container.state is not ContainerState.RUNNING or not container.id:
            continue
        try:
            found = limits(pod, shares).by_driver
        except EnforcementError:
            continue
        group = ContainerGroup(pod.uid, container.id)
        yield from (RunningLimit(pod, container.name, group, uuid, size) for uuid, size in found.items())


def is_held(wanted_bytes: int | None, found_bytes: int | None) -> bool:
    """
    Return whether the driver's limit is the wanted one, as exactly as a driver keeps it; None is no limit.

    >>> is_held(3 << 30, 3 << 30), is_held(3 << 30, None), is_held(None, 3 << 30)
    (True, False, False)
    """
    if wanted_bytes is None or found_bytes is None:
        return wanted_bytes is found_bytes
    return abs(wanted_bytes - found_bytes) <= _SLACK_BYTES
