"""
Decide which containers own the replicas of a PreStartContainer call.

Compares the kubelet's checkpoint with its PodResources list. Never guesses: unless both name one Pod, the call fails
and the kubelet retries.
Neighbours: `checkpoint` and `kubelet` read the two, `identity` acts on the result.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hami_device_plugin.decide.allocate.cdi.spec import unqualified
from hamicommon.errors import HamiError


class OwnerError(HamiError):
    """The kubelet names no owner, or several."""


@dataclass(frozen=True, slots=True)
class Allocated:
    """One container's allocation of one resource in the kubelet's checkpoint."""

    pod_uid: str
    container: str
    resource: str
    replicas: frozenset[str]
    cdi_devices: tuple[str, ...] = ()
    """Qualified CDI names in the plugin's Allocate answer."""
    host_paths: frozenset[str] = frozenset()
    """Host path of every mount in that answer."""

    @property
    def device(self) -> str | None:
        """The CDI device by which it was allocated; None if that was not by identity."""
        return next((device for device in map(unqualified, self.cdi_devices) if device), None)


@dataclass(frozen=True, slots=True)
class Listed:
    """One container's replicas in the PodResources API, which leaves out ordinary init containers."""

    namespace: str
    pod: str
    container: str
    replicas: frozenset[str]


def owner(replicas: frozenset[str], resource: str, entries: Iterable[Allocated]) -> Sequence[Allocated]:
    """
    Return the containers of the one Pod that own exactly *replicas* of *resource*.

    There are several if the kubelet reused an init container's replicas. Such containers never run at the same time,
    and each has its own device name, so all are prepared without asking which one starts.

    Raises:
        OwnerError: there is none, or several Pods.
    """
    owning = [entry for entry in entries if entry.resource == resource and entry.replicas == replicas]
    uids = sorted({entry.pod_uid for entry in owning})
    if not uids:
        raise OwnerError(f"no container in the kubelet's checkpoint holds exactly {named(replicas)} of {resource}")
    if len(uids) > 1:
        raise OwnerError(f"the kubelet's checkpoint says that Pods {', '.join(uids)} all hold {named(replicas)}")
    return owning


def contradiction(replicas: frozenset[str], namespace: str, pod: str, listed: Sequence[Listed]) -> str | None:
    """Return where the kubelet's list gives *replicas* to another Pod than *namespace*/*pod*; None if nowhere."""
    for found in listed:
        if found.replicas & replicas and (found.namespace, found.pod) != (namespace, pod):
            return (
                f"the kubelet lists {named(found.replicas & replicas)} for {found.namespace}/{found.pod}, "
                f"its checkpoint for {namespace}/{pod}"
            )
    return None


def named(replicas: Iterable[str]) -> str:
    """Return *replicas* as messages name them."""
    return ", ".join(sorted(replicas))
