"""
The journal: which MIG instances this plugin creates, has and destroys, and for which Pod or ResourceClaim.

It is written before the driver is asked, so a process that ends at any instruction leaves the intention. Instances do
not survive a reboot, so a journal names its boot, and one of an earlier boot says nothing.
Neighbours: `mig_journal` keeps the file, `repair` compares it with the driver.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from hamicommon.errors import HamiError
from hamicommon.model import MigAllocation, MigPlacement

VERSION = 1
_POD, _CLAIM = "pod", "claim"
"""The fields of an owner. A plugin that knows no claims cannot read such a journal, and leaves its instances alone."""


class JournalError(HamiError):
    """A journal cannot be read."""


class State(Enum):
    """How far one instance is."""

    CREATING = "creating"
    """The driver is asked to create it; no owner and no CDI spec names it."""
    LIVE = "live"
    DESTROYING = "destroying"
    """The driver is asked to destroy it."""


@dataclass(frozen=True, slots=True)
class Owner:
    """The Pod or the ResourceClaim that an instance belongs to."""

    uid: str
    namespace: str
    name: str
    is_claim: bool = False
    """Whether it is a ResourceClaim."""

    def __str__(self) -> str:
        """Return the name that messages use."""
        return f"{'ResourceClaim' if self.is_claim else 'Pod'} {self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Entry:
    """One instance."""

    gpu_uuid: str
    profile: str
    """Its name on the wire."""
    placement: MigPlacement
    owner: Owner
    state: State
    before: tuple[int, ...] = ()
    """IDs of the GPU instances that existed when this one was about to be created."""
    gpu_instance_id: int | None = None
    compute_instance_id: int | None = None
    mig_uuid: str | None = None

    @property
    def key(self) -> tuple[str, int, int]:
        """What no two entries share: GPU and placement."""
        return self.gpu_uuid, self.placement.start, self.placement.size

    def named(self, allocation: MigAllocation) -> MigAllocation:
        """Return *allocation*, which this instance realizes, with its identity."""
        return replace(
            allocation,
            mig_uuid=self.mig_uuid,
            gpu_instance_id=self.gpu_instance_id,
            compute_instance_id=self.compute_instance_id,
        )


Journal = tuple[Entry, ...]


def with_entry(journal: Journal, entry: Entry) -> Journal:
    """Return *journal* with *entry* in place of the entry of the same key."""
    return (*without(journal, entry), entry)


def without(journal: Journal, entry: Entry) -> Journal:
    """Return *journal* without the entry of the key of *entry*."""
    return tuple(found for found in journal if found.key != entry.key)


def encode_journal(journal: Iterable[Entry], boot: str) -> dict[str, Any]:
    """Return the JSON value of *journal*, written during *boot*."""
    return {"version": VERSION, "boot": boot, "instances": [_written(entry) for entry in journal]}


def decode_journal(value: Any, boot: str) -> Journal:
    """
    Return the journal in *value*; empty if it was written during another boot than *boot*.

    Raises:
        JournalError: *value* is not a journal of this version.
    """
    if not isinstance(value, dict) or value.get("version") != VERSION:
        raise JournalError(f"is not a journal of version {VERSION}")
    if value.get("boot") != boot:
        return ()
    try:
        return tuple(_read(row) for row in value["instances"])
    except (KeyError, TypeError, ValueError) as error:
        raise JournalError(f"has an unknown form: {error!r}") from error


def _written(entry: Entry) -> dict[str, Any]:
    return {
        "gpuUUID": entry.gpu_uuid,
        "profile": entry.profile,
        "placement": {"start": entry.placement.start, "size": entry.placement.size},
        _CLAIM if entry.owner.is_claim else _POD: {
            "uid": entry.owner.uid,
            "namespace": entry.owner.namespace,
            "name": entry.owner.name,
        },
        "state": entry.state.value,
        "before": list(entry.before),
        "gpuInstanceID": entry.gpu_instance_id,
        "computeInstanceID": entry.compute_instance_id,
        "migUUID": entry.mig_uuid,
    }


def _read(row: Mapping[str, Any]) -> Entry:
    placement, is_claim = row["placement"], _CLAIM in row
    owner = row[_CLAIM if is_claim else _POD]
    return Entry(
        gpu_uuid=str(row["gpuUUID"]),
        profile=str(row["profile"]),
        placement=MigPlacement(int(placement["start"]), int(placement["size"])),
        owner=Owner(str(owner["uid"]), str(owner["namespace"]), str(owner["name"]), is_claim),
        state=State(row["state"]),
        before=tuple(int(number) for number in row["before"]),
        gpu_instance_id=_optional(row["gpuInstanceID"]),
        compute_instance_id=_optional(row["computeInstanceID"]),
        mig_uuid=None if row["migUUID"] is None else str(row["migUUID"]),
    )


def _optional(number: Any) -> int | None:
    return None if number is None else int(number)
