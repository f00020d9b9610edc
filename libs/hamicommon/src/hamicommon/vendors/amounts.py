"""
The ways in which HAMi's vendors read the amounts of a container.

An amount that is broken or beyond 32 bits can void the request, count as absent, or saturate. This differs by
vendor: each `parse_request` calls the matching function. HAMi's integers wrap where ours saturate, so that a request
that is too large fits nowhere, instead of fitting as a small one.
"""

from collections.abc import Mapping
from typing import Any

from hamicommon.model import Request
from hamicommon.vendors.description import amount
from hamicommon.wire import quantity

WHOLE_PERCENT = 100
TEXT_SHOWN = 40
"""Characters of an amount that are quoted in a message."""
_BYTES_PER_MIB = 2**20


def whole_amount(resources: Mapping[str, Any], name: str) -> int | None:
    """
    Return the limit on *name*, else the request; None if there is neither, or it is no whole number.

    >>> whole_amount({"limits": {"a": "2"}, "requests": {"a": "3", "b": "4k", "c": "500m"}}, "b")
    4000
    """
    text = amount(resources, name)
    return None if text is None else quantity.whole(text)


def rounded_amount(resources: Mapping[str, Any], name: str) -> int | None:
    """
    Return the limit on *name*, else the request, rounded up; None if there is neither, or it is no number.

    >>> rounded_amount({"limits": {"a": "500m"}}, "a")
    1
    """
    text = amount(resources, name)
    try:
        return None if text is None else int(quantity.rounded(text))
    except quantity.QuantityError:
        return None


def limit_of(resources: Mapping[str, Any], name: str) -> Any | None:
    """Return the limit on *name*, None if there is none. A request does not count."""
    limits = resources.get("limits")
    return amount({"limits": limits}, name)


def saturated(value: int | None, absent: int = 0) -> int:
    """
    Return *value* within 0 to 2^31-1, *absent* if it is None.

    >>> saturated(4294967297), saturated(-5), saturated(None, absent=100)
    (2147483647, 0, 100)
    """
    return absent if value is None else min(max(value, 0), quantity.INT32_MAX)


def within(value: int | None, absent: int = 0) -> int | None:
    """
    Return *value* if it is within 0 to 2^31-1, *absent* if it is None. The result None voids the request.

    >>> within(7), within(4294967297), within(-5), within(None, absent=100)
    (7, None, None, 100)
    """
    if value is None:
        return absent
    return value if 0 <= value <= quantity.INT32_MAX else None


def exact_mib(resources: Mapping[str, Any], name: str, mib_per_unit: int) -> int | None:
    """
    Return the MiB asked for under *name*, 0 if absent. None, for a broken amount, voids the request.

    >>> resources = {"limits": {"memory": "20", "much": "8388608", "odd": "500m"}}
    >>> [exact_mib(resources, name, 256) for name in ("memory", "much", "odd", "none")]
    [5120, None, None, 0]
    """
    if amount(resources, name) is None:
        return 0
    units = whole_amount(resources, name)
    return None if units is None else within(units * mib_per_unit)


def request_of(vendor: str, count: int | None, memory_mib: int | None, core_percent: int | None) -> Request | None:
    """
    Return a request of *vendor*; *memory_mib* 0 is all memory of each device. None if an amount is void.

    >>> request_of("MLU", 1, 0, 30)
    Request(vendor='MLU', count=1, memory_mib=0, memory_percent=100, core_percent=30, profile_size=0)
    """
    if not count or memory_mib is None or core_percent is None:
        return None
    return Request(vendor, count, memory_mib, None if memory_mib else WHOLE_PERCENT, core_percent)


def unit_advice(text: Any, unit_mib: int, most: int = quantity.INT32_MAX) -> str:
    """
    Return what to write instead of *text*, an amount of memory in units of *unit_mib*, at *most* so many units.

    A very large amount was probably meant as bytes.

    >>> unit_advice("16Gi", 1), unit_advice("many", 256)
    ('; the unit is 1 MiB, so for 16Gi bytes write 16384', '; the unit is 256 MiB')
    """
    unit = f"; the unit is {unit_mib} MiB"
    try:
        value = quantity.parse_quantity(text)
    except quantity.QuantityError:
        return unit
    units = -(-value // (unit_mib * _BYTES_PER_MIB))
    is_in_bytes = value >= _BYTES_PER_MIB and units <= most
    return f"{unit}, so for {str(text)[:TEXT_SHOWN]} bytes write {units}" if is_in_bytes else unit
