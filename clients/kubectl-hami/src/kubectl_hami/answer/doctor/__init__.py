"""
The checks of `doctor`: the whole path from a Pod that is created to a container that has its share.

`control` has what the cluster has once, `nodes` what each Node has, `agreement` what must be the same everywhere.
`readings` reads single numbers of the services. Each check is a function of everything that was read, and yields what
it found with the mend. A check of which nothing is known is unknown, and never good.
"""

from collections.abc import Callable, Iterator
from typing import Final

from kubectl_hami.answer.doctor.agreement import clocks, device_configs, versions
from kubectl_hami.answer.doctor.control import (
    certificate,
    drift,
    extender,
    leader,
    nodes_scored,
    services_run,
    webhook,
)
from kubectl_hami.answer.doctor.nodes import allocations, cdi, devices, drivers, enforcement, locks, plugins
from kubectl_hami.values.diagnosis import Check, Examined

CHECKS: Final[tuple[Callable[[Examined], Check], ...]] = (
    services_run,
    webhook,
    certificate,
    extender,
    nodes_scored,
    leader,
    drift,
    plugins,
    drivers,
    devices,
    cdi,
    allocations,
    locks,
    enforcement,
    device_configs,
    versions,
    clocks,
)
"""In the order of a Pod's way."""


def checks(examined: Examined) -> Iterator[Check]:
    """Yield every check."""
    for check in CHECKS:
        yield check(examined)
