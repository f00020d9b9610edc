"""
The tables of `usage`.
"""

from collections.abc import Sequence
from typing import Final

from rich.table import Table

from kubectl_hami.show.table import percent, table
from kubectl_hami.values.usage import DeviceHours

_HEADS: Final = {
    "namespaces": ("NAMESPACE", "MODEL", ">HELD h", ">USED h", ">USED %"),
    "pods": ("NAMESPACE", "POD", "MODEL", ">HELD h", ">USED h", ">USED %"),
    "models": ("MODEL", ">OFFERED h", ">HELD h", ">IDLE h", ">HELD %", ">USED h"),
}


def usage_table(of: str, found: Sequence[tuple[str, DeviceHours]], *, has_clusters: bool = False) -> Table:
    """Return a row for each of *found*, a cluster and its hours, of `namespaces`, `pods` or `models`."""
    heads = [*(("CLUSTER",) if has_clusters else ()), *_HEADS[of]]
    return table(heads, [[*((cluster,) if has_clusters else ()), *_cells(of, row)] for cluster, row in found])


def _cells(of: str, row: DeviceHours) -> list[str]:
    if of == "models":
        part = _part(row.held_hours, row.offered_hours)
        return [
            row.model,
            _hours(row.offered_hours),
            _hours(row.held_hours),
            _hours(row.idle_hours),
            part,
            _hours(row.used_hours),
        ]
    names = [row.namespace or "", *((row.pod or "",) if of == "pods" else ()), row.model]
    return [*names, _hours(row.held_hours), _hours(row.used_hours), _part(row.used_hours, row.held_hours)]


def _hours(amount: float | None) -> str:
    """
    Return hours for people, "-" if unknown.

    >>> [_hours(amount) for amount in (None, 0, 0.001, 0.005, 61.5)]
    ['-', '0.00', '<0.01', '0.01', '61.50']
    """
    if amount is None:
        return "-"
    return "<0.01" if 0 < amount < 0.005 else f"{amount:.2f}"


def _part(amount: float | None, whole: float | None) -> str:
    return percent(None if amount is None or not whole else 100 * amount / whole)
