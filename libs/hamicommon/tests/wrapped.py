"""
The rule by which our reading of a request differs from HAMi's: what HAMi wraps to 32 bits stays as large as it can be.

A request that is too large must not be granted as a small one. Less than nothing is nothing.
"""

from collections.abc import Mapping
from typing import Any

from hamicommon.wire.quantity import INT32_MAX, QuantityError, parse_quantity


def amount(resources: Mapping[str, Any], name: str) -> int | None:
    """Return the integer that *resources* say of *name*, the limit before the request; None if they say none."""
    text = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}.get(name)
    try:
        value = None if text is None else parse_quantity(text)
    except QuantityError:
        return None
    return int(value) if value is not None and value.denominator == 1 else None


def wrapped(value: int) -> int:
    """
    Return *value* as HAMi's 32-bit integers hold it.

    >>> wrapped(4294967297), wrapped(2147483648), wrapped(-5)
    (1, -2147483648, -5)
    """
    return (value + 2**31) % 2**32 - 2**31


def unwrapped(asked: int | None, hamis: int, parts: int = 1) -> int:
    """Return *hamis* amount, or, if it is *asked* wrapped and divided among *parts*, the amount without the wrap."""
    if asked is None or 0 <= asked <= INT32_MAX or int(wrapped(asked) / parts) != hamis:
        return hamis
    return min(max(asked, 0), INT32_MAX) // parts


def is_dropped(count: int | None) -> bool:
    """Return whether HAMi drops a request because its *count*, wrapped, is 0 or less; ours then fits nowhere."""
    return count is not None and count > INT32_MAX and wrapped(count) <= 0
