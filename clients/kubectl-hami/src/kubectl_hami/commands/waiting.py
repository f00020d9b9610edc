"""
`kubectl hami waiting`: who waits for devices, how long, why, and what would help.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

from rich.table import Table

from kubectl_hami.answer.narrow import Filter, narrowed
from kubectl_hami.answer.state import state_of
from kubectl_hami.answer.waits import Remedy, remedies
from kubectl_hami.commands.command_line import WELL, add_clusters, read_each, sources, warn
from kubectl_hami.read.collect import collect_pods
from kubectl_hami.read.scheduler import explanation
from kubectl_hami.read.source import ReadError, Source
from kubectl_hami.show.form import written
from kubectl_hami.show.table import put, seconds, table
from kubectl_hami.values.cluster import ClusterState

_EXPLAINED: Final = 20
"""Pods for which the scheduler is asked what would help; each question costs it some work."""
Helped = Mapping[tuple[str, str], Remedy]
"""What would help, by namespace and Pod."""


def add(commands: Any) -> None:
    """Add the command to *commands*."""
    command = commands.add_parser("waiting", help="who waits for devices, how long, why, and what would help")
    command.set_defaults(command=run)
    command.add_argument("-n", "--namespace", default="", help="only Pods of this namespace")
    command.add_argument("-o", "--output", choices=("table", "wide", "json", "yaml"), default="table")
    add_clusters(command)


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    problems: list[str] = []

    def read(source: Source) -> tuple[ClusterState, dict[tuple[str, str], Remedy]]:
        """Return who waits in a cluster, and what would help."""
        state = narrowed(state_of(collect_pods(source, options.namespace)), Filter(options.namespace))
        problems.extend(state.problems)
        return state, _remedies(source, state, problems)

    found = read_each(sources(options), read, problems)
    _show([state for state, _ in found], [helped for _, helped in found], options)
    warn(problems)
    return WELL


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


def _show(
    states: Sequence[ClusterState], helped: Sequence[dict[tuple[str, str], Remedy]], options: argparse.Namespace
) -> None:
    if options.output in {"json", "yaml"}:
        clusters = [
            {
                "cluster": state.cluster,
                "takenAt": state.taken_at,
                "waiting": [{"pod": one, "help": found.get((one.namespace, one.pod))} for one in state.waiting],
            }
            for state, found in zip(states, helped, strict=True)
        ]
        sys.stdout.write(written({"clusters": clusters}, options.output))
    elif any(state.waiting for state in states):
        put(waiting_table(states, helped, is_wide=options.output == "wide"))
    else:
        sys.stdout.write("no Pod waits for devices\n")


def waiting_table(states: Sequence[ClusterState], helped: Sequence[Helped], *, is_wide: bool = False) -> Table:
    """Return a row for each Pod that waits; wide rows have what it asks."""
    has_clusters = len(states) > 1
    rows = []
    for state, found in zip(states, helped, strict=True):
        for one in state.waiting:
            remedy = found.get((one.namespace, one.pod))
            rows.append(
                (
                    *((state.cluster,) if has_clusters else ()),
                    one.namespace,
                    one.pod,
                    seconds((state.taken_at - one.since).total_seconds()),
                    *((one.asks,) if is_wide else ()),
                    (remedy and (remedy.cause or remedy.kube_scheduler)) or one.cause or "the scheduler has not said",
                    _help(remedy),
                )
            )
    heads = [*(("CLUSTER",) if has_clusters else ()), "NAMESPACE", "POD", ">AGE", *(("ASKS",) if is_wide else ())]
    return table([*heads, "~CAUSE", "~IT WOULD FIT"], rows)


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
