"""
The errors that decoders and encoders raise.
"""

from typing import Self

from hamicommon.errors import HamiError

WHOLE_TEXT = "whole text"
"""The place of an error in no single part of the text."""

_SHOWN_CHARACTERS = 60


class _PlacedError(HamiError):
    """An error at one place of an input."""

    def __init__(self, place: str, reason: str) -> None:
        super().__init__(f"{place}: {reason}")
        self.place = place
        self.reason = reason

    def within(self, place: str) -> Self:
        """Return the same error, its place inside *place*."""
        return type(self)(f"{place}, {self.place}" if self.place else place, self.reason)


class DecodeError(_PlacedError):
    """
    Text or bytes that are not in the expected format.

    `place` names where in the input (`"device 2, field memory"`, `"byte 56"`), `reason` what is wrong there.
    """


class EncodeError(_PlacedError):
    """
    A value that the format cannot carry: a reader would read something else.

    `place` names the part of the value, `reason` what is wrong with it.
    """


def quote(text: str) -> str:
    """
    Return *text* for an error message: escaped, on one line, cut if long.

    >>> print(quote("a\\nb"))
    'a\\nb'
    >>> len(quote("x" * 1000))
    75
    """
    if len(text) <= _SHOWN_CHARACTERS:
        return ascii(text)
    return f"{text[:_SHOWN_CHARACTERS]!a} ({len(text)} chars)"
