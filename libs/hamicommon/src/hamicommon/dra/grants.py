"""
What a ResourceClaim was given on a Node, as it was prepared there, and its record on disk.

The device plugin keeps a record for each claim, as JSON: what it must know when the claim is gone, and what the monitor
of the same Node reads.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from hamicommon.errors import HamiError
from hamicommon.model import ContainerShares, MigAllocation, MigPlacement, Share
from hamicommon.pod.amounts import Amounts
from hamicommon.pod.claims import ClaimUse

CLAIMS: Final = "claims"
"""The folder below `<hook path>/vgpu` with the directories of prepared requests of claims: `<claim UID>_<request>`."""
RECORDS: Final = ".records"
"""The folder of the records in it. The leading dot tells that it is no request's directory."""
VERSION: Final = 1


Requests = Mapping[tuple[str, str], Sequence[str]]
"""The requests with devices of this driver, by namespace and name of a claim."""


class RecordError(HamiError):
    """A record is not of the form that the device plugin writes."""


@dataclass(frozen=True, slots=True)
class GrantedResult:
    """One result of a claim's allocation, as it was prepared."""

    request: str
    """As containers name it."""
    pool: str
    device: str
    """The name in its slice."""
    share_id: str
    """Empty if the device is not shared."""
    share: Share
    replicas: int
    """How many of its device's shares it counts as; 0 for a MIG instance."""
    instance: MigAllocation | None = None
    """The MIG instance that it is, with its identity once it exists; None for a share."""

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What tells it from every other result, also of later allocations of the same claim."""
        return self.request, self.pool, self.device, self.share_id

    @property
    def amounts(self) -> Amounts:
        """What it takes of its device."""
        return Amounts(self.replicas, self.share.memory_mib, self.share.core_percent)


@dataclass(frozen=True, slots=True)
class ClaimGrant:
    """What one claim was given of this Node's devices."""

    namespace: str
    name: str
    uid: str
    results: tuple[GrantedResult, ...]

    def __str__(self) -> str:
        """Return the name that messages use."""
        return f"ResourceClaim {self.namespace}/{self.name}"

    @property
    def requests(self) -> tuple[str, ...]:
        """The requests that containers may name."""
        return tuple(dict.fromkeys(result.request for result in self.results))

    @property
    def has_instances(self) -> bool:
        """Whether a result is a MIG instance."""
        return any(result.instance is not None for result in self.results)

    def instances(self, request: str) -> tuple[str, ...]:
        """Return the UUIDs of the MIG instances of *request*; empty if it has shares."""
        found = (result.instance for result in self.results if result.request == request)
        return tuple(instance.mig_uuid for instance in found if instance is not None and instance.mig_uuid is not None)

    def shares(self, request: str) -> ContainerShares:
        """Return the shares of a container that uses *request*."""
        return tuple(result.share for result in self.results if result.request == request)

    def is_same(self, other: "ClaimGrant") -> bool:
        """Return whether *other* is of the same allocation, whatever the devices had when each was made."""
        return [result.key for result in self.results] == [result.key for result in other.results]


def encode_record(grant: ClaimGrant) -> bytes:
    """Return the contents of the record of *grant*."""
    results = [
        {
            "request": result.request,
            "pool": result.pool,
            "device": result.device,
            "shareID": result.share_id,
            "uuid": result.share.uuid,
            "memoryMiB": result.share.memory_mib,
            "corePercent": result.share.core_percent,
            "replicas": result.replicas,
            **({} if result.instance is None else {"instance": _instance(result.instance)}),
        }
        for result in grant.results
    ]
    found = {"version": VERSION, "namespace": grant.namespace, "name": grant.name, "uid": grant.uid, "results": results}
    return orjson.dumps(found, option=orjson.OPT_INDENT_2)


def decode_record(content: bytes) -> ClaimGrant:
    """
    Return the grant in *content*.

    Raises:
        RecordError: it has another form.
    """
    try:
        root = orjson.loads(content)
        if root["version"] != VERSION:
            raise RecordError(f"version is {root['version']!r}, not {VERSION}")
        results = tuple(_result(one) for one in root["results"])
        return ClaimGrant(str(root["namespace"]), str(root["name"]), str(root["uid"]), results)
    except (KeyError, TypeError, ValueError) as error:
        raise RecordError(f"{type(error).__name__}: {error}") from error


def _result(item: Any) -> GrantedResult:
    share = Share(str(item["uuid"]), "", int(item["memoryMiB"]), int(item["corePercent"]))
    names = (str(item["request"]), str(item["pool"]), str(item["device"]), str(item["shareID"]))
    found = item.get("instance")
    instance = None if found is None else _decoded_instance(share.uuid, found)
    return GrantedResult(*names, share, int(item["replicas"]), instance)


def _instance(instance: MigAllocation) -> dict[str, Any]:
    return {
        "profile": instance.profile,
        "placement": {"start": instance.placement.start, "size": instance.placement.size},
        "migUUID": instance.mig_uuid,
        "gpuInstanceID": instance.gpu_instance_id,
        "computeInstanceID": instance.compute_instance_id,
    }


def _decoded_instance(gpu_uuid: str, item: Any) -> MigAllocation:
    placement = MigPlacement(int(item["placement"]["start"]), int(item["placement"]["size"]))
    uuid, numbers = item["migUUID"], (item["gpuInstanceID"], item["computeInstanceID"])
    gpu_instance_id, compute_instance_id = (None if number is None else int(number) for number in numbers)
    mig_uuid = None if uuid is None else str(uuid)
    profile = str(item["profile"])
    return MigAllocation(0, 0, gpu_uuid, profile, placement, mig_uuid, gpu_instance_id, compute_instance_id)


def requests_of(grants: Iterable[ClaimGrant]) -> Requests:
    """Return the requests of *grants*."""
    return {(grant.namespace, grant.name): grant.requests for grant in grants}


def used_requests(namespace: str, uses: Iterable[ClaimUse], requests: Requests) -> list[tuple[str, str]]:
    """Return claim and request of each grant that a container in *namespace* with these *uses* has."""
    return list(dict.fromkeys(found for use in uses for found in _requests(namespace, use, requests)))


def _requests(namespace: str, use: ClaimUse, requests: Requests) -> Iterator[tuple[str, str]]:
    for request in requests.get((namespace, use.claim), ()):
        if use.request in ("", request):
            yield use.claim, request
