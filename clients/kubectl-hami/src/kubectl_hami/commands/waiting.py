"""
`kubectl hami waiting`: who waits for devices, how long, why, and what would help.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, Final

from rich.table import Table

from kubectl_hami.answer.narrow import narrowed
from kubectl_hami.answer.state import state_of
from kubectl_hami.answer.waits import Remedy, remedies
from kubectl_hami.commands.command_line import (
    WELL,
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
from kubectl_hami.read.collect import collect_pods
from kubectl_hami.read.scheduler import explanation
from kubectl_hami.read.source import ReadError, Source
from kubectl_hami.show.form import written
from kubectl_hami.show.table import put, seconds, table
from kubectl_hami.values.cluster import ClusterState, Waiting

_EXPLAINED: Final = 20
"""Pods for which the scheduler is asked what would help; each question costs it some work."""
_INTERVAL_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class Waits:
    """Who waits in one cluster, and what would help."""

    state: ClusterState
    remedies: Mapping[tuple[str, str], Remedy]
    """By namespace and Pod."""

    def help_for(self, pod: Waiting) -> Remedy | None:
        """Return what would help *pod*, None if nobody has said."""
        return self.remedies.get((pod.namespace, pod.pod))


def add(commands: Any) -> None:
    """Add the command to *commands*."""
    command = commands.add_parser("waiting", help="who waits for devices, how long, why, and what would help")
    command.set_defaults(command=run)
    add_namespace(command, "only Pods of this namespace")
    add_selector(command)
    add_watch(command, _INTERVAL_SECONDS)
    add_output(command)
    add_clusters(command)


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    found = sources(options)
    if options.watch:
        read, show_all = partial(look, found, options), partial(show, options=options)
        watch(Watched(read, show_all, lambda seen, _: screen_rows(seen, options)), options)
    problems: list[str] = []
    show(look(found, options, problems), options)
    warn(problems)
    return WELL


def look(found: Sequence[Source], options: argparse.Namespace, problems: list[str]) -> list[Waits]:
    """Return who waits in each cluster, and what would help; add to *problems* what could not be read."""

    def read(source: Source) -> Waits:
        wanted = wanted_pods(source, options)
        state = narrowed(state_of(collect_pods(source, options.namespace)), wanted)
        problems.extend(state.problems)
        return Waits(state, _remedies(source, state, problems))

    return read_each(found, read, problems)


def _remedies(source: Source, state: ClusterState, problems: list[str]) -> dict[tuple[str, str], Remedy]:
    """Return the scheduler's remedies for each Pod, and one problem if the scheduler does not answer."""
    found = {}
    for one in state.waiting[:_EXPLAINED]:
        try:
            found[one.namespace, one.pod] = remedies(explanation(source, one.namespace, one.pod))
        except ReadError as error:
            if error.status == 404:  # it has been deleted since
                continue
            problems.append(f"what would help is unknown: {error}")
            break
    return found


def show(seen: Sequence[Waits], options: argparse.Namespace) -> None:
    """Print who waits: as a table, or whole."""
    if options.output in {"json", "yaml"}:
        clusters = [
            {
                "cluster": waits.state.cluster,
                "takenAt": waits.state.taken_at,
                "waiting": [{"pod": one, "help": waits.help_for(one)} for one in waits.state.waiting],
            }
            for waits in seen
        ]
        sys.stdout.write(written({"clusters": clusters}, options.output))
    elif any(waits.state.waiting for waits in seen):
        put(waiting_table(seen, is_wide=options.output == "wide"), has_heads=not options.no_headers)
    else:
        sys.stdout.write("no Pod waits for devices\n")


def screen_rows(seen: Sequence[Waits], options: argparse.Namespace) -> Rows:
    """Return a row for each Pod that waits."""
    count = sum(len(waits.state.waiting) for waits in seen)
    return Rows(count, lambda most: waiting_table(seen, is_wide=options.output == "wide", most=most))


def waiting_table(seen: Sequence[Waits], *, is_wide: bool = False, most: int | None = None) -> Table:
    """Return a row for each Pod that waits, for the first *most*; wide rows have what it asks."""
    has_clusters = len(seen) > 1
    rows = []
    every = ((waits, one) for waits in seen for one in waits.state.waiting)
    for cluster, one in islice(every, most):
        state, remedy = cluster.state, cluster.help_for(one)
        rows.append(
            (
                *((state.cluster,) if has_clusters else ()),
                one.namespace,
                one.pod,
                seconds((state.taken_at - one.since).total_seconds()),
                *((one.asks,) if is_wide else ()),
                _cause(one, remedy),
                _help(remedy),
            )
        )
    heads = [*(("CLUSTER",) if has_clusters else ()), "NAMESPACE", "POD", ">AGE", *(("ASKS",) if is_wide else ())]
    return table([*heads, "~CAUSE", "~IT WOULD FIT"], rows)


def _cause(one: Waiting, remedy: Remedy | None) -> str:
    cause = (remedy and (remedy.cause or remedy.kube_scheduler)) or one.cause or "the scheduler has not said"
    return f"{cause}; {remedy.gang}" if remedy and remedy.gang else cause


def _help(remedy: Remedy | None) -> str:
    if remedy is None or remedy.verdict not in {"fits", "reserved", "bound", "refused"}:
        return "-"
    if remedy.node:
        limit = f", unless kube-scheduler objects ({', '.join(remedy.not_judged)})" if remedy.not_judged else ""
        return f"now, on node {remedy.node}{limit}"
    if not remedy.changes:
        return "by no change that was found"
    more = f", or by {len(remedy.changes) - 1} other changes" if len(remedy.changes) > 1 else ""
    return remedy.changes[0] + more.replace("1 other changes", "another change")
