"""
The amounts of devices that are in an annotation of a Pod instead of in the limits of its containers.

A Node with ResourceClaims takes a Pod by the one resource that a DeviceClass maps, the count of devices, if it lists
every other resource that the Pod asks for. It lists none. So the webhook leaves the count where it is, and moves the
rest. The annotation is a JSON object: the names of containers, and what was moved out of the limits of each.
Source: https://github.com/kubernetes/kubernetes/blob/v1.37.2/pkg/scheduler/framework/plugins/dynamicresources/extendeddynamicresources.go
(`filterExtendedResources`)
"""

from collections.abc import Mapping
from typing import Any

import orjson

from hamicommon.wire import keys
from hamicommon.wire.errors import DecodeError, quote

Moved = Mapping[str, Mapping[str, str | int]]
"""Resource and quantity, by the container's name."""


def encode_moved(moved: Moved) -> str:
    """
    Return the annotation.

    >>> encode_moved({"main": {"nvidia.com/gpumem": "3000"}})
    '{"main":{"nvidia.com/gpumem":"3000"}}'
    """
    return orjson.dumps(moved, option=orjson.OPT_SORT_KEYS).decode()


def decode_moved(text: str) -> Moved:
    """
    Read the annotation.

    Raises:
        DecodeError: it is not an object of objects of quantities.
    """
    try:
        found = orjson.loads(text)
    except ValueError as error:
        raise DecodeError(keys.DEVICE_AMOUNTS, f"{quote(text)} is not JSON") from error
    if not isinstance(found, dict):
        raise DecodeError(keys.DEVICE_AMOUNTS, f"{quote(text)} is not an object")
    for container, amounts in found.items():
        place = f"{keys.DEVICE_AMOUNTS}: container {quote(container)}"
        if not isinstance(amounts, dict):
            raise DecodeError(place, f"{quote(str(amounts))} is not an object")
        for name, amount in amounts.items():
            if isinstance(amount, bool) or not isinstance(amount, str | int):
                raise DecodeError(f"{place}, {quote(name)}", f"{quote(str(amount))} is not a quantity")
    return found


def moved_out(annotations: Mapping[str, str]) -> Moved:
    """
    Return what was moved into *annotations*, nothing if that cannot be read.

    The container then asks for a whole device, which is never less than its author is entitled to. The webhook rejects
    such Pods.
    """
    text = annotations.get(keys.DEVICE_AMOUNTS)
    if text is None:
        return {}
    try:
        return decode_moved(text)
    except DecodeError:
        return {}


def with_moved(resources: Mapping[str, Any], amounts: Mapping[str, str | int] | None) -> Mapping[str, Any]:
    """
    Return a container's *resources* with *amounts* in its limits; what a limit says itself counts.

    >>> with_moved({"limits": {"nvidia.com/gpu": "1"}}, {"nvidia.com/gpumem": "3000"})
    {'limits': {'nvidia.com/gpumem': '3000', 'nvidia.com/gpu': '1'}}
    """
    limits = resources.get("limits")
    return {**resources, "limits": {**amounts, **limits}} if amounts and limits else resources
