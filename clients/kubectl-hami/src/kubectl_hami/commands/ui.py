"""
`kubectl hami ui`: the page, for this person on this machine.
"""

import argparse
import sys
import webbrowser
from contextlib import suppress
from typing import Any, Final

from kubectl_hami.answer.events import events_about
from kubectl_hami.answer.state import state_of
from kubectl_hami.commands.command_line import NAME, WELL, UsageError, add_clusters, one_source
from kubectl_hami.page.prometheus import series
from kubectl_hami.page.questions import REFRESH_SECONDS, Questions
from kubectl_hami.page.server import serve
from kubectl_hami.read.collect import collect, events
from kubectl_hami.read.scheduler import explanation
from kubectl_hami.read.source import Source
from kubectl_hami.show.form import shape

ARCHIVE_REFRESH_SECONDS: Final = 3600.0
"""An archive does not change."""
PORT: Final = 8765
"""The same each time, so that a link to a state stays valid."""


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
    prometheus = options.prometheus
    return Questions(
        read_picture=lambda: dict(shape(state_of(collect(source, options.namespace)))),
        read_explanation=lambda namespace, pod: explanation(source, namespace, pod),
        read_events=lambda namespace, pod: list(shape(events_about(events(source, namespace, pod)))),
        refresh_seconds=ARCHIVE_REFRESH_SECONDS if options.archive else REFRESH_SECONDS,
        read_history=(lambda namespace, pod, now: series(prometheus, namespace, pod, now)) if prometheus else None,
    )
