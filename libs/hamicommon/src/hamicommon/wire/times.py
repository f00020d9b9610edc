"""
Moments in text, read as Go's `time.Parse` reads them.

Go is more lenient than RFC 3339 in two places (a one-digit hour, a comma before the fraction) and stricter in others
(no lower case, no second 60); peers accept exactly what Go accepts.
Source: https://pkg.go.dev/time#Parse
"""

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Final

from hamicommon.wire.errors import DecodeError, quote

_CLOCK: Final = r"([0-9]{1,2}):([0-9]{2}):([0-9]{2})(?:[.,]([0-9]+))?"
_RFC3339: Final = re.compile(rf"([0-9]{{4}})-([0-9]{{2}})-([0-9]{{2}})T{_CLOCK}(?:Z|([+-])([0-9]{{2}}):([0-9]{{2}}))")
DASHED: Final = re.compile(rf"([0-9]{{4}})-([0-9]{{2}})-([0-9]{{2}}) +{_CLOCK}")
"""Go's `time.DateTime`, `YYYY-MM-DD hh:mm:ss`."""
DOTTED: Final = re.compile(rf"([0-9]{{4}})\.([0-9]{{2}})\.([0-9]{{2}}) +{_CLOCK}")
"""`YYYY.MM.DD hh:mm:ss`."""
_DAY: Final = timedelta(days=1)


def parse_rfc3339(text: str, place: str) -> datetime:
    """
    Return the moment *text* names, in the offset it is written in.

    >>> parse_rfc3339("2026-08-21T14:20:39+08:00", "lock").isoformat()
    '2026-08-21T14:20:39+08:00'

    Fractions are cut to microseconds. Moments before the year 1, which Go can hold, are the first of the year 1.

    Raises: DecodeError when Go would not read it.
    """
    found = _RFC3339.fullmatch(text)
    if not found:
        raise DecodeError(place, f"{quote(text)} is not a time such as 2026-08-21T06:20:39Z")
    sign, hours, minutes = found[8], int(found[9] or 0), int(found[10] or 0)
    if hours > 24 or minutes > 60:
        raise DecodeError(place, f"{quote(text)} has an offset of more than 24 hours or 60 minutes")
    offset = timedelta(hours=hours, minutes=minutes) * (-1 if sign == "-" else 1)
    if abs(offset) < _DAY:
        return wall_clock(found, place, UTC if sign is None else timezone(offset))
    moment = wall_clock(found, place, UTC)
    try:
        return moment - offset
    except OverflowError:
        return (datetime.min if offset > timedelta(0) else datetime.max).replace(tzinfo=UTC)


def format_rfc3339(moment: datetime) -> str:
    """
    Return *moment* as Go's `time.RFC3339` formats it, with a fraction only where it has one.

    >>> format_rfc3339(datetime(2026, 8, 21, 6, 20, 39, tzinfo=UTC))
    '2026-08-21T06:20:39Z'
    """
    text = moment.isoformat()
    return text.removesuffix("+00:00") + "Z" if text.endswith("+00:00") else text


def wall_clock(found: re.Match[str], place: str, zone: tzinfo | None) -> datetime:
    """
    Return the moment in *zone* of a match of one of the layouts above.

    Raises: DecodeError when a part is out of its range.
    """
    year, month, day, hour, minute, second = (int(part) for part in found.groups()[:6])
    fraction = int((found[7] or "0")[:6].ljust(6, "0"))
    try:
        # Go counts from the year 0, leap as the year 4; what matters to a reader is only that it is long ago.
        moment = datetime(year or 4, month, day, hour, minute, second, fraction, zone)
    except ValueError as error:
        raise DecodeError(place, f"{quote(found[0])}: {error}") from None
    return moment if year else datetime.min.replace(tzinfo=zone)
