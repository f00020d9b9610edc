"""
The stream of a watch as events, in any encoding.

It has the parts that all encodings share, and JSON, which every API server speaks. It does no I/O.
Neighbours: `kube` passes the bytes, `reflector` applies the events.
Source: https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes
"""

from collections.abc import Iterator
from typing import Any, Protocol

import orjson

from hamicommon.runtime.api.api_errors import KubeError, Unreachable, error_from_event

EVENT_BYTES = 32 * 1024 * 1024
"""Longest event. etcd rejects objects above 1.5 MiB, so a longer line is not an event."""
_KINDS = {"ADDED", "MODIFIED", "DELETED", "BOOKMARK"}

Event = tuple[str, dict[str, Any]]
"""A kind, never ERROR, and the object."""


class EventReader(Protocol):
    """Reads the stream of one watch, chunk by chunk."""

    def __init__(self, path: str) -> None:
        """Read a watch at *path*."""

    def feed(self, chunk: bytes) -> Iterator[Event]:
        """Yield each event that *chunk* completes. Raises: KubeError, also for an ERROR event."""

    def end(self) -> None:
        """Note that the stream has ended. Raises: Unreachable: in the middle of an event."""

    @staticmethod
    def refusal(body: bytes) -> bytes:
        """Return the body of a rejected watch, with a Status as JSON."""


class JsonLines:
    """Reads one event per line, a JSON object with `type` and `object`."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._parts: list[bytes] = []
        self._length = 0

    def feed(self, chunk: bytes) -> Iterator[Event]:
        """Yield each event that *chunk* completes."""
        first, *rest = chunk.split(b"\n")
        self._parts.append(first)
        self._length += len(first)
        for following in rest:
            line = b"".join(self._parts)
            if line.strip():
                yield _event(line, self._path)
            self._parts, self._length = [following], len(following)
        check_length(self._length, self._path)

    def end(self) -> None:
        """Note that the stream has ended."""
        if b"".join(self._parts).strip():
            raise cut_short(self._path)

    @staticmethod
    def refusal(body: bytes) -> bytes:
        """Return *body*."""
        return body


def checked(kind: object, item: object, path: str, said: bytes) -> Event:
    """
    Return *kind* and *item* as an event; *said* is their text.

    Raises:
        KubeError: they are no event, or an ERROR event.
    """
    if kind == "ERROR":
        raise error_from_event(path, item)
    if not isinstance(kind, str) or kind not in _KINDS or not isinstance(item, dict):
        raise not_an_event(path, f"a watch said {said[:80]!r}")
    return kind, item


def check_length(length: int, path: str) -> None:
    """Raise Unreachable if no event is that many bytes long."""
    if length > EVENT_BYTES:
        raise Unreachable(path, 0, "EventTooLong", f"an event of a watch passed {EVENT_BYTES} bytes")


def cut_short(path: str) -> Unreachable:
    """Return the error for a stream that ends in the middle of an event."""
    return Unreachable(path, 0, "CutShort", "the watch ended in the middle of an event")


def not_an_event(path: str, why: str) -> KubeError:
    """Return the error for bytes that are no event."""
    return KubeError(path, 0, "NotAnEvent", why)


def _event(line: bytes, path: str) -> Event:
    try:
        event = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise not_an_event(path, f"a watch line is not JSON: {error}") from error
    kind, item = (event.get("type"), event.get("object")) if isinstance(event, dict) else (None, None)
    return checked(kind, item, path, line)
