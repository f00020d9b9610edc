"""
Integers and booleans as Go's `strconv` reads them.

A sign is allowed. Blanks, underscores and other scripts' digits are not. A value beyond the type's range is an error.
Source: https://pkg.go.dev/strconv
"""

from typing import Final

from hamicommon.wire.errors import DecodeError, quote

_TRUE: Final = frozenset(("1", "t", "T", "TRUE", "true", "True"))
_FALSE: Final = frozenset(("0", "f", "F", "FALSE", "false", "False"))
_MAX_DIGITS: Final = 20
_SAFE_DIGITS: Final = 9
"""Any number of so many digits fits in 32 bits, the smallest size in use."""


def parse_int(text: str, place: str, bits: int = 64) -> int:
    """
    Return *text* as a signed integer of *bits* bits (Go: `ParseInt(text, 10, bits)`, `Atoi`).

    >>> parse_int("+010", "count", 32)
    10

    Raises: DecodeError when it is not a number, or out of range.
    """
    if len(text) <= _SAFE_DIGITS and text.isascii() and text.isdigit():
        return int(text)
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdigit()):
        raise DecodeError(place, f"{quote(text)} is not a whole number")
    digits = digits.lstrip("0") or "0"
    limit = 1 << (bits - 1)
    magnitude = int(digits) if len(digits) < _MAX_DIGITS else limit + 1
    if magnitude > limit or (magnitude == limit and text[0] != "-"):
        raise DecodeError(place, f"{quote(text)} is outside {-limit}..{limit - 1}")
    return -magnitude if text[0] == "-" else magnitude


def parse_bool(text: str) -> bool | None:
    """
    Return *text* as a boolean (Go: `ParseBool`), None if it is none.

    >>> parse_bool("T"), parse_bool("False"), parse_bool("yes")
    (True, False, None)
    """
    if text in _TRUE:
        return True
    return False if text in _FALSE else None
