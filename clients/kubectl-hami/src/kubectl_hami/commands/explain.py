"""
`kubectl hami explain` and `simulate`: the scheduler's own answers, without a command in its container.
"""

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from kubectl_hami.commands.frame import BAD, WELL, UsageError, add_clusters, namespace_of, one_source
from kubectl_hami.commands.manifests import pods_in
from kubectl_hami.commands.offline import simulated
from kubectl_hami.read.archive import Archive
from kubectl_hami.read.scheduler import explanation, simulation
from kubectl_hami.show.report import report_text
from kubectl_hami.show.table import console


def add(commands: Any) -> None:
    """Add both commands to *commands*."""
    command = commands.add_parser("explain", help="why a Pod is where it is, or has no Node, and what would help")
    command.set_defaults(command=explain)
    command.add_argument("pod", metavar="POD", help="name of the Pod")
    _add_common(command)
    command = commands.add_parser("simulate", help="which Node and devices new Pods would get")
    command.set_defaults(command=simulate)
    command.add_argument(
        "-f",
        "--file",
        action="append",
        required=True,
        help="manifest of Pods, or of objects that create them; -: standard input; may be repeated",
    )
    _add_common(command)


def _add_common(command: argparse.ArgumentParser) -> None:
    command.add_argument("-n", "--namespace", default="", help="default: that of the context")
    command.add_argument("--all", action="store_true", help="print a row for every Node; -o wide is the same")
    command.add_argument("-o", "--output", choices=("text", "wide", "json", "yaml"), default="text", action=_Output)
    add_clusters(command)


class _Output(argparse.Action):
    """Take `wide` for `text` with all rows."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: str | None = None
    ) -> None:
        """Set the options."""
        namespace.output = "text" if values == "wide" else values
        namespace.all = namespace.all or values == "wide"


def explain(options: argparse.Namespace) -> int:
    """Run `explain`."""
    name = options.pod.rpartition("/")[2]
    if not name or options.pod not in {name, f"pod/{name}", f"pods/{name}"}:
        raise UsageError(f"{options.pod!r} is not the name of a Pod; write POD or pod/POD, and the namespace after -n")
    source = one_source(options)
    return _show([explanation(source, namespace_of(source, options), name)], options, is_list=False)


def simulate(options: argparse.Namespace) -> int:
    """Run `simulate`."""
    source = one_source(options)
    if isinstance(source, Archive):
        return simulated(source, options)
    return _show(simulation(source, pods_in(options.file, namespace_of(source, options))), options, is_list=True)


def _show(reports: Sequence[dict[str, Any]], options: argparse.Namespace, *, is_list: bool) -> int:
    """Print *reports*, and return the exit code."""
    text = report_text(reports, options.output, console(), is_whole=options.all, is_list=is_list)
    sys.stdout.write(text)
    return BAD if any(report.get("verdict") == "refused" for report in reports) else WELL
