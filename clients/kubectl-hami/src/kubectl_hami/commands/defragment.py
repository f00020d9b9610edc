"""
`kubectl hami defragment`: which Pods would have to move so that waiting Pods fit, or so that devices become empty.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

from rich.table import Table

from hamicommon.cli.terminal import safe
from kubectl_hami.answer.moves import commands
from kubectl_hami.commands.command_line import (
    BAD,
    WELL,
    UsageError,
    add_clusters,
    add_output,
    namespace_of,
    one_source,
)
from kubectl_hami.read.scheduler import move_plan
from kubectl_hami.show.form import written
from kubectl_hami.show.table import put, table

_EMPTY: Final = "devices"
_REASONS_SHOWN: Final = 5
_FORECAST: Final = "This is a forecast, and nothing was changed. Run these lines to carry it out, in this order:"


def add(commands: Any) -> None:
    """Add the command to *commands*."""
    command = commands.add_parser(
        "defragment", help="which Pods would have to move so that others fit; changes nothing"
    )
    command.set_defaults(command=run)
    text = "a Pod that waits for devices; without any, as many devices as possible become empty"
    command.add_argument("pod", nargs="*", metavar="POD", help=text)
    command.add_argument("-n", "--namespace", default="", help="of the Pods that wait; default: that of the context")
    command.add_argument(
        "--empty", choices=("devices", "nodes"), default="", help=f"what is to become empty; default: {_EMPTY}"
    )
    command.add_argument("--moves", type=int, default=50, metavar="COUNT", help="move at most this many; default: 50")
    add_output(command)
    add_clusters(command)


def run(options: argparse.Namespace) -> int:
    """Run the command: 1 if a Pod would still wait, or nothing would become empty."""
    if options.pod and options.empty:
        raise UsageError(f"--empty {options.empty}: give it without a POD; a plan for a Pod makes what it needs empty")
    if options.archive:
        raise UsageError("--from: a plan needs the scheduler of a cluster: give it without --from")
    source = one_source(options)
    names = [_name(text) for text in options.pod]
    namespace = namespace_of(source, options)
    pods = [{"namespace": namespace, "name": name} for name in names]
    plan = move_plan(source, {"pods": pods, "empty": options.empty or _EMPTY, "moves": options.moves})
    if options.output in {"json", "yaml"}:
        sys.stdout.write(written({"cluster": source.name, **plan, "commands": commands(plan)}, options.output))
    else:
        _show(plan, options)
    waits = any(fit["gets"] is None for fit in plan["fits"])
    return BAD if waits or not (plan["fits"] or plan["empties"]) else WELL


def _name(text: str) -> str:
    """
    Return the name of a Pod.

    Raises:
        UsageError: *text* is none.
    """
    name = text.rpartition("/")[2]
    if not name or text not in {name, f"pod/{name}", f"pods/{name}"}:
        raise UsageError(f"{text!r} is not the name of a Pod; write POD or pod/POD, and the namespace after -n")
    return name


def _show(plan: Mapping[str, Any], options: argparse.Namespace) -> None:
    """Print *plan*; without headers the rows alone."""
    if plan["moves"]:
        put(moves_table(plan, is_wide=options.output == "wide"), has_heads=not options.no_headers)
    if options.no_headers:
        return
    lines = [*_gains(plan), *_limits(plan)]
    if plan["moves"]:
        lines = ["", *lines, "", _FORECAST, *(f"  {line}" for line in commands(plan))]
    sys.stdout.writelines(f"{safe(line)}\n" for line in lines)


def moves_table(plan: Mapping[str, Any], *, is_wide: bool = False) -> Table:
    """Return a row for each Pod that would move."""
    rows = [
        (
            move["namespace"],
            move["pod"],
            move["owner"],
            _place(move["leaves"], is_wide=is_wide),
            _place(move["gets"], is_wide=is_wide),
            ", ".join(f"{what} {'fits' if plan['goal'] == 'pods' else 'is empty'}" for what in move["gains"]) or "-",
        )
        for move in plan["moves"]
    ]
    return table(("NAMESPACE", "POD", "OWNER", "FROM", "TO", "~GAIN"), rows)


def _gains(plan: Mapping[str, Any]) -> Iterator[str]:
    """Yield what becomes of waiting Pods, or what becomes empty."""
    moves = _counted(len(plan["moves"]), "move")
    for fit in plan["fits"]:
        name = f"{fit['namespace']}/{fit['pod']}"
        if fit["gets"] is None:
            yield f"{name} would still wait: no moves were found that let it fit"
        else:
            yield f"{name} would get {_place(fit['gets'])}" + ("" if plan["moves"] else " now, without a move")
    if plan["goal"] != "pods":
        what = plan["goal"].removesuffix("s")
        yield f"{_counted(len(plan['empties']), what)} would become empty with {moves}"


def _limits(plan: Mapping[str, Any]) -> Iterator[str]:
    """Yield what the search did not or could not consider."""
    if not plan["isBest"]:
        yield f"the search ended after {plan['tries']} tries or at --moves: there may be a better plan"
    if plan["fixedCount"]:
        count = plan["fixedCount"]
        shown = Counter(fixed["why"] for fixed in plan["fixed"]).most_common(_REASONS_SHOWN)
        yield f"{_counted(count, 'holder')} of devices must stay where {'it is' if count == 1 else 'they are'}:"
        for why, number in shown:
            first = next(fixed for fixed in plan["fixed"] if fixed["why"] == why)
            more = f" and {number - 1} more" if number > 1 else ""
            yield f"  {first['namespace']}/{first['pod']}{more}: {why}"


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _place(spot: Mapping[str, Any], *, is_wide: bool = False) -> str:
    """Return Node and indexes of devices, or with *is_wide* their UUIDs."""
    found = (device["id"] if is_wide or device["index"] is None else str(device["index"]) for device in spot["devices"])
    return f"{spot['node']}/{','.join(found)}"
