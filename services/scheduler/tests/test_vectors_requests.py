"""
What containers ask for, as HAMi 2.10.0 reads it and as we read it.
"""

from typing import Any

import pytest

from hamicommon.pod.reading import read_pod
from hamicommon.vendors.description import Vendor
from hamicommon.wire.quantity import INT32_MAX, QuantityError, parse_quantity

from .support.builders import vendors
from .support.hami_vectors import Case, by_name, cases

Asked = dict[str, tuple[int, int, int | None, int]]
"""By vendor: count, MiB or parts, percent if it decides, cores."""
REQUESTS = cases("requests")
VENDORS = {rules.key: rules.vendor for rules in vendors()}


def requested(case: Case) -> list[Asked]:
    """Return per container and vendor what we read: count, MiB or parts, percent where it decides, cores."""
    return [
        {
            r.vendor: (r.count, r.profile_size or r.memory_mib, r.memory_percent, r.core_percent)
            for r in container.requests
        }
        for container in read_pod(case["pod"], vendors(case["config"])).containers
    ]


def amount(container: dict[str, Any], name: str) -> int | None:
    """Return the integer that *container* asks of *name*, its limit before its request, None if it asks none."""
    resources = container.get("resources") or {}
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
    """
    Return *hamis* amount, or the most there is if HAMi wrapped *asked*, which it divides among *parts*.

    A request that is too large must not be granted as a small one. Less than nothing is nothing.
    """
    if asked is None or 0 <= asked <= INT32_MAX or int(wrapped(asked) / parts) != hamis:
        return hamis
    return min(max(asked, 0), INT32_MAX) // parts


def hami_requested(case: Case) -> list[Asked]:
    """Return the same as HAMi reads it, without its wrapped amounts."""
    spec = case["pod"]["spec"]
    containers = [*spec.get("initContainers", []), *spec["containers"]]
    return [
        {vendor: _as_ours(VENDORS[vendor], request, container) for vendor, request in found.items()}
        for container, found in zip(containers, case["out"], strict=True)
    ]


def _as_ours(vendor: Vendor, hami: dict[str, int], container: dict[str, Any]) -> tuple[int, int, int | None, int]:
    count = unwrapped(amount(container, vendor.resource_names[0]), hami["count"])
    # Moore Threads says the cores of all devices together.
    parts = count if vendor.key == "Mthreads" else 1
    cores = unwrapped(amount(container, vendor.core_resource_name), hami["cores"], parts)
    return count, hami["mem"], _percent(vendor.key, hami), cores


def is_dropped_by_wrapping(case: Case, position: int, vendor: Vendor) -> bool:
    """Return whether HAMi drops a request because its count, wrapped to 32 bits, is 0 or less."""
    spec = case["pod"]["spec"]
    container = [*spec.get("initContainers", []), *spec["containers"]][position]
    count = amount(container, vendor.resource_names[0])
    return count is not None and count > INT32_MAX and wrapped(count) <= 0


def _percent(vendor: str, hami: dict[str, int]) -> int | None:
    """Return the percentage that decides: AMD's 0 % are all of a device, Enflame's and AWS's mean nothing."""
    if hami["mem"] or vendor in {"Enflame", "AWSNeuron"}:
        return None
    return 100 if vendor == "AMD" else hami["mem_percentage"]


@pytest.mark.parametrize("case", by_name(REQUESTS))
def test_requests_are_read_as_hami_reads_them(case: Case) -> None:
    """Count, memory, percentage and cores of every container agree."""
    for position, (expected, found) in enumerate(zip(hami_requested(case), requested(case), strict=True)):
        more = {vendor: found[vendor] for vendor in found.keys() - expected.keys()}
        assert [] == [vendor for vendor in more if not is_dropped_by_wrapping(case, position, VENDORS[vendor])]
        assert {INT32_MAX} >= {count for count, *_ in more.values()}
        assert expected == {vendor: asked for vendor, asked in found.items() if vendor not in more}


@pytest.mark.parametrize(
    ("asked", "hamis", "parts", "ours"),
    [
        (4294967297, 1, 1, INT32_MAX),
        (2147483648, -2147483648, 1, INT32_MAX),
        (-5, -5, 1, 0),
        (4294967396, 100, 1, INT32_MAX),
        (4294967300, 2, 2, INT32_MAX // 2),
        (4294967297, 7, 1, 7),
        (50, 50, 1, 50),
        (None, 100, 1, 100),
    ],
)
def test_only_a_wrapped_amount_is_replaced(asked: int | None, hamis: int, parts: int, ours: int) -> None:
    """Whatever else HAMi answers must be ours."""
    assert ours == unwrapped(asked, hamis, parts)
