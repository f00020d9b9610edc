"""
`kubectl hami doctor`: check the whole path, with a verdict and a fix for each part of it.
"""

import argparse
import sys
from collections.abc import Sequence
from typing import Any, Final

from rich.table import Table
from rich.text import Text

from kubectl_hami.answer.doctor import checks
from kubectl_hami.commands.command_line import BAD, UNKNOWN, WELL, add_clusters, add_output, read_each, sources, warn
from kubectl_hami.read.collect import examine
from kubectl_hami.show.form import written
from kubectl_hami.show.table import put, table
from kubectl_hami.values.diagnosis import Check, Health

_STYLES: Final = {
    Health.GOOD.value: "green",
    Health.UNKNOWN.value: "dim",
    Health.DOUBTFUL.value: "yellow",
    Health.BAD.value: "red",
}


def add(commands: Any) -> None:
    """Add the command to *commands*."""
    command = commands.add_parser("doctor", help="check the whole path, with a verdict and a fix for each part")
    command.set_defaults(command=run)
    add_output(command)
    add_clusters(command)


def run(options: argparse.Namespace) -> int:
    """Run the command: 1 if a check is bad, else 2 if one could not be made."""
    problems: list[str] = []
    examined = read_each(sources(options), examine, problems)
    found = {one.cluster.name: list(checks(one)) for one in examined}
    warn([*problems, *(problem for one in examined for problem in one.cluster.problems)])
    if options.output in {"table", "wide"}:
        for name, of_cluster in found.items():
            if len(found) > 1:
                sys.stdout.write(f"{name}\n")
            put(doctor_table(of_cluster), has_heads=not options.no_headers)
    else:
        clusters = [{"cluster": name, "checks": of} for name, of in found.items()]
        sys.stdout.write(written({"clusters": clusters}, options.output))
    healths = {one.health for of in found.values() for one in of}
    if Health.BAD.value in healths:
        return BAD
    return UNKNOWN if Health.UNKNOWN.value in healths else WELL


def doctor_table(found: Sequence[Check]) -> Table:
    """Return a row for each check, with its mend."""
    rows = [(one.name, Text(one.health, style=_STYLES[one.health]), one.found, one.fix) for one in found]
    return table(("CHECK", "VERDICT", "~FOUND", "~FIX"), rows)
