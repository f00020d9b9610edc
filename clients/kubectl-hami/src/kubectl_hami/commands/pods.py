"""
`kubectl hami pods`: who is on a device or a Node, and what moves them away.
"""

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from rich.table import Table

from hamicommon.cli.terminal import safe
from kubectl_hami.answer.residents import Place, place
from kubectl_hami.answer.state import state_of
from kubectl_hami.commands.command_line import WELL, UsageError, add_clusters, add_output, read_each, sources, warn
from kubectl_hami.read.collect import collect
from kubectl_hami.read.source import Source
from kubectl_hami.show.form import written
from kubectl_hami.show.table import mib, put, table


def add(commands: Any) -> None:
    """Add the command to *commands*."""
    command = commands.add_parser("pods", help="who is on a device or a Node, and what moves them away")
    command.set_defaults(command=run)
    command.add_argument("place", metavar="DEVICE|NODE", help="UUID of a device, NODE/INDEX, or name of a Node")
    add_output(command)
    add_clusters(command)


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    problems: list[str] = []

    def read(source: Source) -> Place | None:
        cluster = collect(source)
        state = state_of(cluster)
        problems.extend(state.problems)
        return place(state, cluster.pods, options.place)

    found = [one for one in read_each(sources(options), read, problems) if one is not None]
    warn(problems)
    if not found:
        raise UsageError(f"{options.place}: no Node and no device has this name; `top devices -o wide` lists them")
    if options.output in {"json", "yaml"}:
        sys.stdout.write(written({"clusters": found}, options.output))
        return WELL
    for one in found:
        _show(one, options, has_clusters=len(found) > 1)
    return WELL


def _show(found: Place, options: argparse.Namespace, *, has_clusters: bool) -> None:
    if has_clusters:
        _say(found.cluster)
    if not found.residents:
        _say(f"no Pod is on {options.place}")
        return
    put(residents_table(found, is_wide=options.output == "wide"), has_heads=not options.no_headers)
    if not options.no_headers:
        _say("\nKeep new Pods out, then move these away:", *(f"  {move}" for move in found.moves))


def _say(*lines: str) -> None:
    sys.stdout.writelines(f"{safe(line)}\n" for line in lines)


def residents_table(found: Place, *, is_wide: bool = False) -> Table:
    """Return a row for each share."""
    heads: Sequence[str] = ("NAMESPACE", "POD", "CONTAINER", "OWNER", ">#", ">MEMORY MiB", ">USED", ">CORES %")
    rows = [
        (
            one.share.namespace,
            one.share.pod,
            one.share.container,
            one.owner or "-",
            str(one.index) if one.index >= 0 else "-",
            str(one.share.memory_mib),
            mib(one.share.used_memory_mib),
            str(one.share.core_percent),
            *((one.device,) if is_wide else ()),
        )
        for one in found.residents
    ]
    return table((*heads, *(("UUID",) if is_wide else ())), rows)
