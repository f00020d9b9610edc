"""
Which Pods can be moved to other devices, and why each other one stays.

A Pod is moved by an eviction: it ends, its controller creates another, and the scheduler places that one. So a Pod
stays if nothing would create it again, if its people ask for that, or if nobody here can judge where it would fit.
Must never judge a Node. Neighbours: `kube_filters` names what is not judged, `forecast` moves what is movable.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from hami_scheduler.explain.kube_filters import KubePod, gates, holds, not_judged
from hami_scheduler.explain.remedies import Question, as_new
from hami_scheduler.values.grant import Grant
from hami_scheduler.values.policies import Policies
from hami_scheduler.values.request import PodRequest
from hami_scheduler.values.vendor import VendorRules
from hamicommon.model import Object
from hamicommon.pod.containers import has_ended
from hamicommon.wire.errors import DecodeError

RECREATING = ("ReplicaSet", "StatefulSet", "ReplicationController")
"""The kinds of controllers that create a Pod again, anywhere, and count no eviction as a failure."""
SAFE_TO_EVICT = "cluster-autoscaler.kubernetes.io/safe-to-evict"
"""The Cluster Autoscaler's annotation: `false` keeps a Pod where it is."""
PREFER_NO_EVICTION = "descheduler.alpha.kubernetes.io/prefer-no-eviction"
"""The descheduler's annotation: with any value it asks to keep a Pod where it is."""
MIRROR = "kubernetes.io/config.mirror"
"""The annotation of a Pod that a kubelet reads from a file."""
CRITICAL_PRIORITY = 2_000_000_000
"""The priority of system-cluster-critical, below which a Pod must be to be evicted."""
SELECTOR_BYTES = 4096
"""A longer selector of a budget counts as one that selects every Pod of its namespace."""
BUDGETS_IN_NAMESPACE = 200
"""If a namespace has more budgets, its Pods stay."""


@dataclass(frozen=True, slots=True)
class NewPod:
    """A Pod that a scheduler is to place: what it asks of devices, and what kube-scheduler reads of it."""

    request: PodRequest
    kube: KubePod


@dataclass(frozen=True, slots=True, eq=False)
class Holder:
    """A Pod that holds devices. Two are equal only if they are the same."""

    grant: Grant
    pod: NewPod
    """The Pod that its controller would create in its place."""
    kube: KubePod
    """The Pod as it is."""
    owner: str
    """Kind and name of its controller."""
    created: str
    """RFC 3339."""
    budgets: tuple[str, ...] = ()
    """The PodDisruptionBudgets that count its eviction, as `namespace/name`."""


@dataclass(frozen=True, slots=True)
class Fixed:
    """A Pod that stays where it is."""

    namespace: str
    pod: str
    node: str
    why: str


@dataclass(frozen=True, slots=True)
class Budgets:
    """The PodDisruptionBudgets of a cluster."""

    allowed: Mapping[str, int] = field(default_factory=dict)
    """By `namespace/name`: how many of its Pods may be evicted now."""
    of_namespace: Mapping[str, Sequence[tuple[str, Mapping[str, Any] | None]]] = field(default_factory=dict)
    """By namespace: name and selector of each; None selects every Pod."""

    @classmethod
    def of(cls, found: Iterable[Mapping[str, Any]]) -> "Budgets":
        """Return what *found*, v1 PodDisruptionBudgets, allow. One that its controller has not read allows nothing."""
        allowed: dict[str, int] = {}
        of_namespace: dict[str, list[tuple[str, Mapping[str, Any] | None]]] = {}
        for budget in found:
            metadata, spec, status = budget.get("metadata") or {}, budget.get("spec") or {}, budget.get("status") or {}
            selector = spec.get("selector")
            if selector is None:  # It selects no Pod.
                continue
            namespace = str(metadata.get("namespace") or "default")
            name = f"{namespace}/{metadata.get('name') or ''}"
            is_read = (status.get("observedGeneration") or 0) >= (metadata.get("generation") or 0)
            allowed[name] = max(0, status.get("disruptionsAllowed") or 0) if is_read else 0
            kept = selector if len(orjson.dumps(selector)) <= SELECTOR_BYTES else None
            of_namespace.setdefault(namespace, []).append((name, kept))
        return cls(allowed, of_namespace)

    def covering(self, namespace: str, labels: Mapping[str, str]) -> tuple[str, ...]:
        """Return the budgets of a Pod with *labels* in *namespace*."""
        return tuple(
            name
            for name, selector in self.of_namespace.get(namespace, ())
            if selector is None or _selects(selector, labels)
        )

    def allow(self, leaving: Iterable[Holder]) -> bool:
        """Return whether all Pods *leaving* may be evicted now."""
        counts: dict[str, int] = {}
        for holder in leaving:
            for name in holder.budgets:
                counts[name] = counts.get(name, 0) + 1
        return all(count <= self.allowed[name] for name, count in counts.items())


@dataclass(frozen=True, slots=True)
class Rules:
    """What is the same for all Pods."""

    vendors: tuple[VendorRules, ...]
    policies: Policies
    budgets: Budgets
    scheduler_name: str
    """The schedulerName of the Pods that this scheduler is asked about; empty if it is unknown."""


