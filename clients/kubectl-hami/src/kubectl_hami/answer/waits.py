"""
Find the Pods that ask for devices and have no Node, and why.
"""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

from kubectl_hami.answer.shares import asks_for_devices, name_of
from kubectl_hami.values.cluster import Waiting
from kubectl_hami.values.seen import Object

REFUSED = "FilteringFailed"
"""The reason of the Events in which the scheduler says why a Pod fits nowhere."""
_DEFAULT_SCHEDULER = "default-scheduler"
_CAUSE_CHARACTERS = 300


def waiting(pods: Iterable[Object], refusals: Iterable[Object], now: datetime) -> tuple[Waiting, ...]:
    """Return the Pods that wait for devices, longest first. *refusals* are the scheduler's Events about them."""
    causes = _causes(refusals)
    found = list(_waiting(pods, causes, now))
    return tuple(sorted(found, key=lambda one: (one.since, one.namespace, one.pod)))


def _waiting(pods: Iterable[Object], causes: dict[str, str], now: datetime) -> Iterator[Waiting]:
    for pod in pods:
        metadata, spec, status = (pod.get(part) or {} for part in ("metadata", "spec", "status"))
        asked = {
            name: amount
            for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ()))
            for name, amount in asks_for_devices(container).items()
        }
        cause = causes.get(str(metadata.get("uid") or ""), "")
        is_ours = spec.get("schedulerName", _DEFAULT_SCHEDULER) != _DEFAULT_SCHEDULER or cause
        if spec.get("nodeName") or not asked or not is_ours or status.get("phase") in {"Succeeded", "Failed"}:
            continue
        namespace, name = name_of(pod)
        yield Waiting(
            namespace=namespace,
            pod=name,
            since=moment(metadata.get("creationTimestamp")) or now,
            asks=", ".join(f"{resource} {amount}" for resource, amount in sorted(asked.items())),
            cause=cause or _condition(pod),
        )


def moment(text: object) -> datetime | None:
    """Return the moment that *text* writes in RFC 3339, None if it writes none."""
    try:
        found = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _causes(refusals: Iterable[Object]) -> dict[str, str]:
    """Return the causes in the newest of *refusals* about each Pod, by UID."""
    newest: dict[str, tuple[str, str]] = {}
    for event in refusals:
        uid = str((event.get("involvedObject") or {}).get("uid") or "")
        when = str(event.get("lastTimestamp") or event.get("eventTime") or "")
        if event.get("reason") == REFUSED and when >= newest.get(uid, ("", ""))[0]:
            newest[uid] = when, str(event.get("message") or "")
    return {uid: _shortened(message.partition("; asked: ")[0]) for uid, (_, message) in newest.items()}


def _condition(pod: Object) -> str:
    """Return what kube-scheduler says of *pod*, empty if it has said nothing."""
    gates = (pod.get("spec") or {}).get("schedulingGates")
    if gates:
        return _shortened("gated by " + ", ".join(str(gate.get("name")) for gate in gates))
    for condition in (pod.get("status") or {}).get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return _shortened(str(condition.get("message") or ""))
    return ""


def _shortened(text: str) -> str:
    return text if len(text) <= _CAUSE_CHARACTERS else f"{text[: _CAUSE_CHARACTERS - 1]}…"
