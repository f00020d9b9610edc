"""
The commands `hami-scheduler explain`, `simulate`, `fits` and `snapshot`, for a live scheduler or a saved snapshot.

Exit codes: 0 if every Pod has or would get a Node, with `fits` if one would, 1 if not, 2 if that is unknown; then one
line on stderr says why. Must never change anything in the cluster. Neighbours: `http` answers for a live scheduler,
`report` and `planning` answer here for a snapshot, `hamicommon.cli.explanation` lays out.
"""

import argparse
import asyncio
import os
import shutil
import sys
import urllib.error
import urllib.request
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote, urlencode

import orjson

from hami_scheduler import __version__
from hami_scheduler.config import EXPLAIN_ADDRESS, NAME, policy_problems
from hami_scheduler.explain.gangs import explain_member, members_of
from hami_scheduler.explain.offline import (
    DEVICE_CONFIG_KEY,
    DEVICE_POLICY_KEY,
    NODE_POLICY_KEY,
    Saved,
    SnapshotError,
    listed,
    pruned,
)
from hami_scheduler.explain.planning import simulate
from hami_scheduler.explain.remedies import Question, as_new
from hami_scheduler.explain.report import finish, shape
from hami_scheduler.rules.vendors import vendor_rules
from hami_scheduler.serve.kube.api import objects
from hami_scheduler.values.policies import Policies
from hami_scheduler.values.vendor import VendorRules
from hamicommon.cli.ending import exit_code
from hamicommon.cli.explanation import does_fit, is_well, page
from hamicommon.cli.manifests import documents, pods_of, read_text, with_namespace
from hamicommon.cli.terminal import escaped
from hamicommon.config.device_config import ConfigError, load_device_config
from hamicommon.errors import HamiError
from hamicommon.model import Object
from hamicommon.pod.gang import gang_of
from hamicommon.pod.shape import COUNT, COUNT_LIMIT
from hamicommon.runtime.api.kube import Kube
from hamicommon.wire.errors import DecodeError

COMMANDS = ("explain", "simulate", "fits", "snapshot")
_PAPER_COLUMNS = 120
"""The width of output that goes to no terminal."""
_ANSWER_SECONDS = 60.0

FITS, FITS_NOT, UNKNOWN = 0, 1, 2


class CommandError(HamiError):
    """A command failed; the message says what is wrong and what would be right."""


def main(arguments: Sequence[str]) -> int:
    """Run one command and return the exit code."""
    options = _parser().parse_args(arguments)
    return exit_code(lambda: options.command(options), f"{NAME} {options.name}", UNKNOWN)


def _explain(options: argparse.Namespace) -> int:
    name = options.pod.rpartition("/")[2]
    if options.pod not in {name, f"pod/{name}", f"pods/{name}"} or not name:
        raise CommandError(
            f"{options.pod!r} is not the name of a Pod; write POD or pod/POD, and the namespace after -n"
        )
    if options.snapshot:
        saved = _saved(options.snapshot)
        pod = saved.pod(options.namespace, name)
        if pod is None:
            raise CommandError(f"Pod {options.namespace}/{name} is not in {', '.join(options.snapshot)}")
        vendors, policies = _settings(saved, options)
        try:
            question = Question(pod, vendors, policies)
        except DecodeError as error:
            raise CommandError(f"Pod {options.namespace}/{name}, hami.io/device-scoring-weights: {error}") from error
        members = members_of(gang_of(pod), saved.pods)
        steps = explain_member(question, members, saved.cluster(vendors).view, saved.kube_view())
        report = shape(finish(steps))
    else:
        report = _ask(options.server, f"/explain/{quote(options.namespace)}/{quote(name)}")
    _show([report], options)
    return FITS if is_well(report) else FITS_NOT


def _simulate(options: argparse.Namespace) -> int:
    reports = _simulated(_pods(options), options)
    _show(reports, options)
    return FITS if all(map(is_well, reports)) else FITS_NOT


def _fits(options: argparse.Namespace) -> int:
    pods = _pods(options)
    if len(pods) != 1:
        raise CommandError(f"{', '.join(options.file)}: creates {len(pods)} kinds of Pods; fits counts one")
    reports = _simulated([{**pods[0], COUNT: COUNT_LIMIT}], options)
    _show(reports, options)
    return FITS if does_fit(reports[0]) else FITS_NOT


