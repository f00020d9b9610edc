"""
`kubectl hami waiting`: who waits for devices, how long, why, and what would help.
"""

import argparse
import sys
from collections.abc import Sequence
from typing import Any, Final

from kubectl_hami.answer.narrow import Filter, narrowed
from kubectl_hami.answer.remedies import remedies
from kubectl_hami.answer.state import state_of
from kubectl_hami.commands.frame import WELL, add_clusters, read_each, sources, warn
from kubectl_hami.read.collect import collect_pods
from kubectl_hami.read.scheduler import explanation
from kubectl_hami.read.source import ReadError, Source
from kubectl_hami.show.form import written
from kubectl_hami.show.table import put
from kubectl_hami.show.waiting import waiting_table
from kubectl_hami.values.cluster import ClusterState
from kubectl_hami.values.wait import Remedy

_EXPLAINED: Final = 20
"""Pods for which the scheduler is asked what would help; each question costs it some work."""


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
    """Return what would help each Pod, as far as the scheduler says; a scheduler that says nothing is one problem."""
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
