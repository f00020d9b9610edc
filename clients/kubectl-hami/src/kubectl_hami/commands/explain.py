"""
`kubectl hami explain`, `simulate` and `fits`: the scheduler's own answers, without a command in its container.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from hamicommon.cli.explanation import does_fit, is_well, page
from hamicommon.cli.manifests import documents, pods_of, read_text, with_namespace
from hamicommon.pod.shape import COUNT, COUNT_LIMIT
from kubectl_hami.commands.command_line import BAD, WELL, UsageError, add_clusters, namespace_of, one_source
from kubectl_hami.read.archive import Archive
from kubectl_hami.read.scheduler import explanation, simulation
from kubectl_hami.show.form import written
from kubectl_hami.show.table import console

_PAPER_COLUMNS = 120
"""The width of output that goes to no terminal, as the scheduler's own command has it."""

_PROGRAM: Final = "hami-scheduler"
"""It decides about an archive, because the client has none of its code."""


def add(commands: Any) -> None:
    """Add the commands to *commands*."""
    command = commands.add_parser("explain", help="why a Pod is where it is, or has no Node, and what would help")
    command.set_defaults(command=explain)
    command.add_argument("pod", metavar="POD", help="name of the Pod")
    _add_common(command)
    for name, run, text in (
        ("simulate", simulate, "which Node and devices new Pods would get"),
        ("fits", fits, "how many more such Pods fit, now or after buying Nodes"),
    ):
        command = commands.add_parser(name, help=text)
        command.set_defaults(command=run)
        command.add_argument(
            "-f",
            "--file",
            action="append",
            required=True,
            help="manifest of Pods, or of objects that create them; -: standard input; may be repeated",
        )
        command.add_argument(
            "--add",
            action="append",
            default=[],
            metavar="NODES",
            help="imagine these Nodes, too, such as '2x8 NVIDIA-L40S:49140': NODESxDEVICES MODEL:MIB; may be repeated",
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
    pods = pods_in(options.file, namespace_of(source, options))
    return _show(simulation(source, pods, options.add), options, is_list=True)


def fits(options: argparse.Namespace) -> int:
    """Run `fits`."""
    source = one_source(options)
    if isinstance(source, Archive):
        return simulated(source, options)
    pods = pods_in(options.file, namespace_of(source, options))
    if len(pods) != 1:
        raise UsageError(f"{', '.join(options.file)}: creates {len(pods)} kinds of Pods; fits counts one")
    reports = simulation(source, [{**pods[0], COUNT: COUNT_LIMIT}], options.add)
    _show(reports, options, is_list=False)
    return WELL if does_fit(reports[0]) else BAD


def simulated(archive: Archive, options: argparse.Namespace) -> int:
    """
    Run the scheduler's `simulate` or `fits` on the snapshot in *archive*, and return its exit code.

    Raises:
        UsageError: the program is not on PATH, or the archive has no snapshot.
    """
    if options.output == "yaml":
        raise UsageError(f"{options.name} on an archive prints text or json")
    if not archive.snapshot:
        raise UsageError("the archive has no snapshot: the scheduler did not answer when it was taken")
    beside = Path(sys.argv[0]).with_name(_PROGRAM)
    program = str(beside) if os.access(beside, os.X_OK) else shutil.which(_PROGRAM)
    if program is None:
        raise UsageError(f"{options.name} on an archive needs {_PROGRAM} on PATH: the image of the scheduler has it")
    with tempfile.NamedTemporaryFile(suffix=".json") as snapshot:
        snapshot.write(archive.snapshot)
        snapshot.flush()
        command = [program, options.name, "--snapshot", snapshot.name, "-n", options.namespace or archive.namespace]
        command += [
            "-o",
            options.output,
            *(["--all"] if options.all else []),
            *(f"--add={text}" for text in options.add),
        ]
        command += [part for file in options.file for part in ("-f", file)]
        return subprocess.run(command, check=False).returncode


def pods_in(files: Sequence[str], namespace: str) -> list[dict[str, Any]]:
    """
    Return the Pods that *files* would create, in *namespace* if they name none.

    Raises:
        UsageError: none of them creates a Pod.
        ManifestError: a file cannot be read, or is no manifest.
    """
    found = []
    for file in files:
        text, name = read_text(file)
        found += pods_of(documents(text, name), name)
    if not found:
        raise UsageError(f"{', '.join(files)}: holds no Pod and no object that creates Pods")
    return [with_namespace(pod, namespace) for pod in found]


def _show(reports: Sequence[dict[str, Any]], options: argparse.Namespace, *, is_list: bool) -> int:
    """Print *reports*, and return the exit code."""
    asks_how_many = options.name == "fits"
    text = report_text(
        reports, options.output, console(), is_whole=options.all, is_list=is_list, asks_how_many=asks_how_many
    )
    sys.stdout.write(text)
    return WELL if all(map(is_well, reports)) else BAD


def report_text(
    reports: Sequence[dict[str, Any]],
    form: str,
    console: Console,
    *,
    is_whole: bool,
    is_list: bool,
    asks_how_many: bool = False,
) -> str:
    """Return *reports* as `text`, `json` or `yaml`; with *is_list* one report is still a list."""
    if form != "text":
        return written(list(reports) if is_list else reports[0], form)
    columns = console.width if console.is_terminal else _PAPER_COLUMNS
    is_coloured = console.is_terminal and not console.no_color
    return "\n".join(
        page(report, columns=columns, is_coloured=is_coloured, is_whole=is_whole, asks_how_many=asks_how_many)
        for report in reports
    )
