"""
Reduce Pods to the parts that the scheduler reads, from JSON and from a watch in protobuf.

kube-apiserver encodes each event once in protobuf for kube-scheduler and the controllers; JSON would be extra work.
Neighbours: `kube` lists and watches, `hamicommon.runtime.api.watch_stream` defines a reader.
Source: https://kubernetes.io/docs/reference/using-api/api-concepts/#protobuf-encoding
"""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import orjson
from google.protobuf.message import DecodeError

from hami_scheduler.serve.kube.messages._proto.pod_watch_pb2 import (
    Container,
    ContainerStatus,
    Pod,
    Status,
    Unknown,
    WatchEvent,
)
from hamicommon.model import Object
from hamicommon.runtime.api.watch_stream import Event, check_length, checked, cut_short, not_an_event

Amounts = Mapping[str, Any] | None
"""Quantities by resource."""

PROTOBUF = "application/vnd.kubernetes.protobuf"
_LENGTH_BYTES = 4
"""Length before each event of a stream, big-endian."""
_MAGIC = b"k8s\0"
_GRACE = "terminationGracePeriodSeconds"
_END = ("phase", "reason", "message")
"""How a Pod ended; a kubelet that rejects one gives a reason and a message."""
# When a kubelet has started a Pod is read only where it has no status of its init containers (`inits_are_done`).
_METADATA = ("name", "namespace", "uid", "resourceVersion", "labels", "annotations")


def trimmed(pod: Mapping[str, Any]) -> Object:
    """Return the parts of *pod*, from JSON, that decide what it holds, without empty ones."""
    metadata, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
    init_statuses = status.get("initContainerStatuses") or ()
    has_lost_statuses = bool(spec.get("initContainers")) and not init_statuses
    return _shaped(
        {key: metadata.get(key) for key in _METADATA},
        {
            **{key: spec.get(key) for key in ("nodeName", "priority", _GRACE)},
            **{key: [*map(_trimmed_container, spec.get(key) or ())] for key in ("initContainers", "containers")},
        },
        {**{key: status.get(key) for key in _END}, "startTime": status.get("startTime") if has_lost_statuses else None},
        [*map(_trimmed_init_status, init_statuses)],
    )


def _trimmed_container(found: Mapping[str, Any]) -> Object:
    resources = found.get("resources") or {}
    return _container(found.get("name"), found.get("restartPolicy"), resources.get("limits"), resources.get("requests"))


def _trimmed_init_status(found: Mapping[str, Any]) -> Object:
    ended = (found.get("state") or {}).get("terminated") or {}
    return _init_status(found.get("name"), ended.get("exitCode"))


class PodReader:
    """Reads one watch of Pods in protobuf; an event is its length and a WatchEvent."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._read = bytearray()

    def feed(self, chunk: bytes) -> Iterator[Event]:
        """Yield each event that *chunk* completes."""
        self._read += chunk
        begin = 0
        while len(self._read) - begin >= _LENGTH_BYTES:
            length = int.from_bytes(self._read[begin : begin + _LENGTH_BYTES])
            check_length(length, self._path)
            end = begin + _LENGTH_BYTES + length
            if len(self._read) < end:
                break
            yield self._event(bytes(self._read[begin + _LENGTH_BYTES : end]))
            begin = end
        del self._read[:begin]

    def end(self) -> None:
        """Check that the stream ended after a whole event."""
        if self._read:
            raise cut_short(self._path)

    @staticmethod
    def refusal(body: bytes) -> bytes:
        """Return the Status in *body* as JSON."""
        try:
            return orjson.dumps(_status(body))
        except (DecodeError, UnicodeDecodeError):
            return body

    def _event(self, frame: bytes) -> Event:
        try:
            event = WatchEvent.FromString(frame)
            item = _status(event.object.raw) if event.type == "ERROR" else _pod(event.object.raw)
        except (DecodeError, UnicodeDecodeError) as error:
            raise not_an_event(self._path, f"a watch said what is no Pod in protobuf: {error}") from error
        return checked(event.type, item, self._path, frame)


def _unwrapped(raw: bytes) -> bytes:
    if not raw.startswith(_MAGIC):
        raise DecodeError(f"an object begins with {raw[: len(_MAGIC)]!r}, not with {_MAGIC!r}")
    return Unknown.FromString(raw[len(_MAGIC) :]).raw


def _status(raw: bytes) -> Object:
    found = Status.FromString(_unwrapped(raw))
    return {"code": found.code, "reason": found.reason, "message": found.message}


def _pod(raw: bytes) -> Object:
    found = Pod.FromString(_unwrapped(raw))
    metadata, spec, status = found.metadata, found.spec, found.status
    said = metadata.annotations
    annotations = {key: said[key].decode(errors="replace") for key in said}  # Faster than `items`, which is Python.
    texts = {key: getattr(metadata, key) for key in ("name", "namespace", "uid", "resourceVersion")}
    end = {key: getattr(status, key) for key in _END}
    if spec.initContainers and not status.initContainerStatuses and status.HasField("startTime"):
        end["startTime"] = _moment(status.startTime.seconds)
    return _shaped(
        {**texts, "labels": dict(metadata.labels), "annotations": annotations},
        {
            "nodeName": spec.nodeName,
            "priority": spec.priority,
            _GRACE: spec.terminationGracePeriodSeconds,
            "initContainers": [*map(_container_message, spec.initContainers)],
            "containers": [*map(_container_message, spec.containers)],
        },
        end,
        [*map(_init_status_message, status.initContainerStatuses)],
    )


def _moment(unix_seconds: int) -> str:
    """Return a moment as JSON has it, empty if JSON has none for it."""
    try:
        return datetime.fromtimestamp(unix_seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return ""


def _container_message(found: Container) -> Object:
    limits, requests = (
        {name: amounts[name].string for name in amounts}
        for amounts in (found.resources.limits, found.resources.requests)
    )
    return _container(found.name, found.restartPolicy, limits, requests)


def _init_status_message(found: ContainerStatus) -> Object:
    state = found.state
    return _init_status(found.name, state.terminated.exitCode if state.HasField("terminated") else None)


def _shaped(metadata: Object, spec: Object, end: Object, init_statuses: list[Object]) -> Object:
    status = {**end, "initContainerStatuses": init_statuses}
    return {"metadata": _said(metadata), "spec": _said(spec), "status": _said(status)}


def _container(name: str | None, restart_policy: str | None, limits: Amounts, requests: Amounts) -> Object:
    resources = _said({"limits": limits, "requests": requests})
    return _said({"name": name, "restartPolicy": restart_policy, "resources": resources})


def _init_status(name: str | None, exit_code: int | None) -> Object:
    """Return the parts of the status of an init container; *exit_code* is None until it has ended."""
    return _said({"name": name, "state": {"terminated": {"exitCode": exit_code}} if exit_code is not None else {}})


def _said(fields: Object) -> Object:
    """Return *fields* without empty ones, because protobuf and JSON write different empty fields."""
    return {key: value for key, value in fields.items() if value}
