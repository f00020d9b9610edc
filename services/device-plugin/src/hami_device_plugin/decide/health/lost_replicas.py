"""
Decide which replicas are unhealthy while a device is.

A replica is a token: the device that its Pod was granted may be another than its ID names. The kubelet must have as
many free tokens as healthy devices have places, so the tokens of the failed device's Pods are withdrawn, and those of
other Pods stay, whatever their IDs say.
Neighbours: `ids` lists the replicas, `service` sends them.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from hami_device_plugin.decide.allocate.owner import Allocated
from hami_device_plugin.decide.allocate.pods import AllocationError, granted_shares
from hami_device_plugin.decide.replicas.ids import Replica
from hamicommon.pod.reading import Pod
from hamicommon.vendors.description import Vendor


def with_lost(listed: Sequence[Replica], lost: Collection[str], owned: Mapping[str, str | None]) -> tuple[Replica, ...]:
    """
    Return *listed* with as many unhealthy replicas as the devices *lost* have, chosen by whose they are.

    *owned* maps replicas in use to the device that their container was granted, None for the one in the ID. Unhealthy
    are those owned on a lost device, then free ones, the lost devices' own first.

    >>> listed = [Replica("A-0", True), Replica("A-1", True), Replica("B-0", False), Replica("B-1", False)]
    >>> [one.id for one in with_lost(listed, {"B"}, {"A-0": "B", "B-1": "A"}) if not one.is_healthy]
    ['A-0', 'B-0']
    """
    count = sum(not replica.is_healthy for replica in listed)
    taken = [replica.id for replica in listed if replica.id in owned and _is_lost(replica, lost, owned[replica.id])]
    free = sorted((replica for replica in listed if replica.id not in owned), key=lambda replica: replica.is_healthy)
    unhealthy = {*taken, *(replica.id for replica in free[: max(0, count - len(taken))])}
    return tuple(replace(replica, is_healthy=replica.id not in unhealthy) for replica in listed)


def _is_lost(replica: Replica, lost: Collection[str], device: str | None) -> bool:
    return not replica.is_healthy if device is None else device in lost


def owned_devices(
    entries: Iterable[Allocated], pods: Mapping[str, Pod], node: str, vendor: Vendor
) -> dict[str, str | None]:
    """
    Return per replica that a container has by *entries* the device that the container was granted on *node*.

    It is None without a readable grant. Of containers that have the same replica, app containers come last in a Pod
    and count.
    """
    owned: dict[str, str | None] = {}
    by_place = sorted(entries, key=lambda entry: _place(pods.get(entry.pod_uid), entry.container))
    for entry in by_place:
        pod = pods.get(entry.pod_uid)
        try:
            shares = granted_shares(pod, node, vendor).get(entry.container, ()) if pod else ()
        except AllocationError:
            shares = ()
        replicas = sorted(entry.replicas)
        granted = [share.uuid for share in shares] if len(shares) == len(replicas) else [None] * len(replicas)
        owned |= dict(zip(replicas, granted, strict=True))
    return owned


def _place(pod: Pod | None, container: str) -> int:
    names = [found.name for found in pod.containers] if pod else []
    return names.index(container) if container in names else -1
