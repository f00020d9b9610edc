"""
The liveness note between scheduler and device plugin: `hami.io/node-handshake` and other vendors' keys.

| written by | text |
|---|---|
| scheduler up to 2.4 | `Requesting_2026.08.21 06:20:39`, also `Deleted_` |
| scheduler since 2.5 | `Requesting_2026-08-21 06:20:39`, also `Deleted_` up to 2.9 |
| NVIDIA plugin up to 2.7, DCU plugin | `Reported 2025-09-05 10:12:02.516 +0000 UTC m=+3391.3`, Go's time format |
| Ascend plugin | `Reported_2026.08.21 06:20:39` |

Times are local times of the writer, without zone except in Go's format.
Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/device/devices.go
"""

import re
from dataclasses import dataclass
from enum import Enum
from typing import Final

from hamicommon.model import Moment
from hamicommon.wire.errors import WHOLE_TEXT, DecodeError, EncodeError, quote
from hamicommon.wire.go.times import DASHED, DOTTED, wall_clock
from hamicommon.wire.limits import check_size
from hamicommon.wire.version import DASHED_TIME_SINCE, NEWEST, WireVersion


class HandshakeState(Enum):
    """The state in a note; the value is its word in the text."""

    REQUESTING = "Requesting"
    REPORTED = "Reported"
    DELETED = "Deleted"


class HandshakeLayout(Enum):
    """The format of the time in a note."""

    DASHED = "YYYY-MM-DD hh:mm:ss"
    DOTTED = "YYYY.MM.DD hh:mm:ss"
    GO = "Go's time format"


@dataclass(frozen=True, slots=True)
class Handshake:
    """A note: a state, and the time on the writer's clock."""

    state: HandshakeState
    time: Moment
    """The writer's local time, without offset."""
    layout: HandshakeLayout = HandshakeLayout.DASHED
    rest: str = ""
    """The rest of Go's time format: fraction, zone and monotonic clock, verbatim."""


_NOTE: Final = re.compile(
    r"(?P<state>Requesting|Reported|Deleted)(?P<mark>[_ ])(?P<time>.*)",
    re.DOTALL,
)
_GO_TEXT: Final = re.compile(
    r"(?P<clock>[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2})"
    r"(?P<rest>(?:\.[0-9]{1,9})? [+-][0-9]{4} \S{1,40}(?: m=[+-][0-9.]{1,40})?)"
)


def decode_handshake(text: str) -> Handshake:
    """
    Return the note in *text*.

    >>> note = decode_handshake("Requesting_2026-08-21 06:20:39")
    >>> note.state, str(note.time)
    (<HandshakeState.REQUESTING: 'Requesting'>, '2026-08-21T06:20:39')

    Raises: DecodeError when no version writes such a note.
    """
    check_size(text)
    found = _NOTE.fullmatch(text)
    if not found:
        raise DecodeError(WHOLE_TEXT, f"{quote(text)} is not Requesting_, Reported or Deleted_ and a time")
    state, time = HandshakeState(found["state"]), found["time"]
    if found["mark"] == " ":
        return _go_note(state, time)
    for layout, pattern in ((HandshakeLayout.DASHED, DASHED), (HandshakeLayout.DOTTED, DOTTED)):
        clock = pattern.fullmatch(time)
        if clock:
            return Handshake(state, wall_clock(clock, "time"), layout)
    raise DecodeError("time", f"{quote(time)} is not YYYY-MM-DD hh:mm:ss, with dashes or dots")


def encode_handshake(handshake: Handshake, version: WireVersion | None = None) -> str:
    """
    Return *handshake* in its own layout, or in that of the scheduler of *version*.

    >>> encode_handshake(decode_handshake("Requesting_2026-08-21 06:20:39"), WireVersion(2, 4))
    'Requesting_2026.08.21 06:20:39'

    Raises: EncodeError for a deleted note since 2.10, which removes the annotation instead.
    """
    layout = handshake.layout
    if version is not None and handshake.state is not HandshakeState.REPORTED:
        if handshake.state is HandshakeState.DELETED and version >= NEWEST:
            raise EncodeError("state", f"{version} removes the annotation instead of writing Deleted")
        layout = HandshakeLayout.DASHED if version >= DASHED_TIME_SINCE else HandshakeLayout.DOTTED
    date, _, clock = str(handshake.time).partition("T")
    if layout is HandshakeLayout.DOTTED:
        return f"{handshake.state.value}_{date.replace('-', '.')} {clock}"
    mark = " " if layout is HandshakeLayout.GO else "_"
    return f"{handshake.state.value}{mark}{date} {clock}{handshake.rest}"


def _go_note(state: HandshakeState, time: str) -> Handshake:
    """Read a note with Go's time format."""
    found = _GO_TEXT.fullmatch(time)
    clock = DASHED.fullmatch(found["clock"]) if found else None
    if found is None or clock is None:
        raise DecodeError("time", f"{quote(time)} is not a time such as 2025-09-05 10:12:02.516 +0000 UTC")
    return Handshake(state, wall_clock(clock, "time"), HandshakeLayout.GO, found["rest"])
