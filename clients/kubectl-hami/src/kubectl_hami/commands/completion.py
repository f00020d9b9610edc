"""
`kubectl hami completion`, and what a shell asks while a person types.

The parser of the command line says what can follow, so nothing is listed twice. kubectl asks by the program
`kubectl_complete-hami`, in the protocol of cobra: a candidate on each line, then a colon and a number.
Source: https://kubernetes.io/docs/tasks/extend-kubectl/kubectl-plugins/ and cobra's completions.go (ShellCompDirective)
"""

import argparse
import sys
from collections.abc import Sequence
from typing import Any, Final

from kubectl_hami.commands.command_line import WELL

_FILES, _NO_FILES = 0, 4
"""Cobra's directives: complete names of files, or do not."""
_FILE_OPTIONS: Final = frozenset(("--kubeconfig", "--from", "--file", "--since"))

_SCRIPTS: Final = {
    "bash": """_kubectl_hami() {
    mapfile -t COMPREPLY < <(kubectl_complete-hami "${COMP_WORDS[@]:1:COMP_CWORD}" | sed '/^:/d')
}
complete -o default -F _kubectl_hami kubectl-hami
""",
    "zsh": """#compdef kubectl-hami
_kubectl_hami() {
    local -a found
    found=(${(f)"$(kubectl_complete-hami "${(@)words[2,CURRENT]}" | sed '/^:/d')"})
    (( $#found )) && compadd -- $found || _files
}
compdef _kubectl_hami kubectl-hami
""",
    "fish": """function __kubectl_hami
    set -l words (commandline --current-process --tokenize --cut-at-cursor) (commandline --current-token)
    kubectl_complete-hami $words[2..] | string match --invert ':*'
end
complete --command kubectl-hami --arguments '(__kubectl_hami)'
""",
}


def add(commands: Any) -> None:
    """Add the command to *commands*."""
    command = commands.add_parser("completion", help="print the completion for a shell")
    command.set_defaults(command=run)
    command.add_argument("shell", choices=tuple(_SCRIPTS))


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    sys.stdout.write(_SCRIPTS[options.shell])
    return WELL


def candidates(parser: argparse.ArgumentParser, words: Sequence[str]) -> tuple[list[str], bool]:
    """
    Return what the last of *words* can become, and whether it can be the name of a file.

    >>> parser = argparse.ArgumentParser()
    >>> _ = parser.add_argument("--output", choices=("json", "yaml"))
    >>> candidates(parser, ["--output", ""]), candidates(parser, ["--o"])
    ((['json', 'yaml'], False), (['--output'], False))
    """
    before, last = list(words[:-1]), words[-1] if words else ""
    parser, rest = _subparser(parser, before)
    options = {text: action for action in parser._actions for text in action.option_strings}
    option = options.get(rest[-1]) if rest else None
    if option is not None and option.nargs != 0:
        found = [str(choice) for choice in option.choices or ()]
        return _starting(found, last), not _FILE_OPTIONS.isdisjoint(option.option_strings)
    if last.startswith("-"):
        return _starting(sorted(text for text in options if text.startswith("--")), last), False
    places = [action for action in parser._actions if not action.option_strings]
    found = [str(choice) for place in places for choice in place.choices or ()]
    return _starting(found, last), False


def _subparser(parser: argparse.ArgumentParser, words: list[str]) -> tuple[argparse.ArgumentParser, list[str]]:
    """Return the parser of the command that *words* name, and the words after it."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for number, word in enumerate(words):
                if word in action.choices:
                    return action.choices[word], words[number + 1 :]
    return parser, words


def _starting(found: Sequence[str], start: str) -> list[str]:
    return [text for text in found if text.startswith(start)]


def answer(parser: argparse.ArgumentParser, words: Sequence[str]) -> str:
    """Return the answer to kubectl: the candidates, and the directive."""
    found, takes_files = candidates(parser, words)
    return "".join(f"{text}\n" for text in found) + f":{_FILES if takes_files else _NO_FILES}\n"
