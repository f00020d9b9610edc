"""
What each namespace holds and may hold.

A quota counts as the scheduler counts it: the most that the containers of a Pod take at one time, of one vendor. What
a ResourceClaim gives is in no quota of amounts.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable

from hamicommon.config.device_config import DeviceConfig
from hamicommon.model import Object
from hamicommon.vendors.description import limit_readers
from hamicommon.wire.resource_quota import hard_limits, strictest
from kubectl_hami.answer.shares import PodAllocation, name_of
from kubectl_hami.values.cluster import Namespace, Quota


def namespaces_of(
    allocations: Iterable[PodAllocation], quotas: Iterable[Object], config: DeviceConfig
) -> tuple[Namespace, ...]:
    """Return the namespaces of *allocations*, and those that *quotas* limit on a resource of *config*, by name."""
    vendors = {vendor.key: vendor for vendor in config.vendors()}
    readers = limit_readers(vendors.values())
    limits: defaultdict[str, list[dict[str, int]]] = defaultdict(list)
    for quota in quotas:
        if found := hard_limits(quota, readers):
            limits[name_of(quota)[0]].append(found)
    pods: defaultdict[str, set[str]] = defaultdict(set)
    held = Counter[tuple[str, str]]()
    for one in allocations:
        namespace = one.namespace
        pods[namespace].update(share.pod for _, _, share in one.shares)
        for uuid, key in {uuid: key for uuid, key, share in one.shares if not share.claim}.items():
            vendor, taken = vendors.get(key), one.amounts[uuid]
            if vendor is not None:
                held[namespace, vendor.memory_resource_name] += taken.memory_mib
                held[namespace, vendor.core_resource_name] += taken.core_percent
    return tuple(
        Namespace(
            name,
            len(pods[name]),
            tuple(Quota(resource, limit, held[name, resource]) for resource, limit in sorted(strictest(found).items())),
        )
        for name, found in sorted({**dict.fromkeys(pods, ()), **limits}.items())
    )
