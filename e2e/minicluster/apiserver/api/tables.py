"""
Objects as the rows that `kubectl get` prints.

Owns the columns of each kind and their cells. The present time is an argument.
Source: k8s.io/kubernetes/pkg/printers/internalversion/printers.go; KEP-555 (server-side get and partial objects).
"""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import orjson

from hamicommon.model import Object
from minicluster.apiserver.api import resources as known
from minicluster.apiserver.api.resources import Resource

Row = Callable[[Object, datetime], list[Any]]

NONE = "<none>"
UNKNOWN = "<unknown>"


def _age(text: str | None, now: datetime) -> str:
    """Return the age of a time, `3d4h`, in the form of k8s.io/apimachinery's HumanDuration."""
    if not text:
        return UNKNOWN
    seconds = max(0, int((now - datetime.fromisoformat(text)).total_seconds()))
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if seconds < 120:
        return f"{seconds}s"
    if minutes < 10:
        return f"{minutes}m{seconds % 60}s" if seconds % 60 else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return f"{days}d{hours % 24}h" if hours % 24 else f"{days}d"
    return f"{days}d" if days < 730 else f"{days // 365}y"


def _created(found: Object, now: datetime) -> str:
    return _age(found["metadata"].get("creationTimestamp"), now)


def _pod(found: Object, now: datetime) -> list[Any]:
    spec, status = found["spec"], found.get("status") or {}
    states = status.get("containerStatuses") or []
    ready = sum(1 for state in states if state.get("ready"))
    restarts = sum(state.get("restartCount", 0) for state in states + (status.get("initContainerStatuses") or []))
    return [
        found["metadata"]["name"],
        f"{ready}/{len(spec.get('containers') or ())}",
        _pod_status(found),
        str(restarts),
        _created(found, now),
        status.get("podIP") or NONE,
        spec.get("nodeName") or NONE,
        status.get("nominatedNodeName") or NONE,
        NONE,
    ]


def _pod_status(found: Object) -> str:
    """Return the status of a Pod in one word: the reason of a container or of the Pod, or else the phase."""
    status = found.get("status") or {}
    if found["metadata"].get("deletionTimestamp"):
        return "Terminating"
    gated = any(condition.get("reason") == "SchedulingGated" for condition in status.get("conditions") or ())
    shown = "SchedulingGated" if gated else status.get("reason") or status.get("phase") or UNKNOWN
    inits = found["spec"].get("initContainers") or []
    for index, state in enumerate(status.get("initContainerStatuses") or ()):
        found_state = state.get("state") or {}
        terminated, waiting = found_state.get("terminated"), found_state.get("waiting") or {}
        if (terminated and terminated.get("exitCode") == 0) or state.get("started"):
            continue
        if terminated:
            return f"Init:{terminated.get('reason') or 'ExitCode:' + str(terminated.get('exitCode'))}"
        if waiting.get("reason") not in {None, "", "PodInitializing"}:
            return f"Init:{waiting['reason']}"
        return f"Init:{index}/{len(inits)}"
    for state in reversed(status.get("containerStatuses") or ()):
        found_state = state.get("state") or {}
        reason = (found_state.get("waiting") or {}).get("reason") or (found_state.get("terminated") or {}).get("reason")
        shown = reason or shown
    return str(shown)


def _node(found: Object, now: datetime) -> list[Any]:
    metadata, status = found["metadata"], found.get("status") or {}
    conditions = {condition["type"]: condition["status"] for condition in status.get("conditions") or ()}
    state = {"True": "Ready", None: "Unknown"}.get(conditions.get("Ready"), "NotReady")
    if (found.get("spec") or {}).get("unschedulable"):
        state += ",SchedulingDisabled"
    prefix = "node-role.kubernetes.io/"
    roles = sorted(key.removeprefix(prefix) for key in metadata.get("labels") or () if key.startswith(prefix))
    system = status.get("nodeInfo") or {}
    addresses = {address["type"]: address["address"] for address in status.get("addresses") or ()}
    return [
        metadata["name"],
        state,
        ",".join(roles) or NONE,
        _created(found, now),
        system.get("kubeletVersion", ""),
        addresses.get("InternalIP", NONE),
        addresses.get("ExternalIP", NONE),
        system.get("osImage") or UNKNOWN,
        system.get("kernelVersion") or UNKNOWN,
        system.get("containerRuntimeVersion") or UNKNOWN,
    ]


