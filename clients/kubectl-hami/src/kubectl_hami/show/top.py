"""
The tables of `top`.
"""

from collections.abc import Sequence
from typing import Final

from rich.table import Table
from rich.text import Text

from kubectl_hami.answer.top import Row
from kubectl_hami.show.table import Cell, mib, percent, safe, seconds, table

_NAMES: Final = {
    "nodes": ("NODE", ">DEVICES"),
    "devices": ("NODE", ">#", "MODEL"),
    "pods": ("NAMESPACE", "POD", "NODE", "DEVICE"),
}
_WIDE: Final = {"nodes": ("MODELS",), "devices": ("UUID", "MODE"), "pods": ("UUIDS",)}
_FULL: Final = 0.9
"""From which part on a quantity is marked."""


def top_table(of: str, rows: Sequence[Row], *, is_wide: bool = False, has_clusters: bool = False) -> Table:
    """Return *rows* of `nodes`, `devices` or `pods`; memory in MiB, compute in percent of one device."""
    is_pods = of == "pods"
    heads = [*(("CLUSTER",) if has_clusters else ()), *_NAMES[of], ">SHARES"]
    heads += [">MEMORY MiB", ">USED"] if is_pods else [">MEMORY MiB", ">GRANTED", ">USED"]
    heads += [">CORES %", ">BUSY"] if is_pods else [">CORES %", ">GRANTED", ">BUSY"]
    heads += [">THROTTLED", *(_WIDE[of] if is_wide else ()), "~STATE"]
    return table(heads, [_cells(row, is_pods, is_wide, has_clusters) for row in rows])


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
