"""
`kubectl hami top`: what is offered, granted, used and throttled.
"""

import argparse
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.text import Text

from kubectl_hami.answer.narrow import narrowed
from kubectl_hami.answer.state import state_of
from kubectl_hami.answer.top import ORDERS, Row, device_rows, namespace_rows, node_rows, ordered, pod_rows
from kubectl_hami.commands.command_line import (
    WELL,
    UsageError,
    add_clusters,
    add_namespace,
    add_output,
    add_selector,
    read_each,
    sources,
    wanted_pods,
    warn,
)
from kubectl_hami.commands.watch import Rows, Watched, add_watch, watch
from kubectl_hami.read.collect import collect
from kubectl_hami.read.source import Source
from kubectl_hami.show.form import written
from kubectl_hami.show.table import Cell, WholeTable, mib, percent, put, seconds, table
from kubectl_hami.values.cluster import ClusterState

_ROWS: Final[dict[str, Callable[[ClusterState], Iterator[Row]]]] = {
    "nodes": node_rows,
    "devices": device_rows,
    "pods": pod_rows,
    "namespaces": namespace_rows,
}
_WITH_SHARES: Final = frozenset(("pods", "namespaces"))
"""What has grants and offers nothing."""

_OF: Final = f"{{{','.join(_ROWS)}}}"
_NAMES: Final = {
    "nodes": ("NODE", ">DEVICES"),
    "devices": ("NODE", ">#", "MODEL"),
    "pods": ("NAMESPACE", "POD", "NODE", "DEVICE"),
    "namespaces": ("NAMESPACE", ">PODS", "QUOTA LEFT"),
}
_ROOM: Final = (">WHOLE", ">HALVES", ">QUARTERS", ">EIGHTHS", ">FRAGMENTED %")
"""How many more shares of each shape fit, and which part of the free memory is on devices with shares."""
_WIDE: Final = {
    "nodes": (*_ROOM, "KIND", "MODELS"),
    "devices": (">TEMP C", ">POWER W", "UUID", "MODE"),
    "pods": ("UUIDS",),
    "namespaces": (),
}
_SPARE: Final = (
    *(
        "UUIDS",
        "UUID",
        "MODELS",
        "KIND",
        "MODE",
        "POWER W",
        "TEMP C",
        "EIGHTHS",
        "QUARTERS",
        "HALVES",
        "FRAGMENTED %",
        "WHOLE",
        "THROTTLED",
        "SHARES",
        "MODEL",
        "DEVICE",
        "DEVICES",
    ),
    *("BUSY", "BUSY %", "CORES %", "GRANTED %", "USED", "MEMORY MiB", "GRANTED MiB", "USED MiB"),
)
"""The columns that a narrow screen does without, the first ones first."""
_FULL: Final = 0.9
"""From which part on a quantity is marked."""


def add(commands: Any) -> None:
    """Add the command to *commands*."""
    command = commands.add_parser("top", help="what is offered, granted, used and throttled")
    command.set_defaults(command=run)
    command.add_argument("of", nargs="?", choices=tuple(_ROWS), default="devices", metavar=_OF, help="default: devices")
    add_namespace(command, "only what Pods of this namespace hold")
    add_selector(command)
    command.add_argument("--node", default="", help="only this Node")
    command.add_argument("--model", default="", help="only devices with this in their model")
    command.add_argument("--sort-by", choices=tuple(ORDERS), default="name", help="most first; default: name")
    add_watch(command, 2)
    add_output(command)
    add_clusters(command)


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    if options.selector and options.of == "namespaces":
        raise UsageError("a quota is of all Pods of a namespace: give -l with pods, devices or nodes")
    found = sources(options)
    if options.watch:
        read, show_all = partial(look, found, options), partial(show, options=options)
        watch(Watched(read, show_all, lambda states, width: screen_rows(states, options, width)), options)
    problems: list[str] = []
    show(look(found, options, problems), options)
    warn(problems)
    return WELL