def _event(found: Object, now: datetime) -> list[Any]:
    about = found.get("involvedObject") or {}
    last = (found.get("series") or {}).get("lastObservedTime") or found.get("lastTimestamp") or found.get("eventTime")
    place = f"{str(about.get('kind', '')).lower()}/{about.get('name', '')}"
    source = found.get("source") or {}
    return [
        _age(last or found.get("firstTimestamp"), now),
        found.get("type", ""),
        found.get("reason", ""),
        place,
        about.get("fieldPath", ""),
        source.get("component") or found.get("reportingComponent", ""),
        str(found.get("message", "")).strip(),
        _age(found.get("firstTimestamp") or found.get("eventTime"), now),
        found.get("count") or (found.get("series") or {}).get("count") or 1,
        found["metadata"]["name"],
    ]


def _quota(found: Object, now: datetime) -> list[Any]:
    status = found.get("status") or {}
    hard, used = status.get("hard") or (found.get("spec") or {}).get("hard") or {}, status.get("used") or {}
    shown = {name: f"{name}: {used.get(name, '0')}/{limit}" for name, limit in sorted(hard.items())}
    limits = [text for name, text in shown.items() if name.startswith("limits.")]
    requests = [text for name, text in shown.items() if not name.startswith("limits.")]
    return [found["metadata"]["name"], ", ".join(requests), ", ".join(limits), _created(found, now)]


def _name_and(*cells: Callable[[Object], Any]) -> Row:
    return lambda found, now: [found["metadata"]["name"], *(cell(found) for cell in cells), _created(found, now)]


_PLAIN = ("Name", "Age")

COLUMNS: dict[Resource, tuple[tuple[str, ...], Row]] = {
    known.PODS: (
        ("Name", "Ready", "Status", "Restarts", "Age", "IP*", "Node*", "Nominated Node*", "Readiness Gates*"),
        _pod,
    ),
    known.NODES: (
        (
            *("Name", "Status", "Roles", "Age", "Version", "Internal-IP*", "External-IP*", "OS-Image*"),
            *("Kernel-Version*", "Container-Runtime*"),
        ),
        _node,
    ),
    known.EVENTS: (
        (
            *("Last Seen", "Type", "Reason", "Object", "Subobject*", "Source*", "Message", "First Seen*", "Count*"),
            "Name*",
        ),
        _event,
    ),
    known.RESOURCE_QUOTAS: (("Name", "Request", "Limit", "Age"), _quota),
    known.NAMESPACES: (
        ("Name", "Status", "Age"),
        _name_and(lambda found: (found.get("status") or {}).get("phase", "")),
    ),
    known.CONFIG_MAPS: (("Name", "Data", "Age"), _name_and(lambda found: len(found.get("data") or ()))),
    known.SECRETS: (
        ("Name", "Type", "Data", "Age"),
        _name_and(lambda found: found.get("type", ""), lambda found: len(found.get("data") or ())),
    ),
    known.LEASES: (
        ("Name", "Holder", "Age"),
        _name_and(lambda found: (found.get("spec") or {}).get("holderIdentity", "")),
    ),
    known.WEBHOOKS: (("Name", "Webhooks", "Age"), _name_and(lambda found: len(found.get("webhooks") or ()))),
    known.PRIORITY_CLASSES: (("Name", "Value", "Age"), _name_and(lambda found: found.get("value", 0))),
    known.RUNTIME_CLASSES: (("Name", "Handler", "Age"), _name_and(lambda found: found.get("handler", ""))),
}
"""The column names (with `*` for wide output only) and the function that makes a row."""


def table(resource: Resource, objects: list[bytes], metadata: Object, include: str, has_columns: bool = True) -> bytes:
    """Return serialised *objects* as a `Table`. *include* is `Metadata`, `Object` or `None`."""
    columns, row = COLUMNS.get(resource, (_PLAIN, _name_and()))
    now = datetime.now(UTC)
    rows = []
    for data in objects:
        found = orjson.loads(data)
        shown: Object = {"cells": row(found, now)}
        if include == "Object":
            shown["object"] = found
        elif include != "None":
            shown["object"] = {
                "kind": "PartialObjectMetadata",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": found["metadata"],
            }
        rows.append(shown)
    definitions = [
        {
            "name": name.rstrip("*"),
            "type": "string",
            "format": "name" if name == "Name" else "",
            "description": "",
            "priority": 1 if name.endswith("*") else 0,
        }
        for name in columns
    ]
    found_table = {"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata}
    return orjson.dumps(found_table | {"columnDefinitions": definitions if has_columns else [], "rows": rows})


def partial(objects: list[bytes], metadata: Object | None) -> bytes:
    """Return only the metadata of *objects*: as a list if *metadata* is given, else of the one object."""
    version = {"apiVersion": "meta.k8s.io/v1"}
    items = [
        {"kind": "PartialObjectMetadata", **version, "metadata": orjson.loads(data)["metadata"]} for data in objects
    ]
    if metadata is None:
        return orjson.dumps(items[0])
    return orjson.dumps({"kind": "PartialObjectMetadataList", **version, "metadata": metadata, "items": items})
