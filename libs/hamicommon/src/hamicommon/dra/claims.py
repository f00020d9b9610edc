"""
Read what a ResourceClaim was given of this driver's devices.

A result without consumed amounts is of a whole device: a server that does not know shared devices leaves them out.
Source: https://github.com/kubernetes/api/blob/v0.37.2/resource/v1/types.go (DeviceRequestAllocationResult)
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from hamicommon.dra.fields import (
    find_entry,
    list_field,
    memory_mib,
    object_entry,
    object_field,
    text_field,
    whole_amount,
)
from hamicommon.dra.names import CORES, DRIVER, REPLICAS, base_request
from hamicommon.dra.tokens import is_token
from hamicommon.model import Device, Share
from hamicommon.pod.amounts import Amounts
from hamicommon.wire.errors import DecodeError

_Found = TypeVar("_Found")


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
    """Those of this driver, in the order of the allocation, without tokens."""
    tokens: tuple[Result, ...] = ()
    """The tokens, in the same order. What they take of devices, the Pod says."""
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
    claim, problems = read_claim(item)
    for problem in problems:
        raise problem
    return claim


def read_claim(item: Mapping[str, Any]) -> tuple[Claim, tuple[DecodeError, ...]]:
    """
    Read what can be read of *item*, a ResourceClaim of the API, and say what cannot.

    A result that cannot be read is left out; the others of its claim stay.

    Raises:
        DecodeError: the claim has no namespace, name or UID.
    """
    metadata = object_field(item, "metadata", "ResourceClaim")
    namespace, name = text_field(metadata, "namespace", "metadata"), text_field(metadata, "name", "metadata")
    where = f"ResourceClaim {namespace}/{name}"
    problems: list[DecodeError] = []
    status = _optional(item, "status", "", problems)
    allocation = _optional(status, "allocation", "status", problems)
    devices = _optional(allocation, "devices", "status.allocation", problems)
    place = "status.allocation.devices"
    configs = _each(devices, "config", place, _has_parameters, problems)
    results = [found for found in _each(devices, "results", place, _result, problems) if found]
    claim = Claim(
        namespace=namespace,
        name=name,
        uid=text_field(metadata, "uid", f"{where}, metadata"),
        pod_uids=tuple(uid for uid in _each(status, "reservedFor", "status", _pod_uid, problems) if uid),
        is_allocated=bool(status.get("allocation")),
        results=tuple(found for found in results if not is_token(found.device)),
        tokens=tuple(found for found in results if is_token(found.device)),
        has_parameters=any(configs),
    )
    return claim, tuple(problem.within(where) for problem in problems)


def read_claims(items: Iterable[Mapping[str, Any]]) -> tuple[tuple[Claim, ...], tuple[DecodeError, ...]]:
    """Read what can be read of many ResourceClaims; a claim without namespace, name or UID is left out."""
    claims: list[Claim] = []
    problems: list[DecodeError] = []
    for item in items:
        try:
            claim, wrong = read_claim(item)
        except DecodeError as error:
            problems.append(error)
        else:
            claims.append(claim)
            problems.extend(wrong)
    return tuple(claims), tuple(problems)


def _optional(item: Mapping[str, Any], field: str, place: str, problems: list[DecodeError]) -> Mapping[str, Any]:
    """Return an object that may be missing, empty if it has another form."""
    try:
        return object_field(item, field, place, is_optional=True)
    except DecodeError as error:
        problems.append(error)
        return {}


def _each(
    item: Mapping[str, Any],
    field: str,
    place: str,
    read: Callable[[Mapping[str, Any], str], _Found],
    problems: list[DecodeError],
) -> list[_Found]:
    """Return what *read* makes of the entries of a list, without those that it cannot read."""
    found: list[_Found] = []
    try:
        entries = list_field(item, field, place)
    except DecodeError as error:
        problems.append(error)
        return found
    for number, entry in enumerate(entries):
        where = f"{place}.{field}[{number}]"
        try:
            found.append(read(object_entry(entry, where), where))
        except DecodeError as error:
            problems.append(error)
    return found


def _pod_uid(consumer: Mapping[str, Any], place: str) -> str:
    """Return the UID of a Pod that may use the claim, empty if *consumer* is something else."""
    return text_field(consumer, "uid", place) if consumer.get("resource") == "pods" else ""


def _has_parameters(config: Mapping[str, Any], place: str) -> bool:
    return object_field(config, "opaque", place, is_optional=True).get("driver") == DRIVER


def _result(item: Mapping[str, Any], place: str) -> Result | None:
    """Return one result, None if it is another driver's."""
    if item.get("driver") != DRIVER:
        return None
    consumed = object_field(item, "consumedCapacity", place, is_optional=True)
    return Result(
        request=text_field(item, "request", place),
        pool=text_field(item, "pool", place),
        device=text_field(item, "device", place),
        share_id=text_field(item, "shareID", place) if item.get("shareID") else "",
        amounts=_amounts(consumed, f"{place}.consumedCapacity") if consumed else None,
        is_admin=item.get("adminAccess") is True,
    )


def _amounts(consumed: Mapping[str, Any], place: str) -> Amounts:
    replicas = whole_amount(consumed, REPLICAS, place) if find_entry(consumed, REPLICAS) is not None else 1
    return Amounts(replicas, memory_mib(consumed, place), whole_amount(consumed, CORES, place))
