"""
Decide whether a Pod fits a Node, before extenders are called.

Owns the supported in-tree filters (unschedulable, taints, node selector and affinity, resources), their reasons, and
the score. Host ports, volumes, topology spread and Pod affinity are not supported. Functions of their arguments.
Source: k8s.io/kubernetes/pkg/scheduler/framework/plugins.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from hamicommon.model import Object
from minicluster import quantity, selection
from minicluster.podrequests import pod_amounts

NodeMatcher = Callable[["NodeState"], bool]

UNSCHEDULABLE = "node(s) were unschedulable"
UNTOLERATED = "node(s) had untolerated taint(s)"
NOT_SELECTED = "node(s) didn't match Pod's node affinity/selector"
INSUFFICIENT = "Insufficient {resource}"
TOO_MANY_PODS = "Too many pods"

UNSCHEDULABLE_TAINT = {"key": "node.kubernetes.io/unschedulable", "value": "", "effect": "NoSchedule"}
NOT_READY_TAINT = {"key": "node.kubernetes.io/not-ready", "value": "", "effect": "NoSchedule"}
"""The taints of the real API server and node controller. Here a Ready condition other than True counts as one."""

DEFAULT_REQUESTS = {"cpu": 100, "memory": 200 * 1024 * 1024}
"""The use of a Pod without requests, for scores only."""

PLUGIN_UNSCHEDULABLE = "NodeUnschedulable"
PLUGIN_TAINTS = "TaintToleration"
PLUGIN_AFFINITY = "NodeAffinity"
PLUGIN_RESOURCES = "NodeResourcesFit"
PLUGIN_EXTENDER = "Extender"


@dataclass(frozen=True, slots=True)
class Misfit:
    """Why a Pod does not fit a Node."""

    plugin: str
    reasons: tuple[str, ...]
    is_resolvable: bool = False
    """Whether preemption could resolve it."""


@dataclass(slots=True)
class NodeState:
    """A Node with the use of its Pods. Amounts are whole numbers, and cpu is in thousandths."""

    name: str
    node: Object
    labels: Mapping[str, str]
    taints: list[Object]
    is_unschedulable: bool
    allocatable: dict[str, int]
    used: dict[str, int] = field(default_factory=dict)
    pods: int = 0


@dataclass(slots=True)
class PodFacts:
    """The facts about a Pod that filters need, computed once."""

    requests: dict[str, int]
    tolerations: list[Object]
    selects: NodeMatcher | None
    names: frozenset[str] | None
    """The names of Nodes that its affinity allows, or None for any."""


def node_state(node: Object) -> NodeState:
    """Return the state of *node* without Pods."""
    spec, status = node.get("spec") or {}, node.get("status") or {}
    taints = [taint for taint in spec.get("taints") or () if taint.get("effect") in {"NoSchedule", "NoExecute"}]
    ready = next((item["status"] for item in status.get("conditions") or () if item["type"] == "Ready"), "True")
    if ready != "True" and not any(taint["key"] == NOT_READY_TAINT["key"] for taint in taints):
        taints.append(NOT_READY_TAINT)
    amounts = status.get("allocatable") or status.get("capacity") or {}
    allocatable = {name: _whole(name, quantity.parse(amount)) for name, amount in amounts.items()}
    name, labels = node["metadata"]["name"], node["metadata"].get("labels") or {}
    return NodeState(name, node, labels, taints, bool(spec.get("unschedulable")), allocatable)


def pod_facts(pod: Object, ignored: frozenset[str]) -> PodFacts:
    """
    Return the facts about *pod*. *ignored* are the resources that only extenders count.

    Raises: selection.SelectorError for an affinity with an unknown operator.
    """
    spec = pod["spec"]
    requests = {
        name: _whole(name, amount)
        for name, amount in pod_amounts(spec, "requests").items()
        if amount and name not in ignored
    }
    affinity = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    ) or {}
    terms = affinity.get("nodeSelectorTerms")
    matchers: list[NodeMatcher] = []
    if spec.get("nodeSelector"):
        labels = selection.label_selector_object({"matchLabels": spec["nodeSelector"]})
        matchers.append(lambda node: labels(node.labels))
    if terms is not None:
        alternatives = [_term(term) for term in terms]
        matchers.append(lambda node: any(matches(node) for matches in alternatives))
    selects = (lambda node: all(matches(node) for matches in matchers)) if matchers else None
    return PodFacts(requests, spec.get("tolerations") or [], selects, _names(terms))


def _whole(name: str, amount: Fraction) -> int:
    """Round up to whole units, like Value and MilliValue of a Quantity."""
    return -int(-(amount * 1000 if name == "cpu" else amount) // 1)


def _term(term: Object) -> NodeMatcher:
    """Return a matcher for a node selector term, over labels and name. An empty term matches nothing."""
    by_label = [_expression(found) for found in term.get("matchExpressions") or ()]
    by_field = [_expression(found) for found in term.get("matchFields") or ()]
    if not by_label and not by_field:
        return lambda node: False
    return lambda node: (
        all(matches(node.labels) for matches in by_label)
        and all(matches({"metadata.name": node.name}) for matches in by_field)
    )


def _expression(found: Object) -> selection.Matcher:
    return selection.requirement(found["key"], found["operator"], found.get("values") or [])


def _names(terms: list[Object] | None) -> frozenset[str] | None:
    """Return the names of Nodes in *terms*, or None if one of the terms has no names."""
    found: set[str] = set()
    for term in terms or ():
        pinned = [f for f in term.get("matchFields") or () if f["key"] == "metadata.name" and f["operator"] == "In"]
        if not pinned:
            return None
        found.update(pinned[0]["values"])
    return frozenset(found) if terms else None


def misfit(pod: PodFacts, node: NodeState) -> Misfit | None:
    """Return the first misfit in the order of the default profile, or None if the Pod fits."""
    if node.is_unschedulable and not _is_tolerated(UNSCHEDULABLE_TAINT, pod.tolerations):
        return Misfit(PLUGIN_UNSCHEDULABLE, (UNSCHEDULABLE,))
    for taint in node.taints:
        if not _is_tolerated(taint, pod.tolerations):
            return Misfit(PLUGIN_TAINTS, (UNTOLERATED,))
    if pod.selects is not None and not pod.selects(node):
        return Misfit(PLUGIN_AFFINITY, (NOT_SELECTED,))
    return _resource_misfit(pod, node)


def _resource_misfit(pod: PodFacts, node: NodeState) -> Misfit | None:
    reasons: list[str] = []
    is_resolvable = True
    allocatable, used = node.allocatable, node.used
    if node.pods + 1 > allocatable.get("pods", 0):
        reasons.append(TOO_MANY_PODS)
    for name, amount in pod.requests.items():
        limit = allocatable.get(name, 0)
        if amount > limit - used.get(name, 0):
            reasons.append(INSUFFICIENT.format(resource=name))
            is_resolvable = is_resolvable and amount <= limit
    return Misfit(PLUGIN_RESOURCES, tuple(reasons), is_resolvable) if reasons else None


def _is_tolerated(taint: Object, tolerations: list[Object]) -> bool:
    for toleration in tolerations:
        if toleration.get("effect") not in {None, "", taint["effect"]}:
            continue
        if toleration.get("key") and toleration["key"] != taint["key"]:
            continue
        if toleration.get("operator") == "Exists":
            return True
        if toleration.get("key") and (toleration.get("value") or "") == (taint.get("value") or ""):
            return True
    return False


def score(pod: PodFacts, node: NodeState) -> float:
    """Return 0..100, with more for a Node with more free cpu and memory beside the Pod (LeastAllocated)."""
    total = 0.0
    for name, default in DEFAULT_REQUESTS.items():
        limit = node.allocatable.get(name, 0)
        if limit:
            free = limit - node.used.get(name, 0) - (pod.requests.get(name) or default)
            total += max(0.0, 100.0 * free / limit)
    return total / len(DEFAULT_REQUESTS)
