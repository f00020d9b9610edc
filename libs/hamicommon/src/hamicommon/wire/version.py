"""
The HAMi release for which a writer writes.

It parses the setting `HAMI_WIRE_VERSION` of a service, and orders releases. Each format's module knows what they wrote.
"""

import re
from dataclasses import dataclass
from typing import Self

from hamicommon.wire.errors import DecodeError, quote

_TEXT = re.compile(r"v?([0-9]{1,4})\.([0-9]{1,4})(?:\.[0-9]{1,4})?", re.ASCII)


@dataclass(frozen=True, slots=True, order=True)
class WireVersion:
    """
    A HAMi minor release, in the order of releases.

    >>> WireVersion(2, 9) < WireVersion(2, 10)
    True
    """

    major: int
    minor: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """
        Return the release that *text* names, with or without a leading `v` and a patch number.

        >>> str(WireVersion.parse("2.7")), str(WireVersion.parse("v2.8.3"))
        ('2.7', '2.8')

        Raises: DecodeError when it is not a release from 2.4 to 2.10.
        """
        found = _TEXT.fullmatch(text)
        if found:
            version = cls(int(found[1]), int(found[2]))
            if OLDEST <= version <= NEWEST:
                return version
        raise DecodeError("wire version", f"{quote(text)} is not one of {OLDEST} to {NEWEST}, such as 2.7")

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


OLDEST = WireVersion(2, 4)
NEWEST = WireVersion(2, 10)

NINE_FIELDS_SINCE = WireVersion(2, 5)
"""The text inventory has index and mode."""
JSON_SINCE = WireVersion(2, 8)
"""The NVIDIA inventory is JSON. Older readers accept only text, newer ones only JSON."""
DASHED_TIME_SINCE = WireVersion(2, 5)
"""The scheduler writes handshake times as `YYYY-MM-DD hh:mm:ss`; before, with dots."""
PLACEMENTS_SINCE = WireVersion(2, 10)
"""MIG profiles in the inventory, an annotation for MIG placements, scoring weights."""