def judged(pod: Object, grant: Grant, rules: Rules) -> Holder | Fixed:
    """Return *pod*, a v1 Pod that holds *grant*, as a holder that can be moved, or why it stays."""
    metadata, labels = pod["metadata"], pod["metadata"].get("labels") or {}
    budgets: tuple[str, ...] = ()
    why = _stays(pod, rules)
    if not why and len(rules.budgets.of_namespace.get(grant.namespace, ())) > BUDGETS_IN_NAMESPACE:
        why = f"its namespace has more than {BUDGETS_IN_NAMESPACE} PodDisruptionBudgets"
    if not why:
        budgets = rules.budgets.covering(grant.namespace, labels)
        why = _budgets_keep(budgets, rules.budgets)
    if not why:
        found = _new_pod(pod, grant, rules)
        if isinstance(found, NewPod):
            owner, created = _owner(metadata), str(metadata.get("creationTimestamp") or "")
            return Holder(grant, found, KubePod.of(pod), owner, created, budgets)
        why = found
    return Fixed(grant.namespace, grant.name, grant.node, why)


def not_waiting(question: Question, scheduler_name: str) -> str:
    """Return why the Pod of *question* waits for no devices of *scheduler_name*, empty if it does."""
    metadata, spec = question.pod["metadata"], question.pod.get("spec") or {}
    theirs = spec.get("schedulerName")
    if question.bound_to:
        return f"is bound to node {question.bound_to}"
    if metadata.get("deletionTimestamp") or has_ended(question.pod):
        return "has ended or is being deleted"
    if not question.request.asks_for_devices:
        return "asks for no device"
    if gates(question.pod):
        return f"has scheduling gates ({', '.join(gates(question.pod))[:200]})"
    if theirs and scheduler_name and theirs != scheduler_name:
        return f"is for the scheduler {theirs}, not {scheduler_name}"
    return ""


def unread(grant: Grant) -> Fixed:
    """Return why the holder of *grant* stays, of which no running Pod was read."""
    if grant.is_claim:
        why = "a ResourceClaim holds its devices, and kube-scheduler places those"
        return Fixed(grant.namespace, f"ResourceClaim {grant.name}", grant.node, why)
    return Fixed(grant.namespace, grant.name, grant.node, "it is being placed or is ending")


def _stays(pod: Object, rules: Rules) -> str:
    """Return why *pod* stays by what stands on it, empty if it need not."""
    metadata, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
    annotations = metadata.get("annotations") or {}
    kind = _owner(metadata).partition("/")[0]
    theirs, ours = spec.get("schedulerName"), rules.scheduler_name
    if MIRROR in annotations:
        return "it is a mirror Pod, which its kubelet creates"
    if kind == "DaemonSet":
        return "its DaemonSet creates it again on the same Node"
    if not kind:
        return "it has no controller, so nothing would create it again"
    if kind not in RECREATING:
        return f"its controller is a {kind[:63]}, which may not create it again"
    if ours and theirs != ours:
        return f"its scheduler is {theirs or 'unknown'}, not {ours}"
    if metadata.get("deletionTimestamp"):
        return "it is being deleted"
    if status.get("phase") != "Running":
        return "it does not run yet"
    if (spec.get("priority") or 0) >= CRITICAL_PRIORITY:
        return "its priority is that of a system-critical Pod"
    if PREFER_NO_EVICTION in annotations:
        return f"it has the annotation {PREFER_NO_EVICTION}"
    if annotations.get(SAFE_TO_EVICT) == "false":
        return f'it has the annotation {SAFE_TO_EVICT}: "false"'
    return ""


def _budgets_keep(covering: Sequence[str], budgets: Budgets) -> str:
    if len(covering) > 1:
        return f"the Pod has {len(covering)} PodDisruptionBudgets, and Kubernetes evicts a Pod with at most one"
    if covering and budgets.allowed[covering[0]] == 0:
        return f"its PodDisruptionBudget {covering[0]} allows no disruption now"
    return ""


def _new_pod(pod: Object, grant: Grant, rules: Rules) -> NewPod | str:
    """Return the Pod that would be created in the place of *pod*, or why it could not be judged."""
    try:
        [question] = as_new([pod], rules.vendors, rules.policies)
    except DecodeError as error:
        return f"its hami.io/device-scoring-weights cannot be read: {error}"
    if not question.request.asks_for_devices:
        return "it asks for no device, so another like it would get none"
    unjudged = not_judged(question.pod, question.device_resources)
    if unjudged:
        return f"nobody here judges where it fits: it uses {', '.join(unjudged)[:200]}"
    return NewPod(replace(question.request, uid=grant.uid), question.kube_pod)


def _owner(metadata: Mapping[str, Any]) -> str:
    """Return kind and name of the controller in *metadata*, empty without one."""
    owners = (owner for owner in metadata.get("ownerReferences") or () if owner.get("controller"))
    return next((f"{owner.get('kind') or ''}/{owner.get('name') or ''}" for owner in owners), "")


def _selects(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Return whether *selector*, a LabelSelector, selects *labels*; an empty one selects all."""
    return all(labels.get(key) == value for key, value in (selector.get("matchLabels") or {}).items()) and all(
        holds(requirement, labels) for requirement in selector.get("matchExpressions") or ()
    )
