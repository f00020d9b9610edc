"""
Decide whose granted replicas a PreStartContainer call is about.

Pure: compares what the kubelet wrote down with what it lists. Never guesses: anything short of one Pod is an error, and
the kubelet asks again.
Neighbours: `checkpoint` and `kubelet` bring the kubelet's two answers, `identity` acts on the verdict.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hami_device_plugin.decide.cdi import unqualified
from hamicommon.errors import HamiError


class OwnerError(HamiError):
    """The kubelet's answers name no owner, or more than one."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What the kubelet's checkpoint says of one container's allocation of one resource."""

    pod_uid: str
    container: str
    resource: str
    replicas: frozenset[str]
    cdi_devices: tuple[str, ...] = ()
    """Qualified CDI names in the plugin's answer."""
    host_paths: frozenset[str] = frozenset()
    """Host side of every mount in the plugin's answer."""


@dataclass(frozen=True, slots=True)
class Listed:
    """One container's replicas in the PodResources API, which leaves out ordinary init containers."""

    namespace: str
    pod: str
    container: str
    replicas: frozenset[str]


@dataclass(frozen=True, slots=True)
class Owner:
    """The containers of one Pod that were granted the same replicas."""

    pod_uid: str
    devices: tuple[tuple[str, str | None], ...]
    """
    Container and its CDI device, None where another way of allocating answered for it.

    More than one where the kubelet hands an init container's replicas on. They never run at the same time, and each
    has a device name of its own, so all may be prepared without asking which one is about to start.
    """


def owner(replicas: frozenset[str], resource: str, entries: Iterable[Entry]) -> Owner:
    """
    Return who holds exactly *replicas* of *resource*.

    Raises:
        OwnerError: nobody does, or several Pods.
    """
    holders = [entry for entry in entries if entry.resource == resource and entry.replicas == replicas]
    uids = sorted({entry.pod_uid for entry in holders})
    if not uids:
        raise OwnerError(f"no container in the kubelet's checkpoint holds exactly {named(replicas)} of {resource}")
    if len(uids) > 1:
        raise OwnerError(f"the kubelet's checkpoint says that Pods {', '.join(uids)} all hold {named(replicas)}")
    return Owner(uids[0], tuple((entry.container, _device(entry)) for entry in holders))


def contradiction(replicas: frozenset[str], namespace: str, pod: str, listed: Sequence[Listed]) -> str | None:
    """
    Return what in the kubelet's list speaks against *namespace*/*pod* holding *replicas*; None where nothing does.
    """
    for found in listed:
        if found.replicas & replicas and (found.namespace, found.pod) != (namespace, pod):
            return (
                f"the kubelet lists {named(found.replicas & replicas)} for {found.namespace}/{found.pod}, "
                f"its checkpoint for {namespace}/{pod}"
            )
    return None


def named(replicas: Iterable[str]) -> str:
    """
    Return *replicas* as messages name them.
    """
    return ", ".join(sorted(replicas))


def _device(entry: Entry) -> str | None:
    return next((device for device in map(unqualified, entry.cdi_devices) if device), None)
