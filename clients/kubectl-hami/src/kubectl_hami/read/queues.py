"""
Ask Kueue why it holds a Pod back.

Owns the names of Kueue's API. Kueue gates a Pod until its queue has quota, and says why in the Pod's Workload.
Must never read Workloads for a Pod without Kueue's gate.
Source: Kueue's apis/kueue/v1beta2/workload_types.go (Kueue 0.15 and newer) and pkg/controller/jobs/pod.
"""

from collections.abc import Mapping
from typing import Any, Final

from hamicommon.model import Object
from kubectl_hami.read.source import ReadError, Source, objects

GATES: Final = ("kueue.x-k8s.io/admission", "kueue.x-k8s.io/topology")
_WORKLOADS: Final = "/apis/kueue.x-k8s.io/v1beta2/namespaces/{}/workloads"
_CONDITIONS: Final = ("QuotaReserved", "Admitted")
"""In the order in which a Workload gets them."""


def with_queue(source: Source, report: Mapping[str, Any], namespace: str, pod: str) -> dict[str, Any]:
    """Return the scheduler's *report* about a Pod, with Kueue's words as `queue` if Kueue gates it."""
    is_held = report.get("verdict") == "gated" and any(gate in str(report.get("summary")) for gate in GATES)
    return {**report, "queue": _words(source, namespace, pod)} if is_held else dict(report)


def _words(source: Source, namespace: str, pod: str) -> str:
    try:
        workloads = objects(source, _WORKLOADS.format(namespace))
        workload = next((each for each in workloads if _is_of(each, pod)), None)
    except ReadError as error:
        return f"Kueue: its reason is unknown, because its Workloads cannot be read: {error.why}"
    if workload is None:
        return "Kueue: it has no Workload for the Pod yet; of a Pod group, all Pods must exist"
    spec, status = workload.get("spec") or {}, workload.get("status") or {}
    head = f"Kueue, queue {spec.get('queueName')}"
    if spec.get("active") is False:
        return f"{head}: its Workload is deactivated"
    conditions = {str(each.get("type")): each for each in status.get("conditions") or ()}
    for kind in _CONDITIONS:
        condition = conditions.get(kind) or {}
        if condition.get("status") != "True":
            return f"{head}: {condition.get('message') or 'it has not judged the Pod yet'}"
    return f"{head}: it has admitted the Pod, and removes the gate"


def _is_of(workload: Object, pod: str) -> bool:
    """Return whether *workload* is that of *pod*, or of its group, which all its Pods own."""
    owners = (workload.get("metadata") or {}).get("ownerReferences") or ()
    return any(owner.get("kind") == "Pod" and owner.get("name") == pod for owner in owners)