def look(found: Sequence[Source], options: argparse.Namespace, problems: list[str]) -> list[ClusterState]:
    """Return the state of each cluster, of what *options* ask for; add to *problems* what could not be read."""

    def read(source: Source) -> ClusterState:
        wanted = replace(wanted_pods(source, options), node=options.node, model=options.model)
        state = state_of(collect(source, options.namespace, with_quotas=options.of == "namespaces"))
        problems.extend(state.problems)
        return narrowed(state, wanted)

    return read_each(found, read, problems)


def show(states: Sequence[ClusterState], options: argparse.Namespace) -> None:
    """Print *states*: as a table, or whole."""
    if options.output in {"json", "yaml"}:
        sys.stdout.write(written({"clusters": states}, options.output))
    elif any(state.nodes or state.namespaces for state in states) or options.watch:
        is_wide, has_clusters = options.output == "wide", len(states) > 1
        put(
            top_table(options.of, _rows(states, options), is_wide=is_wide, has_clusters=has_clusters),
            has_heads=not options.no_headers,
        )
    else:
        is_narrowed = options.namespace or options.selector or options.node or options.model
        sys.stdout.write(f"no {options.of} match\n" if is_narrowed else "no Node offers devices\n")


def screen_rows(states: Sequence[ClusterState], options: argparse.Namespace, width: int) -> Rows:
    """Return the rows of *states* for a screen of *width* columns."""
    rows, is_wide, has_clusters = _rows(states, options), options.output == "wide", len(states) > 1
    return Rows(
        len(rows),
        lambda count: top_screen(options.of, rows[:count], width, is_wide=is_wide, has_clusters=has_clusters),
    )


def _rows(states: Sequence[ClusterState], options: argparse.Namespace) -> list[Row]:
    return [row for state in states for row in ordered(_ROWS[options.of](state), options.sort_by)]


def top_screen(
    of: str, rows: Sequence[Row], width: int, *, is_wide: bool = False, has_clusters: bool = False
) -> RenderableType:
    """Return the parts of `top_table` that fit a screen of *width* columns without wrapping, and those that do not."""
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
    Return *rows* of `nodes`, `devices`, `pods` or `namespaces`, without the columns *hidden*.

    Memory is in MiB, compute in percent of one device.
    """
    heads = _heads(of, is_wide, has_clusters)
    kept = [number for number, head in enumerate(heads) if head.lstrip(">~") not in hidden]
    cells = [_cells(row, of in _WITH_SHARES, is_wide, has_clusters) for row in rows]
    return table([heads[number] for number in kept], [[row[number] for number in kept] for row in cells])


def _heads(of: str, is_wide: bool, has_clusters: bool) -> list[str]:
    has_shares = of in _WITH_SHARES
    heads = [*(("CLUSTER",) if has_clusters else ()), *_NAMES[of], ">SHARES"]
    heads += [">MEMORY MiB", ">USED"] if has_shares else [">MEMORY MiB", ">GRANTED MiB", ">USED MiB"]
    heads += [">CORES %", ">BUSY"] if has_shares else [">CORES %", ">GRANTED %", ">BUSY %"]
    return [*heads, ">THROTTLED", *(_WIDE[of] if is_wide else ()), "~STATE"]


def _cells(row: Row, has_shares: bool, is_wide: bool, has_clusters: bool) -> list[Cell]:
    memory: list[Cell] = [str(row.offered_memory_mib)]
    cores: list[Cell] = [str(row.offered_core_percent)]
    if not has_shares:
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
        Text(row.state, style="red"),
    ]


def _marked(text: str, amount: float | None, whole: float) -> Text:
    """Return *text*, coloured when *amount* is most of *whole*, and otherwise when it is more."""
    if amount is None or not whole or amount < _FULL * whole:
        return Text(text)
    return Text(text, style="red" if amount > whole else "yellow")