def _pods(options: argparse.Namespace) -> list[Object]:
    """Return the Pods that the files of *options* would create."""
    pods = [with_namespace(pod, options.namespace) for source in options.file for pod in pods_of(*_documents(source))]
    if not pods:
        raise CommandError(f"{', '.join(options.file)}: holds no Pod and no object that creates Pods")
    return pods


def _simulated(pods: Sequence[Object], options: argparse.Namespace) -> list[Object]:
    """Return the reports of *pods*, from the live scheduler or a snapshot."""
    if not options.snapshot:
        query = f"?{urlencode([('add', text) for text in options.add])}" if options.add else ""
        return list(_ask(options.server, f"/simulate{query}", orjson.dumps(pods)))
    saved = _saved(options.snapshot)
    vendors, policies = _settings(saved, options)
    counts = [pod.get(COUNT, 1) for pod in pods]
    view, kube = saved.cluster(vendors).view, saved.kube_view()
    try:
        found: list[Object] = shape(finish(simulate(as_new(pods, vendors, policies), view, kube, counts, options.add)))
    except DecodeError as error:
        raise CommandError(f"hami.io/device-scoring-weights: {error}") from error
    return found


def _snapshot(options: argparse.Namespace) -> int:
    settings: dict[str, str]
    if options.device_config_file:
        settings = {DEVICE_CONFIG_KEY: read_text(options.device_config_file)[0], **_policy_settings(options)}
    else:
        settings = {**_ask(options.server, "/settings"), **_policy_settings(options)}
    _device_config(settings[DEVICE_CONFIG_KEY], "the device config")
    found = asyncio.run(_objects(options.kubeconfig))
    sys.stdout.buffer.write(orjson.dumps(listed(map(pruned, found), settings)) + b"\n")
    return FITS


async def _objects(kubeconfig: str) -> list[Object]:
    async with await Kube.connect(kubeconfig or None, f"{NAME}-snapshot/{__version__}") as kube:
        return await objects(kube)


# Questions and input


def _ask(server: str, path: str, body: bytes | None = None) -> Any:
    """Return the answer of the live scheduler at *server*."""
    where = server if "://" in server else f"http://{server}"
    request = urllib.request.Request(where.rstrip("/") + path, data=body, headers={"Accept": "application/json"})
    # The scheduler is on this host, so no proxy is between us.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=_ANSWER_SECONDS) as answer:
            return orjson.loads(answer.read())
    except urllib.error.HTTPError as error:
        text = error.read().decode(errors="replace").strip()
        raise CommandError(text if error.code < 500 or text else f"{server}: HTTP {error.code}") from error
    except orjson.JSONDecodeError as error:
        raise CommandError(f"{server} does not answer like {NAME}: the answer is not JSON") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise CommandError(
            f"no scheduler answers at {server}: {reason}; run this where it runs "
            f"(kubectl exec -n NAMESPACE deploy/hami-scheduler -c scheduler -- {NAME} ...), or give --snapshot"
        ) from error


def _saved(files: Sequence[str]) -> Saved:
    """Return the objects in *files*: snapshots, or lists from kubectl."""
    saved = Saved()
    for source in files:
        documents, name = _documents(source)
        for document in documents:
            saved.add(document, name)
    if not saved.nodes:
        raise SnapshotError(
            f"{', '.join(files)}: holds no Node; write the file with `{NAME} snapshot`, or with "
            "`kubectl get nodes,pods,resourcequotas -A -o json`"
        )
    return saved


def _settings(saved: Saved, options: argparse.Namespace) -> tuple[tuple[VendorRules, ...], Policies]:
    """Return the vendors and policies: from flags, else from the snapshot."""
    text, source = saved.settings.get(DEVICE_CONFIG_KEY), "the snapshot's device config"
    if options.device_config_file:
        text, source = read_text(options.device_config_file)
    if text is None:
        raise CommandError("the snapshot has no device config; give --device-config-file")
    settings = {**saved.settings, **_policy_settings(options)}
    policies = Policies.named(settings.get(NODE_POLICY_KEY), settings.get(DEVICE_POLICY_KEY))
    return vendor_rules(_device_config(text, source)), policies


