"""
`kubectl hami completion`, and what a shell asks while a person types.

The parser of the command line says what can follow, so nothing is listed twice. What has a name in a cluster is read
there, with the caller's rights. kubectl asks by the program `kubectl_complete-hami`, in the protocol of cobra: a
candidate on each line, then a colon and a number.
Source: https://kubernetes.io/docs/tasks/extend-kubectl/kubectl-plugins/ and cobra's completions.go (ShellCompDirective)
"""

import argparse
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final
from urllib.parse import quote

from hamicommon.errors import HamiError
from hamicommon.model import Object
from kubectl_hami import __version__
from kubectl_hami.answer.state import state_of
from kubectl_hami.commands.command_line import WELL
from kubectl_hami.read.source import PAGE_OBJECTS, Source, objects
from kubectl_hami.values.cluster import ClusterSnapshot

_FILES, _NO_FILES = 0, 4
"""Cobra's directives: complete names of files, or do not."""
_READ_SECONDS: Final = 2.0
"""A person waits for it with a finger on the key."""
_WORD: Final = re.compile(r"[\w./:@-]+", re.ASCII)
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


Known = Callable[[str, Sequence[str]], Sequence[str]]
"""Returns the names that the value of an option or a place can have, by its name in the parser and the words before."""


def names(dest: str, words: Sequence[str]) -> Sequence[str]:
    """
    Return the contexts, or what the cluster that *words* name has; none if it does not answer in _READ_SECONDS.

    A name that a shell would read as more than a word is left out, and so is what is not in the first page of a list.
    """
    if dest != "context" and dest not in _NAMED:
        return ()
    # Importing the client takes most of the time of a completion.
    from kubectl_hami.read import kube

    try:
        options, _ = _clusters().parse_known_args(words)
        every, current = kube.contexts(options.kubeconfig or None)
        if dest == "context":
            return _words(every)
        context = options.context or current
        agent = f"kubectl-hami/{__version__}"
        [cluster] = kube.connect(options.kubeconfig or None, [context], agent=agent, seconds=_READ_SECONDS)
        return _words(_NAMED[dest](cluster, options.namespace or cluster.namespace))
    except (HamiError, argparse.ArgumentError):
        return ()


def _clusters() -> argparse.ArgumentParser:
    """Return a parser of the options that say what is completed from."""
    found = argparse.ArgumentParser(add_help=False, exit_on_error=False)
    for option in ("--kubeconfig", "--context"):
        found.add_argument(option, default="")
    found.add_argument("-n", "--namespace", default="")
    return found


def _first(source: Source, path: str) -> Iterator[Object]:
    return islice(objects(source, path), PAGE_OBJECTS)


def _named(found: Iterable[Object]) -> Iterator[str]:
    return (str(one["metadata"]["name"]) for one in found)


def _places(source: Source) -> Iterator[str]:
    cluster = ClusterSnapshot(source.name, source.now(), nodes=tuple(_first(source, "/api/v1/nodes")))
    for node in state_of(cluster).nodes:
        yield node.name
        yield from (device.id for device in node.devices)


_NAMED: Final[Mapping[str, Callable[[Source, str], Iterator[str]]]] = {
    "pod": lambda source, namespace: _named(_first(source, f"/api/v1/namespaces/{quote(namespace, safe='')}/pods")),
    "node": lambda source, _: _named(_first(source, "/api/v1/nodes")),
    "namespace": lambda source, _: _named(_first(source, "/api/v1/namespaces")),
    "place": lambda source, _: _places(source),
}
"""What a cluster knows of the options and places of these names."""


def _words(found: Iterable[str]) -> list[str]:
    return sorted(text for text in found if _WORD.fullmatch(text))


def candidates(
    parser: argparse.ArgumentParser, words: Sequence[str], known: Known = lambda _dest, _words: ()
) -> tuple[list[str], bool]:
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
        return _starting(_choices(option, rest[:-1], known), last), not _FILE_OPTIONS.isdisjoint(option.option_strings)
    if last.startswith("-"):
        return _starting(sorted(text for text in options if text.startswith("--")), last), False
    places = [action for action in parser._actions if not action.option_strings]
    return _starting([choice for place in places for choice in _choices(place, rest, known)], last), False


def _choices(action: argparse.Action, words: Sequence[str], known: Known) -> list[str]:
    return [str(choice) for choice in action.choices or known(action.dest, words)]


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
    found, takes_files = candidates(parser, words, names)
    return "".join(f"{text}\n" for text in found) + f":{_FILES if takes_files else _NO_FILES}\n"
