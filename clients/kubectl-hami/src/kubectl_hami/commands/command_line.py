"""
What is common to all commands: their options, the clusters they read, and how they end.

Exit codes: 0 if everything is well, 1 if the answer is bad news (a Pod fits nowhere, a check failed), 2 if the question
could not be answered or was wrongly put; then one line on stderr says why.
"""

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from hamicommon.cli.terminal import safe
from hamicommon.errors import HamiError
from hamicommon.runtime.program.flags import wait
from kubectl_hami import __version__
from kubectl_hami.answer.narrow import Filter
from kubectl_hami.read.archive import load
from kubectl_hami.read.collect import labelled
from kubectl_hami.read.source import ReadError, Source

T = TypeVar("T")

NAME: Final = "kubectl hami"
WELL, BAD, UNKNOWN = 0, 1, 2
_PROBLEMS_SHOWN: Final = 10


def add_namespace(command: argparse.ArgumentParser, text: str) -> None:
    """Add -n, which *text* explains, and -A, which is the default."""
    one = command.add_mutually_exclusive_group()
    one.add_argument("-n", "--namespace", default="", help=text)
    text = "all namespaces, which is the default"
    one.add_argument("-A", "--all-namespaces", dest="namespace", action="store_const", const="", help=text)


def add_selector(command: argparse.ArgumentParser) -> None:
    """Add -l."""
    command.add_argument(
        *("-l", "--selector"),
        default="",
        metavar="LABELS",
        help="only Pods with these labels, such as app=train,tier!=web",
    )


def wanted_pods(source: Source, options: argparse.Namespace) -> Filter:
    """
    Return the filter of the Pods that *options* ask for.

    Raises:
        ReadError: the Pods with the labels cannot be read, or the selector is wrong.
        UsageError: an archive is asked for labels.
    """
    if not options.selector:
        return Filter(options.namespace)
    if options.archive:
        raise UsageError("-l: labels are compared by the API server: give it without --from")
    return Filter(options.namespace, pods=labelled(source, options.namespace, options.selector))


def add_output(command: argparse.ArgumentParser) -> None:
    """Add -o and --no-headers."""
    command.add_argument("-o", "--output", choices=("table", "wide", "json", "yaml"), default="table")
    command.add_argument("--no-headers", action="store_true", help="print the rows alone")


_TIMEOUT_HELP: Final = (
    "longest wait for one answer, such as 20s; 0 waits for ever; default: 8s, and 30s for an explanation"
)


class UsageError(HamiError):
    """The command line asks for something that cannot be."""


def add_clusters(command: argparse.ArgumentParser) -> None:
    """Add the options that say which clusters are read."""
    add = command.add_argument_group("clusters").add_argument
    add("--kubeconfig", default="", metavar="FILE", help="default: $KUBECONFIG, else ~/.kube/config")
    add("--context", action="append", default=[], metavar="NAME", help="of the kubeconfig; may be repeated")
    add("--all-contexts", action="store_true", help="every cluster of the kubeconfig")
    add("--request-timeout", type=_timeout, metavar="TIME", help=_TIMEOUT_HELP)
    add("--from", dest="archive", default="", metavar="FILE", help="read this archive of `bundle` instead of a cluster")


def _timeout(text: str) -> float:
    """Return the seconds of a time; a number without a unit is seconds, as for kubectl."""
    return wait(f"{text}s" if text.isdecimal() else text)


def sources(options: argparse.Namespace) -> Sequence[Source]:
    """
    Return the clusters that *options* name.

    Raises:
        ReadError: one of them cannot be known.
        UsageError: an archive and a cluster are named.
    """
    if options.archive:
        if options.context or options.all_contexts:
            raise UsageError("--from reads an archive: give it without --context and --all-contexts")
        return [load(options.archive)]
    # An archive needs no client, whose import takes most of a command's time.
    from kubectl_hami.read import kube

    kubeconfig = options.kubeconfig or None
    names = options.context
    if options.all_contexts or not names:
        every, current = kube.contexts(kubeconfig)
        names = list(every) if options.all_contexts else [current]
    return kube.connect(kubeconfig, names, agent=f"kubectl-hami/{__version__}", seconds=options.request_timeout)


def one_source(options: argparse.Namespace) -> Source:
    """
    Return the one cluster that *options* name.

    Raises:
        UsageError: they name several.
    """
    found = sources(options)
    if len(found) != 1:
        raise UsageError(f"{options.name} reads one cluster, and {len(found)} are named: give one --context")
    return found[0]


def read_each(found: Sequence[Source], read: Callable[[Source], T], problems: list[str]) -> list[T]:
    """
    Return what *read* returns of each cluster. Of several, one that cannot be read is a problem and is left out.

    Raises:
        ReadError: the only cluster, or the last of several that failed, cannot be read.
    """
    with ThreadPoolExecutor(len(found)) as pool:
        asked = [(source, pool.submit(read, source)) for source in found]
    results, last = [], None
    for source, answer in asked:
        try:
            results.append(answer.result())
        except ReadError as error:
            last = error
            problems.append(f"cluster {source.name} is left out: {error}")
    if not results and last is not None:
        raise last
    return results


def namespace_of(source: Source, options: argparse.Namespace) -> str:
    """Return the namespace that *options* name, else that of the context."""
    return options.namespace or source.namespace


def warn(problems: Iterable[str]) -> None:
    """Print what could not be read, one line each, on stderr."""
    every = list(dict.fromkeys(problems))
    for problem in every[:_PROBLEMS_SHOWN]:
        sys.stderr.write(f"{NAME}: {safe(problem)}\n")
    if len(every) > _PROBLEMS_SHOWN:
        sys.stderr.write(f"{NAME}: and {len(every) - _PROBLEMS_SHOWN} more\n")
