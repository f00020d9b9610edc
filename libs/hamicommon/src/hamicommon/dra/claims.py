"""
Read what a ResourceClaim was given of this driver's devices.

A result without consumed amounts is of a whole device: a server that does not know shared devices leaves them out.
Source: https://github.com/kubernetes/api/blob/v0.37.2/resource/v1/types.go (DeviceRequestAllocationResult)
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from hamicommon.dra.names import CORES, DRIVER, MEMORY, REPLICAS, base_request
from hamicommon.model import Device, Share
from hamicommon.pod.amounts import Amounts
from hamicommon.wire.errors import DecodeError, quote
from hamicommon.wire.quantity import QuantityError, parse_quantity

_MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Result:
    """One device of a claim's allocation, or a share of one."""

    request: str
    """As the claim has it: of alternatives `<request>/<alternative>`."""
    pool: str
    device: str
    """The name in its slice."""
    share_id: str = ""
    """Differs for each share; empty for a device that is not shared."""
    amounts: Amounts | None = None
    """None: the whole device."""
    is_admin: bool = False
    """Whether it is access for an administrator, which takes nothing from the device."""

    def of(self, device: Device) -> Amounts:
        """Return what it takes of *device*, which has its name."""
        return self.amounts or Amounts(device.count, device.memory_mib, device.core_percent)

    def share(self, device: Device) -> Share:
        """Return the share of *device* that containers get with it."""
        taken = self.of(device)
        return Share(device.id, device.vendor, taken.memory_mib, min(taken.core_percent, 100))


@dataclass(frozen=True, slots=True)
class Claim:
    """One ResourceClaim, as far as it concerns this driver."""

    namespace: str
    name: str
    uid: str
    pod_uids: tuple[str, ...] = ()
    """The Pods that may use it."""
    is_allocated: bool = False
    results: tuple[Result, ...] = ()
    """Those of this driver, in the order of the allocation."""
    has_parameters: bool = False
    """Whether its requests or its DeviceClasses have parameters (opaque configuration) for this driver."""

    def __str__(self) -> str:
        """Return the name that messages use."""
        return f"{self.namespace}/{self.name}"

    @property
    def requests(self) -> tuple[str, ...]:
        """The requests that containers may name, in the order of the results."""
        return tuple(dict.fromkeys(base_request(result.request) for result in self.results))


def decode_claim(item: Mapping[str, Any]) -> Claim:
    """
    Read *item*, a ResourceClaim of the API.

    Raises:
        DecodeError: a field has another form than the API defines; the place names the claim and the field.
    """
    metadata = _object(item, "metadata", "ResourceClaim")
    namespace, name = _text(metadata, "namespace", "metadata"), _text(metadata, "name", "metadata")
    try:
        return _claim(item, namespace, name, _text(metadata, "uid", "metadata"))
    except DecodeError as error:
        raise error.within(f"ResourceClaim {namespace}/{name}") from error


def _claim(item: Mapping[str, Any], namespace: str, name: str, uid: str) -> Claim:
    status = _object(item, "status", "", is_optional=True)
    allocation = _object(status, "allocation", "status", is_optional=True)
    place = "status.allocation.devices"
    devices = _object(allocation, "devices", "status.allocation", is_optional=True)
    reserved = _objects(status, "reservedFor", "status")
    return Claim(
        namespace=namespace,
        name=name,
        uid=uid,
        pod_uids=tuple(_text(one, "uid", where) for one, where in reserved if one.get("resource") == "pods"),
        is_allocated=bool(allocation),
        results=tuple(
            _result(one, where) for one, where in _objects(devices, "results", place) if one.get("driver") == DRIVER
        ),
        has_parameters=any(
            _object(one, "opaque", where, is_optional=True).get("driver") == DRIVER
            for one, where in _objects(devices, "config", place)
        ),
    )


def _result(item: Mapping[str, Any], place: str) -> Result:
    consumed = _object(item, "consumedCapacity", place, is_optional=True)
    return Result(
        request=_text(item, "request", place),
        pool=_text(item, "pool", place),
        device=_text(item, "device", place),
        share_id=_text(item, "shareID", place) if item.get("shareID") else "",
        amounts=_amounts(consumed, f"{place}.consumedCapacity") if consumed else None,
        is_admin=item.get("adminAccess") is True,
    )


def _amounts(consumed: Mapping[str, Any], place: str) -> Amounts:
    size_bytes = _amount(consumed, MEMORY, place)
    if size_bytes % _MIB:
        raise DecodeError(f"{place}.{MEMORY}", f"{size_bytes} bytes are not a whole number of MiB")
    cores = _amount(consumed, CORES, place)
    replicas = _amount(consumed, REPLICAS, place) if _find(consumed, REPLICAS) is not None else 1
    return Amounts(replicas, size_bytes // _MIB, cores)


def _amount(consumed: Mapping[str, Any], name: str, place: str) -> int:
    text = _find(consumed, name)
    try:
        amount = parse_quantity("" if text is None else text)
    except QuantityError as error:
        raise DecodeError(f"{place}.{name}", str(error)) from error
    if amount < 0 or amount.denominator != 1:
        raise DecodeError(f"{place}.{name}", f"{quote(str(text))} is not a whole number from 0 on")
    return int(amount)


def _find(consumed: Mapping[str, Any], name: str) -> Any:
    """Return the amount of the capacity *name*, which may be written with the driver's domain."""
    return consumed.get(name, consumed.get(f"{DRIVER}/{name}"))


def _text(item: Mapping[str, Any], field: str, place: str) -> str:
    value = item.get(field)
    if not isinstance(value, str) or not value:
        raise DecodeError(f"{place}.{field}", f"{quote(str(value))} is not a text")
    return value


def _object(item: Mapping[str, Any], field: str, place: str, *, is_optional: bool = False) -> Mapping[str, Any]:
    value = item.get(field)
    if value is None and is_optional:
        return {}
    if not isinstance(value, dict):
        raise DecodeError(f"{place}.{field}" if place else field, f"{quote(str(value))} is not an object")
    return value


def _objects(item: Mapping[str, Any], field: str, place: str) -> Iterable[tuple[Mapping[str, Any], str]]:
    """Return the objects of a list, which may be missing, each with its place."""
    values = item.get(field) or []
    if not isinstance(values, list):
        raise DecodeError(f"{place}.{field}", f"{quote(str(values))} is not a list")
    found = []
    for number, value in enumerate(values):
        where = f"{place}.{field}[{number}]"
        if not isinstance(value, dict):
            raise DecodeError(where, f"{quote(str(value))} is not an object")
        found.append((value, where))
    return found
