"""
Kubernetes quantities: exact amounts, and the whole numbers that HAMi reads from them.

`parse_quantity` is exact. `whole` returns what Go's `Quantity.AsInt64` returns. It refuses some whole amounts, and
HAMi's answers depend on that.
Source: https://github.com/kubernetes/apimachinery/blob/v0.34.1/pkg/api/resource/quantity.go
"""

import re
from dataclasses import dataclass
from fractions import Fraction

from hamicommon.errors import HamiError

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1

_FAST_PATH_DIGITS = 18
"""Digits that Go keeps in an int64. A longer quantity becomes a big decimal, which `AsInt64` refuses."""
_TEXT_LIMIT = 256

_GRAMMAR = re.compile(
    r"(?P<sign>[+-]?)(?P<whole>[0-9]*)(?:\.(?P<fraction>[0-9]*))?"
    r"(?:(?P<binary>[KMGTPE]i)|(?P<decimal>[numkMGTPE]?)|[eE](?P<exponent>[+-]?[0-9]{1,10}))"
)
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}


class QuantityError(HamiError):
    """A text is not a Kubernetes quantity."""

    def __init__(self, text: object) -> None:
        super().__init__(f"{str(text)[:40]!r} is not a quantity such as 3000, 1500m or 16Gi")


@dataclass(frozen=True, slots=True)
class _Parts:
    """The parts of a quantity: (-1 if negative) x digits x 10^exponent10 x 2^exponent2."""

    negative: bool
    digits: str
    """Whole and fractional digits in a row, leading zeros dropped from the whole part."""
    fraction_length: int
    exponent10: int
    exponent2: int


def parse_quantity(text: str | int) -> Fraction:
    """
    Return the amount of *text*, exact to a billionth (further digits round away from zero) and capped at 2^63-1.

    >>> parse_quantity("1500m"), parse_quantity("16Gi"), parse_quantity("1e3")
    (Fraction(3, 2), Fraction(17179869184, 1), Fraction(1000, 1))

    Raises:
        QuantityError: *text* is no quantity.
    """
    parts = _split(text)
    exponent = parts.exponent10 - parts.fraction_length
    if not parts.digits.strip("0"):
        return Fraction(0)
    # Beyond these sizes the amount is the cap, or the smallest one.
    if exponent + len(parts.digits) > 40:
        amount = Fraction(INT64_MAX)
    elif exponent + len(parts.digits) < -40:
        amount = Fraction(1, 10**9)
    else:
        exact = Fraction(int(parts.digits)) * Fraction(10) ** exponent * 2**parts.exponent2
        amount = min(Fraction(-(-exact * 10**9 // 1), 10**9), Fraction(INT64_MAX))
    return -amount if parts.negative else amount


def whole(text: str | int) -> int | None:
    """
    Return *text* as Go's AsInt64 does, None if AsInt64 refuses it or it is no quantity.

    A trailing fraction, `m` suffixes, 19 digits and large binary suffixes are refused even where the amount is whole.

    >>> whole("4k"), whole("16Gi"), whole("1000m"), whole("1.5k"), whole("1.0")
    (4000, 17179869184, None, 1500, None)
    """
    if isinstance(text, str) and len(text) <= _FAST_PATH_DIGITS and text.isascii() and text.isdigit():
        return int(text)
    try:
        parts = _split(text)
    except QuantityError:
        return None
    whole_length = len(parts.digits) - parts.fraction_length
    if parts.exponent2:
        # Go's estimate of the decimal digits a binary suffix takes.
        if parts.fraction_length or 15 - whole_length - parts.exponent2 * 3 // 10 - 1 < 0:
            return None
        amount = int(parts.digits) << parts.exponent2
    else:
        scale = parts.exponent10 - parts.fraction_length
        if len(parts.digits) > _FAST_PATH_DIGITS or scale < 0 or scale > 10**6:
            return None
        amount = int(parts.digits)
        amount = amount * 10**scale if amount and scale <= 19 else amount
        if amount and scale > 19:
            return None
    if amount > INT64_MAX:
        return None
    return -amount if parts.negative else amount


def rounded(text: str | int) -> int:
    """
    Return the amount rounded away from zero, as Go's `Quantity.Value` does.

    >>> rounded("500m"), rounded("-500m"), rounded("3k")
    (1, -1, 3000)

    Raises:
        QuantityError: *text* is no quantity.
    """
    amount = parse_quantity(text)
    return -(-amount // 1) if amount >= 0 else amount // 1


def rounded_down(text: str | int) -> int:
    """
    Return the largest whole number that is no more than *text*.

    >>> rounded_down("500m"), rounded_down("1500m"), rounded_down("3k")
    (0, 1, 3000)

    Raises:
        QuantityError: *text* is no quantity.
    """
    return parse_quantity(text) // 1


def _split(text: str | int) -> _Parts:
    if isinstance(text, bool) or not isinstance(text, str | int) or len(str(text)) > _TEXT_LIMIT:
        raise QuantityError(text)
    match = _GRAMMAR.fullmatch(str(text).strip())
    if match is None or not (match["whole"] or match["fraction"]):
        raise QuantityError(text)
    fraction = match["fraction"] or ""
    return _Parts(
        negative=match["sign"] == "-",
        digits=(match["whole"].lstrip("0") or "0") + fraction,
        fraction_length=len(fraction),
        exponent10=int(match["exponent"]) if match["exponent"] else _DECIMAL[match["decimal"] or ""],
        exponent2=_BINARY[match["binary"]] if match["binary"] else 0,
    )
