"""
Decide which resource names a Node has to list so that kube-scheduler considers it for a share.

Since Kubernetes 1.36, if a DeviceClass maps a resource of a Pod, the Pod fits only Nodes that list each of its other
extended resources. A device plugin lists only the count of its devices. So once `nvidia.com/gpu` is mapped, a Pod with
`nvidia.com/gpumem` would fit no Node. The value does not matter to kube-scheduler, which leaves these amounts to us.
But a kubelet counts what its Node lists when it admits a Pod. So the value is larger than any sum of requests.
Source: https://github.com/kubernetes/kubernetes/blob/v1.37.2/pkg/scheduler/framework/plugins/dynamicresources/extendeddynamicresources.go
(`filterExtendedResources`) and pkg/kubelet/lifecycle/predicate.go (`removeMissingExtendedResources`).
"""

from collections.abc import Iterable, Mapping, Set

from hamicommon.vendors.description import Vendor

PLENTY = "1G"
"""The value of a listed name. The Node does not have that much of anything."""


def changes(vendors: Iterable[Vendor], mapped: Set[str], allocatable: Mapping[str, str]) -> dict[str, str | None]:
    """
    Return what to write into the capacity of a Node with *allocatable*; None removes a name that we listed.

    *mapped* are the resource names of the cluster's DeviceClasses. A kubelet that was reset lists names with 0.

    >>> gpu = Vendor("NVIDIA", ("nvidia.com/gpu", "nvidia.com/gpumem"), "", "")
    >>> changes([gpu], {"nvidia.com/gpu"}, {"nvidia.com/gpu": "10"})
    {'nvidia.com/gpumem': '1G'}
    >>> changes([gpu], set(), {"nvidia.com/gpu": "10", "nvidia.com/gpumem": "1G"})
    {'nvidia.com/gpumem': None}
    """
    wanted: dict[str, str | None] = {}
    for vendor in vendors:
        count, *amounts = vendor.resource_names or ("",)
        is_needed = count in allocatable and not mapped.isdisjoint(vendor.resource_names)
        for name in amounts:
            present = allocatable.get(name, "0")
            if is_needed and name not in mapped and present == "0":
                wanted[name] = PLENTY
            elif not is_needed and present == PLENTY:
                wanted[name] = None
    return wanted