def _device_config(text: str, source: str) -> Any:
    try:
        return load_device_config(text)
    except ConfigError as error:
        raise CommandError(f"{source}: {'; '.join(error.problems)}") from error


def _policy_settings(options: argparse.Namespace) -> dict[str, str]:
    """Return the policies that flags name."""
    problems = tuple(policy_problems(Policies.named(options.node_scheduler_policy, options.gpu_scheduler_policy)))
    if problems:
        raise CommandError("; ".join(problems))
    given = {NODE_POLICY_KEY: options.node_scheduler_policy, DEVICE_POLICY_KEY: options.gpu_scheduler_policy}
    return {key: text for key, text in given.items() if text}


def _documents(source: str) -> tuple[list[Any], str]:
    """Return the documents of a JSON or YAML file, and its name for messages."""
    text, name = read_text(source)
    return documents(text, name), name


# Output


def _show(reports: Sequence[Object], options: argparse.Namespace) -> None:
    if options.output == "json":
        found: Any = list(reports) if options.name == "simulate" else reports[0]
        text = escaped(orjson.dumps(found, option=orjson.OPT_INDENT_2).decode())
        sys.stdout.buffer.write(f"{text}\n".encode())
        return
    is_terminal = sys.stdout.isatty()
    columns = shutil.get_terminal_size((_PAPER_COLUMNS, 24)).columns if is_terminal else _PAPER_COLUMNS
    is_coloured = is_terminal and not os.environ.get("NO_COLOR")
    asks_how_many = options.name == "fits"
    pages = [
        page(report, columns=columns, is_coloured=is_coloured, is_whole=options.all, asks_how_many=asks_how_many)
        for report in reports
    ]
    sys.stdout.buffer.write("\n".join(pages).encode())


# Command lines


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=NAME, description="Ask the scheduler what it would decide, and why.")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND", dest="name")

    command = commands.add_parser("explain", help="why a Pod is where it is, or has no Node, and what would help")
    command.add_argument("pod", metavar="POD", help="name of the Pod")
    command.set_defaults(command=_explain)
    _add_questions(command)

    for name, run, text in (
        ("simulate", _simulate, "which Node and devices new Pods would get"),
        ("fits", _fits, "how many more such Pods fit"),
    ):
        command = commands.add_parser(name, help=text)
        command.add_argument(
            "-f",
            "--file",
            action="append",
            required=True,
            help="manifest of Pods, or of objects that create them; -: standard input",
        )
        command.add_argument(
            "--add",
            action="append",
            default=[],
            metavar="NODES",
            help="imagine these Nodes, too, such as '2x8 NVIDIA-L40S:49140': NODESxDEVICES MODEL:MIB; may be repeated",
        )
        command.set_defaults(command=run)
        _add_questions(command)

    command = commands.add_parser(
        "snapshot", help="print the objects that decisions read, for explain, simulate and fits elsewhere"
    )
    command.add_argument("--kubeconfig", default="", help="kubeconfig of the cluster (default: as for the service)")
    command.set_defaults(command=_snapshot)
    _add_settings(command)
    return parser


def _add_questions(command: argparse.ArgumentParser) -> None:
    add = command.add_argument
    add("-n", "--namespace", default="default", help="namespace of the Pod (default: %(default)s)")
    add("-o", "--output", choices=("text", "json"), default="text", help="output format (default: %(default)s)")
    add("--all", action="store_true", help="print a row for every Node")
    add(
        "--snapshot",
        action="append",
        default=[],
        metavar="FILE",
        help="use this snapshot, or list from kubectl, instead of a live scheduler; may be repeated",
    )
    _add_settings(command)


def _add_settings(command: argparse.ArgumentParser) -> None:
    add = command.add_argument
    add("--server", default=EXPLAIN_ADDRESS, metavar="HOST:PORT", help="the live scheduler (default: %(default)s)")
    add(
        "--device-config-file",
        default="",
        metavar="FILE",
        help="use this device config instead of the scheduler's or the snapshot's",
    )
    add("--node-scheduler-policy", default="", metavar="POLICY", help="use this policy instead of the snapshot's")
    add("--gpu-scheduler-policy", default="", metavar="POLICY", help="use this policy instead of the snapshot's")
