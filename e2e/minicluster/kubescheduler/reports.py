"""
Write the result of an attempt to the API.

Owns the texts of rejections, the PodScheduled condition and the Events Scheduled and FailedScheduling. Must never
decide anything.
Source: k8s.io/kubernetes/pkg/scheduler/framework/types.go (FitError), pkg/scheduler/schedule_one.go
(handleSchedulingFailure).
"""

import secrets
from collections import Counter
from datetime import UTC, datetime
from typing import Any

from hamicommon.model import Object
from minicluster.client import ApiError, Client
from minicluster.kubescheduler.fit import Misfit

UNSCHEDULABLE = "Unschedulable"
SCHEDULER_ERROR = "SchedulerError"

NONE_AVAILABLE = "0/{nodes} nodes are available:"
NO_NODES = "no nodes available to schedule pods"
NO_CLAIMS = "no new claims to deallocate"
NO_VICTIMS = "No preemption victims found for incoming pod"
NOT_HELPFUL = "Preemption is not helpful for scheduling"
SCHEDULED = "Successfully assigned {namespace}/{name} to {node}"


def refusal_text(nodes: int, misfits: dict[str, Misfit]) -> str:
    """
    Return why no Node is feasible, each reason with its number of Nodes.

    The text does not depend on the order of the misfits, because a changing text would wake its Pod for ever.
    """
    head = NONE_AVAILABLE.format(nodes=nodes)
    reasons = Counter(reason for misfit in misfits.values() for reason in misfit.reasons)
    if reasons:
        head += f" {_histogram(reasons)}."
    resolvable = sum(1 for misfit in misfits.values() if misfit.is_resolvable)
    preemption = Counter({NO_VICTIMS: resolvable, NOT_HELPFUL: nodes - resolvable})
    return f"{head} {NO_CLAIMS}, preemption: {NONE_AVAILABLE.format(nodes=nodes)} {_histogram(+preemption)}."


def _histogram(reasons: Counter[str]) -> str:
    return ", ".join(sorted(f"{count} {reason}" for reason, count in reasons.items()))


class Reports:
    """The reports of one scheduler."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._said: dict[str, tuple[str, str]] = {}
        """
        By Pod uid, the version and text of its last FailedScheduling. Like the real recorder, repeated Events about the
        same version are merged.
        """

    async def scheduled(self, pod: Object, node: str) -> None:
        """Write that *pod* is bound to *node*."""
        metadata = pod["metadata"]
        self._said.pop(metadata["uid"], None)
        text = SCHEDULED.format(namespace=metadata["namespace"], name=metadata["name"], node=node)
        await self._event(pod, "Normal", "Scheduled", "Binding", text)

    async def failed(self, pod: Object, reason: str, text: str) -> None:
        """Write a failed attempt: an Event once for each text, and the condition when it changes."""
        uid = pod["metadata"]["uid"]
        said = (pod["metadata"]["resourceVersion"], text)
        if self._said.get(uid) != said:
            self._said[uid] = said
            await self._event(pod, "Warning", "FailedScheduling", "Scheduling", text)
        conditions = (pod.get("status") or {}).get("conditions") or ()
        known: Object = next((found for found in conditions if found["type"] == "PodScheduled"), {})
        if (known.get("status"), known.get("reason"), known.get("message")) == ("False", reason, text):
            return
        moment = known.get("lastTransitionTime") if known.get("status") == "False" else None
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": reason,
            "message": text,
            "lastProbeTime": None,
            "lastTransitionTime": moment or _now("seconds"),
        }
        patch = {"status": {"$setElementOrder/conditions": [{"type": "PodScheduled"}], "conditions": [condition]}}
        path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}/status"
        await self._send(self._client.patch(path, patch, "strategic"))

    def forget(self, uid: str) -> None:
        """Forget a Pod that is gone."""
        self._said.pop(uid, None)

    async def _event(self, pod: Object, kind: str, reason: str, action: str, text: str) -> None:
        metadata, now = pod["metadata"], _now("microseconds")
        scheduler = pod["spec"]["schedulerName"]
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{metadata['name']}.{secrets.token_hex(8)}", "namespace": metadata["namespace"]},
            "involvedObject": {
                "kind": "Pod",
                "apiVersion": "v1",
                "namespace": metadata["namespace"],
                "name": metadata["name"],
                "uid": metadata["uid"],
                "resourceVersion": metadata["resourceVersion"],
            },
            "type": kind,
            "reason": reason,
            "action": action,
            "message": text[:1024],
            "eventTime": now,
            "firstTimestamp": None,
            "lastTimestamp": None,
            "source": {},
            "reportingComponent": scheduler,
            "reportingInstance": scheduler,
        }
        await self._send(self._client.create(f"/api/v1/namespaces/{metadata['namespace']}/events", event))

    async def _send(self, request: Any) -> None:
        """Send a report. A failure is ignored, because it is not an error of the attempt."""
        try:
            await request
        except ApiError:
            return


def _now(precision: str) -> str:
    return datetime.now(UTC).replace(tzinfo=None).isoformat(timespec=precision) + "Z"
