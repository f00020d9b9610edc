"""
The admission rules of one vendor: data, and at most one function.

Neighbours: `vendors` has the rules of each vendor, `admission` applies them.
Source: https://github.com/Project-HAMi/HAMi/tree/v2.10.0/pkg/device (MutateAdmission of each package)
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from hami_webhook.decide.amounts import Bound, bounds_of, whole
from hami_webhook.decide.pod import Container, Pod
from hamicommon.vendors.description import Vendor

Variable = tuple[str, str]
"""Name and value."""


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of one vendor, or of one chip if a vendor has several."""

    vendor: Vendor
    asks: tuple[str, ...]
    """A limit on one of these requests a device; the first counts devices."""
    bounds: tuple[Bound, ...] = ()
    complete: Callable[[Container, Pod], bool] | None = None
    """Fills in what the container leaves open, and returns whether it requests a device."""
    runtime_class: str = ""
    """RuntimeClass of Pods that request the vendor's devices and name none."""
    hidden: Variable | None = None
    """The variable that hides the vendor's devices from a container."""
    is_hiding: bool = False
    """Whether containers that request none of the vendor's devices get `hidden`."""
    of_the_plugin: tuple[str, ...] = ()
    """Variables that only the device plugin sets in containers that request the vendor's devices."""
    everywhere: tuple[Variable, ...] = ()
    """The variables of every container, in a Pod that requests any vendor's device."""
    core_percent_most: int = 0
    """A request for more cores counts as this many; 0: it does not."""

    def admit(self, container: Container, pod: Pod) -> bool:
        """
        Check and complete *container*, which names a resource of the vendor; return whether it requests a device.

        Raises:
            AmountError: it requests an amount that no device has.
        """
        for bound in self.bounds:
            bound.check(container)
        asked = self.complete(container, pod) if self.complete else any(name in container.limits for name in self.asks)
        if asked and self.runtime_class and pod.runtime_class_name is None:
            pod.set_runtime_class_name(self.runtime_class)
        return asked

    def warnings(self, container: Container) -> Iterator[str]:
        """Yield a sentence for each amount in *container* that does not have the effect that it seems to have."""
        if not container.names_any(self.vendor.resource_names):
            return
        if self.asks and not container.names_any(self.asks):
            count = self.asks[0]
            named = next(name for name in self.vendor.resource_names if container.names_any((name,)))
            yield f"container {container.name}: {named} gives no device without {count}; add {count}: 1"
        core = self.vendor.core_resource_name
        cores = whole(container, core) if self.core_percent_most else None
        if cores is not None and cores > self.core_percent_most:
            yield f"container {container.name}: {core}: {cores} counts as {self.core_percent_most}, a whole device"


def counted(vendor: Vendor) -> Rules:
    """Return rules that count devices and change nothing."""
    return Rules(vendor, vendor.resource_names[:1], bounds_of(vendor))
