"""
`kubectl hami ui`: the page, for this person on this machine.
"""

import argparse
import sys
import webbrowser
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from hamicommon.cli.explanation import headline, is_well
from hamicommon.cli.manifests import ManifestError, documents, pods_of, with_namespace
from kubectl_hami.answer.doctor import checks
from kubectl_hami.answer.events import events_about
from kubectl_hami.answer.grants import comparisons
from kubectl_hami.answer.pods import statuses
from kubectl_hami.answer.state import state_of
from kubectl_hami.answer.usage import COUNTERS, hours, totals
from kubectl_hami.commands.command_line import NAME, WELL, UsageError, add_clusters, namespace_of, one_source
from kubectl_hami.commands.usage import from_prometheus
from kubectl_hami.page.prometheus import PrometheusPast
from kubectl_hami.page.questions import REFRESH_SECONDS, Questions
from kubectl_hami.page.server import serve
from kubectl_hami.read.collect import collect, events, examine
from kubectl_hami.read.scheduler import explanation, simulation
from kubectl_hami.read.source import Source
from kubectl_hami.show.form import shape
from kubectl_hami.values.cluster import ClusterState

ARCHIVE_REFRESH_SECONDS: Final = 3600.0
"""An archive does not change."""
PORT: Final = 8765
"""The same each time, so that a link to a state stays valid."""
SPANS: Final = ("24h", "7d", "30d")
"""Of device-hours, from Prometheus."""
MANIFEST: Final = "the manifest"


def add(commands: Any) -> None:
    """Add the command to *commands*."""
    command = commands.add_parser("ui", help="a page: every device and its shares, who waits and why")
    command.set_defaults(command=run)
    command.add_argument("-n", "--namespace", default="", help="only its Pods, if you may not list all")
    command.add_argument("--port", type=int, default=PORT, help=f"of this machine; 0 is any free one; default: {PORT}")
    command.add_argument("--prometheus", default="", metavar="URL", help="take the use over time from there")
    command.add_argument("--open", action="store_true", help="open the page in a browser")
    add_clusters(command)


def run(options: argparse.Namespace) -> int:
    """Serve the page until Ctrl-C."""
    questions = asked(one_source(options), options)
    try:
        server, gate = serve(questions, options.port)
    except (OSError, OverflowError) as error:
        raise UsageError(f"--port {options.port} cannot be used: {error}; --port 0 takes any free one") from error
    with server, suppress(KeyboardInterrupt):
        sys.stdout.write(f"{gate.address}\n")
        sys.stdout.flush()
        sys.stderr.write(f"{NAME} ui: the page is at this address, for you alone; Ctrl-C ends it\n")
        if options.open:
            webbrowser.open(gate.address)
        server.serve_forever()
    return WELL


def asked(source: Source, options: argparse.Namespace) -> Questions:
    """Return the questions of the page, answered by *source*."""
    return Questions(
        Answers(source, options),
        past=PrometheusPast(options.prometheus) if options.prometheus else None,
        refresh_seconds=ARCHIVE_REFRESH_SECONDS if options.archive else REFRESH_SECONDS,
    )


class Answers:
    """The answers of the commands, for the page: a `page.questions.Cluster`."""

    def __init__(self, source: Source, options: argparse.Namespace) -> None:
        self._source = source
        self._options = options
        self._state: ClusterState | None = None
        """The last picture."""

    def read_picture(self) -> Mapping[str, Any]:
        """Return the picture, with the status of each Pod in it."""
        cluster = collect(self._source, self._options.namespace)
        self._state = state_of(cluster)
        return {**shape(self._state), "pods": shape(tuple(statuses(cluster.pods, self._state)))}

    def read_explanation(self, namespace: str, name: str) -> Mapping[str, Any]:
        """Return what `explain` prints."""
        return explanation(self._source, namespace, name)

    def read_events(self, namespace: str, name: str) -> Sequence[Mapping[str, Any]]:
        """Return the Events about a Pod."""
        return list(shape(events_about(events(self._source, namespace, name))))

    def read_doctor(self) -> Mapping[str, Any]:
        """Return what `doctor` prints."""
        examined = examine(self._source)
        return {"checks": shape(tuple(checks(examined))), "problems": examined.cluster.problems}

    def read_grants(self) -> Mapping[str, Any]:
        """Return what `grants` prints, of the last picture."""
        if self._state is None:
            self.read_picture()
        return {"grants": shape(tuple(comparisons(self._state))) if self._state else []}

    def read_usage(self, of: str, span: str) -> Mapping[str, Any]:
        """
        Return what `usage` prints.

        Raises:
            UsageError: there is no such table, or *span* is none of SPANS, or is asked without Prometheus.
        """
        spans = SPANS if self._options.prometheus else ()
        if of not in COUNTERS or span not in {"", *spans}:
            raise UsageError(f"usage of {of} in {span or 'all time'}: ask for {', '.join(COUNTERS)} in {spans}")
        problems: list[str] = []
        options = argparse.Namespace(
            **{**vars(self._options), "of": of, "since": span, "context": [], "all_contexts": False, "archive": ""}
        )
        if span:
            _, [(_, rows)] = from_prometheus(options)
        else:
            cluster = collect(self._source, options.namespace)
            problems = list(cluster.problems)
            rows = hours(of, totals(of, cluster, None, problems), options.namespace)
        return {"usage": shape(rows), "spans": spans, "problems": problems}

    def read_simulation(self, manifest: str, namespace: str, nodes: Sequence[str]) -> Mapping[str, Any]:
        """
        Return what `simulate` prints.

        Raises:
            ManifestError: *manifest* is none, or creates no Pod.
        """
        if self._options.archive:
            raise UsageError("of an archive ask on the command line: kubectl hami simulate --from FILE -f FILE")
        pods = pods_of(documents(manifest, MANIFEST), MANIFEST)
        if not pods:
            raise ManifestError(f"{MANIFEST}: holds no Pod and no object that creates Pods")
        found = [with_namespace(pod, namespace or namespace_of(self._source, self._options)) for pod in pods]
        reports = simulation(self._source, found, nodes)
        return {"reports": [{**one, "headline": headline(one), "isWell": is_well(one)} for one in reports]}
