"""
`kubectl hami grants`: what was promised against what the container really has.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from rich.table import Table
from rich.text import Text

from kubectl_hami.answer.grants import Comparison, Verdict, comparisons
from kubectl_hami.answer.narrow import narrowed
from kubectl_hami.answer.state import state_of
from kubectl_hami.commands.command_line import (
    BAD,
    WELL,
    UsageError,
    add_clusters,
    add_namespace,
    add_output,
    add_selector,
    namespace_of,
    read_each,
    sources,
    wanted_pods,
    warn,
)
from kubectl_hami.read.collect import collect
from kubectl_hami.read.source import Source
from kubectl_hami.show.form import written
from kubectl_hami.show.table import mib, put, table
from kubectl_hami.values.cluster import ClusterState

_STYLES: Final = {Verdict.KEPT.value: "green", Verdict.UNKNOWN.value: "yellow", Verdict.BROKEN.value: "red"}


def add(commands: Any) -> None:
    """Add the command to *commands*."""
    command = commands.add_parser("grants", help="what was promised against what the container really has")
    command.set_defaults(command=run)
    command.add_argument("pod", nargs="?", default="", metavar="POD", help="default: every Pod")
    add_namespace(command, "default: all, for a POD that of the context")
    add_selector(command)
    add_output(command)
    add_clusters(command)


def run(options: argparse.Namespace) -> int:
    """Run the command: 1 if a promise is broken."""
    each: list[tuple[str, list[Comparison]]] = []
    problems: list[str] = []
    found = sources(options)

    def read(source: Source) -> ClusterState:
        """Return the state of a cluster, of the namespace that is asked for."""
        wanted = wanted_pods(source, options)
        if options.pod:
            wanted = replace(wanted, namespace=namespace_of(source, options))
        return narrowed(state_of(collect(source, wanted.namespace)), wanted)

    for state in read_each(found, read, problems):
        each.append((state.cluster, list(comparisons(state, options.pod))))
        problems += state.problems
    warn(problems)
    every = [one for _, of_cluster in each for one in of_cluster]
    if options.pod and not every:
        raise UsageError(f"no Pod {options.pod} that holds a device was found; write its namespace after -n")
    if options.output in {"json", "yaml"}:
        clusters = [{"cluster": cluster, "grants": of_cluster} for cluster, of_cluster in each]
        sys.stdout.write(written({"clusters": clusters}, options.output))
    elif every:
        put(
            grants_table(every, is_wide=options.output == "wide", has_clusters=len(found) > 1),
            has_heads=not options.no_headers,
        )
    else:
        sys.stdout.write("no Pod holds a device\n")
    return BAD if any(one.verdict == Verdict.BROKEN.value for one in every) else WELL


def grants_table(found: Sequence[Comparison], *, is_wide: bool = False, has_clusters: bool = False) -> Table:
    """Return a row for each share; memory in MiB, compute in percent of one device."""
    heads = [*(("CLUSTER",) if has_clusters else ()), "NAMESPACE", "POD", "CONTAINER", "NODE", ">#"]
    heads += ["UUID"] if is_wide else []
    heads += [">GRANTED MiB", ">LIMIT", ">USED", ">DRIVER", ">CORES %", "VERDICT", "~WHY"]
    rows = [
        (
            *((one.cluster,) if has_clusters else ()),
            one.share.namespace,
            one.share.pod,
            one.share.container,
            one.node,
            str(one.index) if one.index >= 0 else "-",
            *((one.device,) if is_wide else ()),
            str(one.share.memory_mib),
            mib(one.share.limit_memory_mib),
            mib(one.share.used_memory_mib),
            mib(one.share.driver_memory_mib),
            str(one.share.core_percent),
            Text(one.verdict, style=_STYLES[one.verdict]),
            one.why,
        )
        for one in found
    ]
    return table(heads, rows)
