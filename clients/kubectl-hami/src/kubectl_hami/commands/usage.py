"""
`kubectl hami usage`: who held and used how many device-hours.

The monitors keep sums. What was added to them since a moment is known from Prometheus, or from an archive of then.
"""

import argparse
import re
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from rich.table import Table

from kubectl_hami.answer.usage import COUNTERS, ORDERS, DeviceHours, Total, hours, ordered, query, totals
from kubectl_hami.commands.command_line import (
    UNKNOWN,
    WELL,
    UsageError,
    add_clusters,
    add_namespace,
    add_output,
    read_each,
    sources,
    warn,
)
from kubectl_hami.read.archive import load
from kubectl_hami.read.collect import collect
from kubectl_hami.read.prometheus import asked
from kubectl_hami.read.source import Source
from kubectl_hami.show.form import written
from kubectl_hami.show.table import percent, put, table
from kubectl_hami.values.cluster import ClusterSnapshot

_SPAN: Final = re.compile(r"(\d{1,6})([mhdw])")
_UNIT_SECONDS: Final = {"m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_LEAST_SECONDS: Final = 300
"""Below this, Prometheus has too few points to say how much a counter has grown."""
_TIMEOUT_SECONDS: Final = 120.0
"""As long as Prometheus itself works on one query."""
_LIMIT_BYTES: Final = 64 << 20
_OF_DEVICES: Final = frozenset(("models", "nodes"))
"""What is no namespace's."""
_HEADS: Final = {
    "namespaces": ("NAMESPACE", "MODEL", ">HELD h", ">USED h", ">USED %"),
    "pods": ("NAMESPACE", "POD", "MODEL", ">HELD h", ">USED h", ">USED %"),
    "models": ("MODEL", ">OFFERED h", ">HELD h", ">IDLE h", ">HELD %", ">USED h"),
    "nodes": ("NODE", "MODEL", ">OFFERED h", ">HELD h", ">IDLE h", ">HELD %", ">USED h"),
}


def add(commands: Any) -> None:
    """Add the command to *commands*."""
    command = commands.add_parser("usage", help="who held and used how many device-hours")
    command.set_defaults(command=run)
    command.add_argument(
        "of",
        nargs="?",
        choices=tuple(COUNTERS),
        default="namespaces",
        metavar=f"{{{','.join(COUNTERS)}}}",
        help="default: namespaces",
    )
    add_namespace(command, "only this namespace")
    command.add_argument(
        "--since",
        default="",
        metavar="SPAN|FILE",
        help="such as 24h or 30d, with --prometheus; or an archive that `bundle` took; default: since counting began",
    )
    command.add_argument("--prometheus", default="", metavar="URL", help="a server that scrapes the monitors")
    command.add_argument("--sort-by", choices=tuple(ORDERS), default="held", help="most first; default: held")
    add_output(command)
    add_clusters(command)


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    if options.of in _OF_DEVICES and options.namespace:
        raise UsageError("a device is not a namespace's: give -n with namespaces or pods")
    problems: list[str] = []
    since, found = from_prometheus(options) if options.prometheus else from_monitors(options, problems)
    found = [(cluster, ordered(rows, options.sort_by)) for cluster, rows in found]
    is_unknown = bool(problems) and not any(rows for _, rows in found)
    if is_unknown and options.output in {"table", "wide"}:
        sys.stdout.write("device time is unknown\n")
    else:
        show(since, found, options)
    warn(problems)
    return UNKNOWN if is_unknown else WELL


Found = Sequence[tuple[str, list[DeviceHours]]]
"""The rows of each cluster, by its name."""


def from_prometheus(options: argparse.Namespace) -> tuple[datetime, Found]:
    """
    Return since when what was counted, as Prometheus knows it.

    Raises:
        UsageError: the options contradict each other.
        PrometheusError: it does not answer.
    """
    if options.context or options.all_contexts or options.archive:
        raise UsageError("--prometheus is read alone: leave out --context, --all-contexts and --from")
    seconds = span(options.since)
    if seconds is None:
        raise UsageError(f"--since {options.since or '(not given)'}: with --prometheus write a span such as 24h")
    found: list[Total] = []
    for counter in COUNTERS[options.of]:
        promql = query(counter, options.of, seconds)
        answer = asked(
            options.prometheus, "query", _read, timeout_seconds=_TIMEOUT_SECONDS, limit_bytes=_LIMIT_BYTES, query=promql
        )
        found += [(counter, labels, grown) for labels, grown in answer]
    since = datetime.now(UTC) - timedelta(seconds=seconds)
    return since, [(options.prometheus, hours(options.of, found, options.namespace))]


def _read(result: Any) -> list[tuple[dict[str, str], float]]:
    """Return the labels and the value of each series of an instant query."""
    return [({str(k): str(v) for k, v in one["metric"].items()}, float(one["value"][1])) for one in result]


def from_monitors(options: argparse.Namespace, problems: list[str]) -> tuple[datetime | None, Found]:
    """
    Return since when what was counted, as the monitors know it; None is since counting began.

    Raises:
        UsageError: the monitors do not know.
        ReadError: no cluster, or no archive, can be read.
    """
    earlier = earlier_of(options.since)

    def read(source: Source) -> tuple[str, list[DeviceHours]]:
        """Return the rows of a cluster."""
        cluster = collect(source, options.namespace)
        problems.extend(cluster.problems)
        found = list(totals(options.of, cluster, earlier, problems))
        return source.name, hours(options.of, found, options.namespace)

    named = sources(options)
    if earlier and len(named) > 1:
        raise UsageError("--since FILE compares one cluster with its archive: give one --context")
    return earlier.taken_at if earlier else None, read_each(named, read, problems)


def earlier_of(since: str) -> ClusterSnapshot | None:
    """
    Return what the archive *since* saw; None for "".

    Raises:
        UsageError: it is a span, or no file of that name exists.
        ReadError: it is no archive.
    """
    if not since:
        return None
    if span(since) is not None:
        raise UsageError(
            f"--since {since}: the monitors keep sums without their history; add --prometheus URL, "
            "or give --since an archive that `kubectl hami bundle` took then"
        )
    if not Path(since).is_file():
        raise UsageError(f"--since {since}: neither a span such as 24h nor an archive of `kubectl hami bundle`")
    return collect(load(since))


def span(text: str) -> int | None:
    """
    Return the seconds of a span; None if it is none.

    >>> [span(text) for text in ("24h", "2w", "1.5h")]
    [86400, 1209600, None]

    Raises:
        UsageError: it is shorter than counters can show.
    """
    found = _SPAN.fullmatch(text)
    if not found:
        return None
    seconds = int(found[1]) * _UNIT_SECONDS[found[2]]
    if seconds < _LEAST_SECONDS:
        raise UsageError(f"--since {text}: at least {_LEAST_SECONDS // 60}m")
    return seconds


def show(since: datetime | None, found: Found, options: argparse.Namespace) -> None:
    """Print the rows: as a table, or whole."""
    rows = [(cluster, row) for cluster, each in found for row in each]
    if options.output in {"json", "yaml"}:
        clusters = [{"cluster": cluster, "usage": each} for cluster, each in found]
        sys.stdout.write(written({"since": since, "clusters": clusters}, options.output))
    elif rows:
        put(usage_table(options.of, rows, has_clusters=len(found) > 1), has_heads=not options.no_headers)
    else:
        sys.stdout.write("no device time was counted\n")


def usage_table(of: str, found: Sequence[tuple[str, DeviceHours]], *, has_clusters: bool = False) -> Table:
    """Return a row for each of *found*, a cluster and its hours, of a table of COUNTERS."""
    heads = [*(("CLUSTER",) if has_clusters else ()), *_HEADS[of]]
    return table(heads, [[*((cluster,) if has_clusters else ()), *_cells(of, row)] for cluster, row in found])


def _cells(of: str, row: DeviceHours) -> list[str]:
    if of in _OF_DEVICES:
        part = _part(row.held_hours, row.offered_hours)
        return [
            *((row.node or "",) if of == "nodes" else ()),
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
