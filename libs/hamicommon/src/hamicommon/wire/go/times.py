"""
Times as Go's `time.Parse` reads them.

Go accepts more than RFC 3339 in two places (a one-digit hour, a comma before the fraction) and less in others (no lower
case, no second 60). Peers accept what Go accepts.
Source: https://pkg.go.dev/time#Parse
"""

import re
from datetime import timedelta
from typing import Final

from hamicommon.model import Moment
from hamicommon.wire.errors import DecodeError, quote

_CLOCK: Final = r"([0-9]{1,2}):([0-9]{2}):([0-9]{2})(?:[.,]([0-9]+))?"
_RFC3339: Final = re.compile(rf"([0-9]{{4}})-([0-9]{{2}})-([0-9]{{2}})T{_CLOCK}(?:Z|([+-])([0-9]{{2}}):([0-9]{{2}}))")
DASHED: Final = re.compile(rf"([0-9]{{4}})-([0-9]{{2}})-([0-9]{{2}}) +{_CLOCK}")
"""Go's `time.DateTime`, `YYYY-MM-DD hh:mm:ss`."""
DOTTED: Final = re.compile(rf"([0-9]{{4}})\.([0-9]{{2}})\.([0-9]{{2}}) +{_CLOCK}")
"""`YYYY.MM.DD hh:mm:ss`."""
_DAY: Final = timedelta(days=1)
_UTC: Final = timedelta()
_FIRST: Final = Moment.at(0, 1, 1, offset=_UTC)
_LAST: Final = Moment.at(9999, 12, 31, 23, 59, 59, 999_999, offset=_UTC)


def parse_rfc3339(text: str, place: str) -> Moment:
    """
    Return the moment *text* names, in its own offset; in UTC if the offset is a day, which Go accepts.

    >>> print(parse_rfc3339("2026-08-21T14:20:39+08:00", "lock"))
    2026-08-21T14:20:39

    Fractions are cut to microseconds.

    Raises: DecodeError when Go would not read it.
    """
    found = _RFC3339.fullmatch(text)
    if not found:
        raise DecodeError(place, f"{quote(text)} is not a time such as 2026-08-21T06:20:39Z")
    hours, minutes = int(found[9] or 0), int(found[10] or 0)
    if hours > 24 or minutes > 60:
        raise DecodeError(place, f"{quote(text)} has an offset of more than 24 hours or 60 minutes")
    offset = timedelta(hours=hours, minutes=minutes) * (-1 if found[8] == "-" else 1)
    moment = wall_clock(found, place)
    if abs(offset) < _DAY:
        return Moment(moment.shown_us, offset)
    shown_us = moment.shown_us - offset // timedelta(microseconds=1)
    return Moment(min(max(shown_us, _FIRST.shown_us), _LAST.shown_us), _UTC)


def format_rfc3339(moment: Moment) -> str:
    """
    Return *moment*, whose offset is whole minutes, as Go's `time.RFC3339`, with a fraction only if it has one.

    >>> format_rfc3339(Moment.at(2026, 8, 21, 14, 20, 39, offset=timedelta(hours=8)))
    '2026-08-21T14:20:39+08:00'
    """
    minutes = (moment.offset or _UTC) // timedelta(minutes=1)
    sign = "-" if minutes < 0 else "+"
    return f"{moment}{sign}{abs(minutes) // 60:02}:{abs(minutes) % 60:02}" if minutes else f"{moment}Z"


def wall_clock(found: re.Match[str], place: str) -> Moment:
    """
    Return what the clock showed of a match of one of the layouts above, without an offset.

    Raises: DecodeError when a part is out of its range.
    """
    fraction = int((found[7] or "0")[:6].ljust(6, "0"))
    try:
        return Moment.at(*(int(part) for part in found.groups()[:6]), fraction)
    except ValueError as error:
        raise DecodeError(place, f"{quote(found[0])}: {error}") from None
