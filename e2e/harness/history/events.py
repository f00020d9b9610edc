"""
The events of a history, and the file they are written to.

A file has one JSON object a line:

    {"change":"CONFIG","kind":"DeviceConfig","version":0,"at":1767225600.0,"object":{"text":"nvidia: …"}}
    {"change":"LISTED","kind":"Node","version":7,"at":1767225600.1,"object":{…}}
    {"change":"MODIFIED","kind":"Pod","version":9,"at":1767225600.4,"object":{…}}

| field | meaning |
|---|---|
| `change` | `ADDED`, `MODIFIED`, `DELETED` as in a watch; the other values are those of `Change` |
| `kind` | one of KINDS; `Container` for SEEN, `DeviceConfig` for CONFIG |
| `version` | the resourceVersion of the change. The API server counts all kinds together, so it orders the lines |
| `at` | Unix seconds at which the recorder got it |
| `object` | the object after the change, without `managedFields`; of a deleted one its last state |

The object of a CONFIG is `{"text": …}`, a device config. That of a SEEN is `{"uid": …, "container": …, "environment":
{…}, "limits": …}`: the Pod, the container, those of its variables that a device plugin writes, and the text of its
limits file, null if it has none. A GAP has `{"after": …}`, the last version of its kind before it.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import orjson


class Change(StrEnum):
    """What happened to the object of an event."""

    LISTED = "LISTED"
    """It was there when the recorder started, or after a gap."""
    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    GAP = "GAP"
    """Versions of this kind are missing. The LISTED and DELETED events that follow are the differences."""
    SEEN = "SEEN"
    """A running container was looked at."""
    CONFIG = "CONFIG"
    """The device config of the services from here on."""


POD, NODE, QUOTA, CONTAINER, DEVICE_CONFIG = "Pod", "Node", "ResourceQuota", "Container", "DeviceConfig"
SLICE, CLAIM = "ResourceSlice", "ResourceClaim"
KINDS = (NODE, SLICE, QUOTA, CLAIM, POD)
"""The recorded kinds, in the order in which a state is read."""
CORE_KINDS = (NODE, QUOTA, POD)
"""Those of a cluster without ResourceClaims."""


@dataclass(frozen=True, slots=True)
class Event:
    """One line of a history."""

    change: Change
    kind: str
    version: int
    at: float
    """Unix seconds."""
    object: Mapping[str, Any]


def encode_event(event: Event) -> bytes:
    """Return the line of *event*, with its newline."""
    fields = {"change": event.change, "kind": event.kind, "version": event.version, "at": event.at}
    return orjson.dumps({**fields, "object": event.object}, option=orjson.OPT_APPEND_NEWLINE)


def decode_event(line: bytes) -> Event:
    """
    Return the event in *line*.

    Raises: ValueError for a line of another form.
    """
    try:
        found = orjson.loads(line)
        return Event(Change(found["change"]), found["kind"], found["version"], found["at"], found["object"])
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{line[:80]!r} is no event of a history: {error!r}") from error


def decode_events(lines: Iterable[bytes]) -> Iterator[Event]:
    """
    Yield the events of a file. The end of a line that was cut off by a crash is left out.

    Raises: ValueError for a line of another form.
    """
    return (decode_event(line) for line in lines if line.endswith(b"\n"))


def state_order(event: Event) -> tuple[int, bool]:
    """Return the sort key of LISTED events: Pods last, and of these first the ones that hold nothing any more."""
    phase = (event.object.get("status") or {}).get("phase")
    return KINDS.index(event.kind), event.kind == POD and phase not in {"Succeeded", "Failed"}
