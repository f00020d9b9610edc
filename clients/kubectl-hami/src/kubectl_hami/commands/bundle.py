"""
`kubectl hami bundle`: record what a diagnosis needs in one file, without secrets.
"""

import argparse
import os
import re
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import orjson

from kubectl_hami.answer.state import state_of
from kubectl_hami.commands.command_line import WELL, UsageError, add_clusters, one_source, warn
from kubectl_hami.read.collect import collect_pods, events, examine
from kubectl_hami.read.recorder import Recorder
from kubectl_hami.read.scheduler import explanation, settings
from kubectl_hami.read.source import ReadError, Source, objects
from kubectl_hami.values.cluster import ClusterState
from kubectl_hami.values.diagnosis import Examined

_PODS_TOLD: Final = 200
"""Pods whose explanation and Events are recorded, those that wait first."""
_LOG_LINES: Final = 5000
_SETTINGS: Final = "hami-scheduler-settings"
"""The name that the scheduler's own snapshots give to its settings."""


def add(commands: Any) -> None:
    """Add the command to *commands*."""
    command = commands.add_parser(
        "bundle", help="record objects, metrics, logs and configs in a file that every command reads with --from"
    )
    command.set_defaults(command=run)
    command.add_argument("-f", "--file", default="", help="default: hami-CONTEXT-TIME.tar.gz here; -: standard output")
    add_clusters(command)


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    recorder = Recorder(one_source(options))
    examined = examine(recorder)
    state = state_of(collect_pods(recorder))
    pods = _pods(state, examined)
    told = [*_explain(recorder, pods), *_events(recorder, pods), *_logs(recorder, examined)]
    problems = [*examined.cluster.problems, *told]
    archive = recorder.packed(_snapshot(recorder, examined, problems))
    file = options.file or _name(recorder)
    if file == "-":
        sys.stdout.buffer.write(archive)
    else:
        _write(file, archive)
        sys.stdout.write(f"{file}: {len(archive) / 1024:.0f} KiB; look into it before you share it\n")
    warn(problems)
    return WELL


def _pods(state: ClusterState, examined: Examined) -> list[tuple[str, str]]:
    """Return namespace and name of the Pods that wait and of those that hold devices, at most _PODS_TOLD."""
    held = {
        (share.namespace, share.pod)
        for node in state_of(examined.cluster).nodes
        for device in node.devices
        for share in device.shares
    }
    waiting = [(one.namespace, one.pod) for one in state.waiting]
    return [*waiting, *sorted(held)][:_PODS_TOLD]


def _explain(source: Source, pods: Iterable[tuple[str, str]]) -> list[str]:
    """Record the explanation of each of *pods*; return problems."""
    for namespace, pod in pods:
        try:
            explanation(source, namespace, pod)
        except ReadError as error:
            if error.status != 404:
                return [f"explanations are left out: {error}"]
    return []


def _events(source: Source, pods: Iterable[tuple[str, str]]) -> list[str]:
    """Record the Events about each of *pods*; return problems."""
    for namespace, pod in pods:
        try:
            events(source, namespace, pod)
        except ReadError as error:
            return [f"the Events about Pods are left out: {error}"]
    return []


def _logs(source: Source, examined: Examined) -> list[str]:
    """Record the end of the log of each container of the services; return one problem if one cannot be read."""
    silent: list[str] = []
    for service in examined.services:
        metadata = service.pod.get("metadata") or {}
        place = f"/api/v1/namespaces/{metadata.get('namespace')}/pods/{metadata.get('name')}/log"
        for container in (service.pod.get("spec") or {}).get("containers") or ():
            try:
                source.get(f"{place}?container={container.get('name')}&tailLines={_LOG_LINES}")
            except ReadError as error:
                silent.append(str(error))
    return [f"{len(silent)} logs are left out: {silent[0]}"] if silent else []


def _snapshot(source: Source, examined: Examined, problems: list[str]) -> bytes:
    """Return the objects that decisions read, with the scheduler's settings; empty without these."""
    quotas = []
    with suppress(ReadError):
        quotas = list(objects(source, "/api/v1/resourcequotas"))
    try:
        data = settings(source)
    except ReadError as error:
        problems.append(f"the snapshot for simulate is left out: {error}")
        return b""
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": _SETTINGS}, "data": data}
    items = [config_map, *examined.cluster.nodes, *examined.cluster.pods, *quotas]
    return orjson.dumps({"apiVersion": "v1", "kind": "List", "items": items})


def _name(recorder: Recorder) -> str:
    cluster = re.sub(r"[^\w.-]+", "-", recorder.name)
    return f"hami-{cluster}-{recorder.now():%Y%m%dT%H%M%SZ}.tar.gz"


def _write(file: str, archive: bytes) -> None:
    """Write the file for its owner alone, and never over another."""
    try:
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as target:
            target.write(archive)
    except OSError as error:
        raise UsageError(f"{Path(file)}: {error.strerror}") from error
