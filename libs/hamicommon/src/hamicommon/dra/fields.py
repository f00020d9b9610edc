"""
Read the fields of objects of the API, whoever wrote them.

A field of another form is a DecodeError whose place is the path of the field. Amounts have an upper limit, so that sums
of many stay far below what 64 bits hold.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from hamicommon.dra.names import DRIVER, MEMORY
from hamicommon.wire.errors import DecodeError, quote
from hamicommon.wire.quantity import INT32_MAX, INT64_MAX, QuantityError, parse_quantity

_MIB = 1 << 20


def text_field(item: Mapping[str, Any], field: str, place: str) -> str:
    """Return a text that is not empty."""
    value = item.get(field)
    if not isinstance(value, str) or not value:
        raise DecodeError(f"{place}.{field}", f"{quote(str(value))} is not a text")
    return value


def count_field(item: Mapping[str, Any], field: str, place: str, *, least: int) -> int:
    """Return a whole number from *least* on."""
    value = item.get(field)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= INT64_MAX:
        raise DecodeError(f"{place}.{field}", f"{quote(str(value))} is not a whole number from {least} on")
    return value


def object_field(item: Mapping[str, Any], field: str, place: str, *, is_optional: bool = False) -> Mapping[str, Any]:
    """Return an object; an optional one that is missing is empty."""
    value = item.get(field)
    if value is None and is_optional:
        return {}
    return object_entry(value, f"{place}.{field}" if place else field)


def object_entry(value: Any, place: str) -> Mapping[str, Any]:
    """Return *value*, an object."""
    if not isinstance(value, dict):
        raise DecodeError(place, f"{quote(str(value))} is not an object")
    return value


def list_field(item: Mapping[str, Any], field: str, place: str) -> Sequence[Any]:
    """Return a list, empty if it is missing."""
    values = item.get(field) or []
    if not isinstance(values, list):
        raise DecodeError(f"{place}.{field}", f"{quote(str(values))} is not a list")
    return values


def find_entry(amounts: Mapping[str, Any], name: str) -> Any:
    """Return the amount of the capacity *name*, which may be written with the driver's domain."""
    return amounts.get(name, amounts.get(f"{DRIVER}/{name}"))


def whole_amount(amounts: Mapping[str, Any], name: str, place: str) -> int:
    """Return the amount of the capacity *name*, a whole number."""
    return _amount(amounts, name, place, INT32_MAX)


def memory_mib(amounts: Mapping[str, Any], place: str) -> int:
    """Return the amount of memory, in MiB."""
    size_bytes = _amount(amounts, MEMORY, place, INT32_MAX * _MIB)
    if size_bytes % _MIB:
        raise DecodeError(f"{place}.{MEMORY}", f"{size_bytes} bytes are not a whole number of MiB")
    return size_bytes // _MIB


def _amount(amounts: Mapping[str, Any], name: str, place: str, most: int) -> int:
    text = find_entry(amounts, name)
    try:
        amount = parse_quantity("" if text is None else text)
    except QuantityError as error:
        raise DecodeError(f"{place}.{name}", str(error)) from error
    if amount < 0 or amount.denominator != 1:
        raise DecodeError(f"{place}.{name}", f"{quote(str(text))} is not a whole number from 0 on")
    if amount > most:
        raise DecodeError(f"{place}.{name}", f"{quote(str(text))} is more than {most}")
    return int(amount)
