"""
The checks of `doctor`: the whole path from a Pod that is created to a container that has its share.

`control` has what the cluster has once, `nodes` what each Node has, `agreement` what must be the same everywhere.
`readings` reads single numbers of the services. Each check is a function of everything that was read, and says what it
found with the mend. A check that could not be made is unknown, never good.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from kubectl_hami.answer.doctor import agreement, claims, control, nodes
from kubectl_hami.answer.doctor.readings import Answer
from kubectl_hami.values.diagnosis import Check, Examined

CHECKS: Final[Mapping[str, Callable[[Examined], Answer]]] = {
    "services": control.services_run,
    "webhook": control.webhook,
    "certificate": control.certificate,
    "extender": control.extender,
    "percentageOfNodesToScore": control.nodes_scored,
    "leader": control.leader,
    "drift": control.drift,
    "nodes": nodes.plugins,
    "inventories": nodes.inventories,
    "claims": claims.claims,
    "driver": nodes.drivers,
    "devices": nodes.devices,
    "cdi": nodes.cdi,
    "allocations": nodes.allocations,
    "locks": nodes.locks,
    "enforcement": nodes.enforcement,
    "device config": agreement.device_configs,
    "versions": agreement.versions,
    "clocks": agreement.clocks,
}
"""By name, in the order of a Pod's way."""


def checks(examined: Examined) -> Iterator[Check]:
    """Yield every check."""
    for name, check in CHECKS.items():
        health, found, fix = check(examined)
        yield Check(name, health.value, found, fix)
