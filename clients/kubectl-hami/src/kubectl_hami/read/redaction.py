"""
Keep of each answer what a diagnosis reads, and leave out what may be secret.

Every kind has a list of what is kept; an answer that is in no list is not kept at all. So a field that Kubernetes adds
is left out until somebody adds it here. Neighbours: `recorder` calls this before it stores anything.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import orjson

from hamicommon.dra.names import DRIVER
from hamicommon.model import Object

REMOVED: Final = "[removed]"
_OUR_KEYS: Final = re.compile(r"(app\.kubernetes\.io|hami\.io|helm\.sh)/.+")
"""Labels that are kept."""
_CHOICES: Final = re.compile(r"[a-z0-9.-]+/(no)?-?use-?[a-z-]+|[a-z0-9.-]+/[a-z-]*numa[a-z-]*")
"""Annotations by which a Pod's author chooses devices, of any vendor."""
_OUR_CONFIGS: Final = frozenset(("device-config.yaml", "config.yaml", "config.json"))
_SCHEDULING: Final = frozenset(
    ("FilteringFailed", "BindingFailed", "BindingSucceed", "FailedScheduling", "Scheduled", "Preempted")
)
"""Reasons of the Events whose message is kept. A kubelet's names images, and repeats what containers print."""
_METADATA: Final = ("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "resourceVersion")
_RESULT: Final = ("request", "driver", "pool", "device", "shareID", "consumedCapacity", "adminAccess")
"""Of a device that a ResourceClaim was given."""
_CONSUMER: Final = ("resource", "name", "uid")
_SECRETS: Final = (
    re.compile(r"()-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL),
    re.compile(r"()\beyJ[\w-]{8,}\.[\w-]+\.[\w-]*"),
    re.compile(r"(bearer )[\w.~+/=-]+", re.IGNORECASE),
    re.compile(r"""((?:password|secret|token|api[_-]?key)["']?\s*[:=]\s*["']?)[^\s"',}]+""", re.IGNORECASE),
    re.compile(r"(://)[^/\s:@]+:[^/\s@]+(?=@)"),
)
"""What looks like a credential in logs, metrics and configurations. The group before it is kept."""


class UnknownAnswerError(ValueError):
    """No list says what may be kept of an answer."""


def redacted(path: str, data: bytes) -> bytes:
    """
    Return what is kept of the API server's answer at *path*.

    Raises:
        UnknownAnswerError: no list says what is kept.
    """
    plain = path.partition("?")[0]
    if plain.endswith(("/log", "/proxy/metrics")):
        return scrubbed(data.decode(errors="replace")).encode()
    if plain == "/version":
        return data
    keep = _KEPT.get(plain.rpartition("/")[2])
    if keep is None:
        raise UnknownAnswerError(path)
    try:
        found = orjson.loads(data)
        items = [kept for item in found.get("items") or () if (kept := keep(item)) is not None]
        more = {key: value for key, value in (found.get("metadata") or {}).items() if key == "continue"}
    except (orjson.JSONDecodeError, AttributeError) as error:
        raise UnknownAnswerError(path) from error
    kind = {"kind": found.get("kind"), "apiVersion": found.get("apiVersion")}
    return orjson.dumps({**kind, "metadata": more, "items": items})


def scrubbed(text: str) -> str:
    """
    Return *text* without what looks like a credential.

    >>> scrubbed('{"password": "abc", "url": "https://u:pw@host/"}')
    '{"password": "[removed]", "url": "https://[removed]@host/"}'
    """
    for pattern in _SECRETS:
        text = pattern.sub(rf"\1{REMOVED}", text)
    return text


def _pod(pod: Object) -> dict[str, Any]:
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    kept = _picked(spec, ("nodeName", "schedulerName", "priority", "hostNetwork", "hostPID", "runtimeClassName"))
    kept |= _picked(spec, ("resources", "overhead", "resourceClaims"))
    for part in ("initContainers", "containers"):
        if spec.get(part):
            kept[part] = [_container(container) for container in spec[part]]
    if spec.get("schedulingGates"):
        kept["schedulingGates"] = [_picked(gate, ("name",)) for gate in spec["schedulingGates"]]
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": _metadata(pod),
        "spec": kept,
        "status": {
            **_picked(status, ("phase", "reason", "startTime", "qosClass")),
            **_picked(status, ("resourceClaimStatuses", "extendedResourceClaimStatus")),
            "conditions": [_condition(one) for one in status.get("conditions") or ()],
            **{
                part: [_container_status(one) for one in status[part]]
                for part in ("initContainerStatuses", "containerStatuses")
                if status.get(part)
            },
        },
    }


def _container(container: Mapping[str, Any]) -> dict[str, Any]:
    """Return a container without environment, command, arguments, image and mounts."""
    kept = _picked(container, ("name", "restartPolicy", "resources"))
    ports = [_picked(port, ("name", "containerPort", "protocol")) for port in container.get("ports") or ()]
    return {**kept, "ports": ports} if ports else kept


def _container_status(status: Mapping[str, Any]) -> dict[str, Any]:
    """Return a status without image and messages: a message quotes commands and outputs."""
    kept = _picked(status, ("name", "ready", "restartCount", "started"))
    for part in ("state", "lastState"):
        kept[part] = {
            name: _picked(one or {}, ("reason", "exitCode", "signal", "startedAt", "finishedAt"))
            for name, one in (status.get(part) or {}).items()
        }
    return kept


def _node(node: Object) -> dict[str, Any]:
    spec, status = node.get("spec") or {}, node.get("status") or {}
    metadata = _metadata(node)
    metadata["labels"] = dict((node.get("metadata") or {}).get("labels") or {})
    return {
        "kind": "Node",
        "apiVersion": "v1",
        "metadata": metadata,
        "spec": _picked(spec, ("unschedulable", "taints")),
        "status": {
            **_picked(status, ("capacity", "allocatable")),
            "conditions": [_condition(one) for one in status.get("conditions") or ()],
            "nodeInfo": _picked(
                status.get("nodeInfo") or {},
                ("kubeletVersion", "containerRuntimeVersion", "kernelVersion", "osImage", "architecture"),
            ),
        },
    }


def _event(event: Object) -> dict[str, Any]:
    times = ("count", "series", "firstTimestamp", "lastTimestamp", "eventTime")
    kept = _picked(event, ("reason", "type", "source", *times))
    kept["involvedObject"] = _picked(event.get("involvedObject") or {}, ("kind", "namespace", "name", "uid"))
    message = scrubbed(str(event.get("message") or "")) if event.get("reason") in _SCHEDULING else REMOVED
    return {**kept, "metadata": _metadata(event), "message": message}


def _config_map(found: Object) -> dict[str, Any] | None:
    """Return one of our ConfigMaps, None for another."""
    data = {key: scrubbed(text) for key, text in (found.get("data") or {}).items() if key in _OUR_CONFIGS}
    return {"metadata": _metadata(found), "data": data} if data else None


def _webhook(found: Object) -> dict[str, Any] | None:
    """Return the registration of our webhook, None for another webhook."""
    hooks = [hook for hook in found.get("webhooks") or () if "hami.io" in str(hook.get("name"))]
    return {"metadata": _metadata(found), "webhooks": hooks} if hooks else None


def _workload(found: Object) -> dict[str, Any]:
    """Return a Deployment or a DaemonSet without its template."""
    return {
        "metadata": _metadata(found),
        "spec": _picked(found.get("spec") or {}, ("replicas",)),
        "status": _picked(found.get("status") or {}, ("desiredNumberScheduled",)),
    }


def _quota(found: Object) -> dict[str, Any]:
    spec, status = found.get("spec") or {}, found.get("status") or {}
    return {
        "kind": "ResourceQuota",
        "apiVersion": "v1",
        "metadata": _metadata(found),
        "spec": _picked(spec, ("hard", "scopes", "scopeSelector")),
        "status": _picked(status, ("hard", "used")),
    }


def _lease(found: Object) -> dict[str, Any]:
    spec = _picked(found.get("spec") or {}, ("holderIdentity", "renewTime", "acquireTime", "leaseDurationSeconds"))
    return {"metadata": _metadata(found), "spec": spec}


def _metadata(found: Object) -> dict[str, Any]:
    """Return names, times, and our own labels and annotations."""
    metadata = found.get("metadata") or {}
    kept = _picked(metadata, _METADATA)
    kept["labels"] = {key: text for key, text in (metadata.get("labels") or {}).items() if _OUR_KEYS.fullmatch(key)}
    kept["annotations"] = {
        key: text
        for key, text in (metadata.get("annotations") or {}).items()
        if key.startswith("hami.io/") or _CHOICES.fullmatch(key)
    }
    return kept


def _condition(condition: Mapping[str, Any]) -> dict[str, Any]:
    kept = _picked(condition, ("type", "status", "reason", "lastTransitionTime"))
    if condition.get("type") == "PodScheduled":
        kept["message"] = scrubbed(str(condition.get("message") or ""))
    return kept


def _picked(found: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: found[name] for name in names if name in found}


def _claim(found: Object) -> dict[str, Any]:
    """Return a ResourceClaim without parameters."""
    allocation = (found.get("status") or {}).get("allocation") or {}
    results = (allocation.get("devices") or {}).get("results") or ()
    kept = {
        "metadata": _metadata(found),
        "status": {
            "allocation": {"devices": {"results": [_picked(result, _RESULT) for result in results]}},
            "reservedFor": [_picked(one, _CONSUMER) for one in (found.get("status") or {}).get("reservedFor") or ()],
        },
    }
    return kept if allocation else {"metadata": kept["metadata"], "status": {}}


def _slice(found: Object) -> dict[str, Any] | None:
    """Return a ResourceSlice of our driver, None for another driver's."""
    spec = found.get("spec") or {}
    if spec.get("driver") != DRIVER:
        return None
    return {"metadata": _metadata(found), "spec": _picked(spec, ("driver", "nodeName", "pool", "devices"))}


_KEPT: Final[Mapping[str, Callable[[Object], dict[str, Any] | None]]] = {
    "pods": _pod,
    "nodes": _node,
    "events": _event,
    "configmaps": _config_map,
    "mutatingwebhookconfigurations": _webhook,
    "resourcequotas": _quota,
    "leases": _lease,
    "deployments": _workload,
    "daemonsets": _workload,
    "resourceclaims": _claim,
    "resourceslices": _slice,
}
"""What is kept of one object of a collection, by the end of its path."""
