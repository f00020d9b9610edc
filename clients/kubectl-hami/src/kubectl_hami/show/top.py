"""
The tables of `top`.
"""

from collections.abc import Collection, Sequence
from typing import Final

from rich.console import Group, RenderableType
from rich.text import Text

from kubectl_hami.answer.top import Row
from kubectl_hami.show.table import Cell, WholeTable, mib, percent, safe, seconds, table

_NAMES: Final = {
    "nodes": ("NODE", ">DEVICES"),
    "devices": ("NODE", ">#", "MODEL"),
    "pods": ("NAMESPACE", "POD", "NODE", "DEVICE"),
}
_WIDE: Final = {"nodes": ("MODELS",), "devices": ("UUID", "MODE"), "pods": ("UUIDS",)}
_SPARE: Final = (
    *("UUIDS", "UUID", "MODELS", "MODE", "THROTTLED", "SHARES", "MODEL", "DEVICE", "DEVICES"),
    *("BUSY", "CORES %", "GRANTED", "MEMORY MiB", "USED"),
)
"""The columns that a narrow screen does without, the first ones first."""
_FULL: Final = 0.9
"""From which part on a quantity is marked."""


def top_screen(
    of: str, rows: Sequence[Row], width: int, *, is_wide: bool = False, has_clusters: bool = False
) -> RenderableType:
    """Return what of `top_table` has room in a screen of *width* columns, where nothing wraps, and what has none."""
    hidden: list[str] = []
    spare = (*(("STATE",) if not any(row.state for row in rows) else ()), *_SPARE)
    found = top_table(of, rows, is_wide=is_wide, has_clusters=has_clusters)
    for name in spare:
        if found.least_width <= width:
            break
        hidden.append(name)
        found = top_table(of, rows, is_wide=is_wide, has_clusters=has_clusters, hidden=hidden)
    lost = [head for head in _heads(of, is_wide, has_clusters) if head.lstrip(">~") in hidden]
    if not lost:
        return found
    return Group(found, Text(f"no room for {', '.join(head.lstrip('>~') for head in lost)}", style="dim"))


def top_table(
    of: str, rows: Sequence[Row], *, is_wide: bool = False, has_clusters: bool = False, hidden: Collection[str] = ()
) -> WholeTable:
    """
    Return *rows* of `nodes`, `devices` or `pods`, without the columns *hidden*.

    Memory is in MiB, compute in percent of one device.
    """
    heads = _heads(of, is_wide, has_clusters)
    kept = [number for number, head in enumerate(heads) if head.lstrip(">~") not in hidden]
    cells = [_cells(row, of == "pods", is_wide, has_clusters) for row in rows]
    return table([heads[number] for number in kept], [[row[number] for number in kept] for row in cells])


def _heads(of: str, is_wide: bool, has_clusters: bool) -> list[str]:
    is_pods = of == "pods"
    heads = [*(("CLUSTER",) if has_clusters else ()), *_NAMES[of], ">SHARES"]
    heads += [">MEMORY MiB", ">USED"] if is_pods else [">MEMORY MiB", ">GRANTED", ">USED"]
    heads += [">CORES %", ">BUSY"] if is_pods else [">CORES %", ">GRANTED", ">BUSY"]
    return [*heads, ">THROTTLED", *(_WIDE[of] if is_wide else ()), "~STATE"]


def _cells(row: Row, is_pods: bool, is_wide: bool, has_clusters: bool) -> list[Cell]:
    memory: list[Cell] = [str(row.offered_memory_mib)]
    cores: list[Cell] = [str(row.offered_core_percent)]
    if not is_pods:
        memory.append(_marked(str(row.granted_memory_mib), row.granted_memory_mib, row.offered_memory_mib))
        cores.append(_marked(str(row.granted_core_percent), row.granted_core_percent, row.offered_core_percent))
    memory.append(_marked(mib(row.used_memory_mib), row.used_memory_mib, row.offered_memory_mib))
    cores.append(percent(row.used_core_percent))
    return [
        *((row.cluster,) if has_clusters else ()),
        *row.name,
        str(row.shares),
        *memory,
        *cores,
        seconds(row.throttled_seconds),
        *(row.wide if is_wide else ()),
        Text(safe(row.state), style="red"),
    ]


def _marked(text: str, amount: float | None, whole: float) -> Text:
    """Return *text*, coloured when *amount* is most of *whole*, and otherwise when it is more."""
    if amount is None or not whole or amount < _FULL * whole:
        return Text(text)
    return Text(text, style="red" if amount > whole else "yellow")
