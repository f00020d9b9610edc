"""
The command line.

`kubectl` finds `kubectl-hami` on PATH and runs it for `kubectl hami`.
"""

import argparse
import sys
from pathlib import Path
from typing import Final

from hamicommon.cli.ending import exit_code
from kubectl_hami import __version__
from kubectl_hami.commands import bundle, completion, defragment, doctor, explain, grants, pods, top, ui, usage, waiting
from kubectl_hami.commands.command_line import NAME, UNKNOWN, WELL

COMPLETER: Final = "kubectl_complete-hami"
"""The name under which kubectl asks for completions; a link to the one file has it too."""


def main() -> int:
    """Run one command and return its exit code."""
    if Path(sys.argv[0]).name == COMPLETER:
        return complete()
    known, first = parser(), "".join(sys.argv[1:2])
    if not first:
        known.print_help(sys.stderr)
        return UNKNOWN
    if first.startswith("-") and first not in ("-h", "--help", "--version"):
        known.error(f"{first} stands after the command, as in: {NAME} top {first}")
    options = known.parse_args()
    return exit_code(lambda: options.command(options), f"{NAME} {options.name}", UNKNOWN)


def complete() -> int:
    """Answer kubectl, which asks what can follow."""
    sys.stdout.write(completion.answer(parser(), sys.argv[1:]))
    return WELL


def parser() -> argparse.ArgumentParser:
    """Return the parser of every command."""
    found = argparse.ArgumentParser(
        prog=NAME,
        description="Who has which share of which device, who waits, and why.",
        epilog="Exit codes: 0 well, 1 bad news (a Pod fits nowhere, a check failed), 2 the question was not answered.",
    )
    found.add_argument("--version", action="version", version=f"kubectl-hami {__version__}")
    commands = found.add_subparsers(title="commands", required=True, metavar="COMMAND", dest="name")
    for command in (top, pods, waiting, explain, defragment, grants, usage, doctor, bundle, ui, completion):
        command.add(commands)
    return found


if __name__ == "__main__":
    sys.exit(main())
