"""
Kubernetes quantities as exact numbers.

Owns parsing of `100m`, `2Gi`, `1e3` and printing of sums. Knows no resource.
Source: k8s.io/apimachinery/pkg/api/resource/quantity.go.
"""

import re
from fractions import Fraction

_FORM = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(?:([eE][+-]?\d+)|([numkMGTPE]|[KMGTPE]i)?)")

MALFORMED = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"

_SUFFIXES = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "": Fraction(1),
    **{letter: Fraction(1000**power) for power, letter in enumerate("kMGTPE", 1)},
    **{f"{letter}i": Fraction(1024**power) for power, letter in enumerate("KMGTPE", 1)},
}


def parse(text: str | int | float) -> Fraction:
    """
    Return the exact value of a quantity.

    Raises: ValueError if *text* is not a quantity.

    >>> parse("1500m"), parse("1Ki"), parse(3)
    (Fraction(3, 2), Fraction(1024, 1), Fraction(3, 1))
    """
    if isinstance(text, int):
        return Fraction(text)
    match = _FORM.fullmatch(str(text).strip())
    if match is None:
        raise ValueError(MALFORMED)
    number, exponent, suffix = match.groups()
    factor = Fraction(10) ** int(exponent[1:]) if exponent else _SUFFIXES[suffix or ""]
    return Fraction(number) * factor


def show(value: Fraction) -> str:
    """
    Return a quantity as text: a whole number, with a binary suffix if it divides evenly, or thousandths, rounded up.

    >>> show(Fraction(3, 2)), show(Fraction(2 * 1024**3)), show(Fraction(7))
    ('1500m', '2Gi', '7')
    """
    if value.denominator != 1:
        return f"{-((-value * 1000) // 1)}m"
    whole = value.numerator
    for suffix in ("Ei", "Pi", "Ti", "Gi", "Mi", "Ki"):
        unit = _SUFFIXES[suffix].numerator
        if whole and whole % unit == 0:
            return f"{whole // unit}{suffix}"
    return str(whole)
