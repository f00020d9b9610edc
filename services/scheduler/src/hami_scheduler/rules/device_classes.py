"""
Decide which DeviceClass maps a resource, as kube-scheduler does.

Source: https://github.com/kubernetes/dynamic-resource-allocation/blob/v0.37.2/deviceclass/extendedresourcecache/extendedresourcecache.go
"""

from collections.abc import Iterable, Mapping
from typing import Any


def mapped_resource(item: Mapping[str, Any]) -> str:
    """Return the extended resource that *item*, a DeviceClass, maps; empty if it maps none."""
    return str((item.get("spec") or {}).get("extendedResourceName") or "")


def mapping_classes(classes: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """
    Return the name of the DeviceClass that maps each resource: the newest; of equally old ones the first by name.

    >>> def a_class(name, time):
    ...     return {"metadata": {"name": name, "creationTimestamp": time}, "spec": {"extendedResourceName": "x/gpu"}}
    >>> mapping_classes([a_class("b", "2026-11-28T12:00:00Z"), a_class("a", "2026-11-28T11:00:00Z")])
    {'x/gpu': 'b'}
    """
    by_name = sorted(classes, key=_name)
    newest_first = sorted(by_name, key=lambda item: item["metadata"].get("creationTimestamp") or "", reverse=True)
    found: dict[str, str] = {}
    for item in newest_first:
        if resource := mapped_resource(item):
            found.setdefault(resource, _name(item))
    return found


def _name(item: Mapping[str, Any]) -> str:
    return str(item["metadata"]["name"])
