"""
What kube-scheduler's own filters say of a Pod on each Node, for reports.

kube-scheduler rules out Nodes before it asks the extender, and no decision reads what it judges by. So Nodes, and what
the Pods there request, are read when somebody asks. `JUDGED` lists what is judged here; `not_judged` names what else
kube-scheduler judges of a Pod. Must never take part in a decision. Neighbours: `report` puts this beside the devices,
`serve.explainer` and `offline` read the objects.
Source: https://github.com/kubernetes/kubernetes/tree/v1.34.4/pkg/scheduler/framework/plugins
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain
from typing import Any, NamedTuple

from hamicommon.pod.amounts import most_over_time
from hamicommon.pod.containers import containers_of, has_ended, statuses_of
from hamicommon.pod.gang import gang_of
from hamicommon.wire.quantity import QuantityError, parse_quantity

JUDGED = (
    "schedulerName and scheduling gates",
    "unschedulable and unready Nodes",
    "taints",
    "nodeSelector and required node affinity",
    "cpu, memory, ephemeral storage and hugepages: allocatable less the requests of the Pods there",
    "number of Pods",
)
"""What is judged of kube-scheduler's part, beside the devices and their quotas."""
DEFAULT_SCHEDULER = "default-scheduler"
"""The schedulerName that the API server gives a Pod without one."""
_NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
"""The taint that the node controller gives to a Node that is not ready, some seconds later."""
_UNSCHEDULABLE = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
_BOUND_VOLUMES = frozenset(("persistentVolumeClaim", "ephemeral", "csi"))
"""The kinds of volumes that may tie a Pod to Nodes."""
_KEEPS_OUT = {"NoSchedule", "NoExecute"}
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_INSUFFICIENT = "Insufficient "
_IS, _HAS, _LACKS, _DOES_NOT = ("is", "are"), ("has", "have"), ("lacks", "lack"), ("does not", "do not")
_WHOLE = re.compile(r"[+-]?[0-9]{1,19}")
_MIB, _GIB = 2**20, 2**30


class KubeMisfit(NamedTuple):
    """One thing for which kube-scheduler rules out a Node."""

    code: str
    """kube-scheduler's own words."""
    what: str
    """One clause about one Node, with numbers: `lacks 64 cpu (3.5 of 16 free)`."""
    verbs: tuple[str, str]
    """For one Node and for several: `("lacks", "lack")`."""
    rest: str
    """What several Nodes have in common, to follow their number and the verb."""
    remedy: str
    """The change after which this would no longer rule the Node out, to follow "it would fit"."""
    free: int = 0
    """What is free of the lacking resource, in its unit."""


@dataclass(frozen=True, slots=True)
class _Amount:
    """An amount of one resource: thousandths of a processor, else whole units."""

    units: int

    def plus(self, other: "_Amount") -> "_Amount":
        return _Amount(self.units + other.units)

    def peak(self, other: "_Amount") -> "_Amount":
        return _Amount(max(self.units, other.units))


@dataclass(slots=True)
class KubeNode:
    """What kube-scheduler's filters read of one Node."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Mapping[str, Any], ...] = ()
    """Those that keep Pods out."""
    is_unschedulable: bool = False
    allocatable: Mapping[str, int] = field(default_factory=dict)
    requested: dict[str, int] = field(default_factory=dict)
    """By the Pods there that have not ended."""
    pods: int = 0

    def take(self, pod: "KubePod", sign: int = 1) -> None:
        """Count one more Pod, or with -1 for *sign* one less."""
        self.pods += sign
        for resource, units in pod.requests.items():
            self.requested[resource] = self.requested.get(resource, 0) + sign * units


@dataclass(frozen=True, slots=True)
class KubePod:
    """What kube-scheduler's filters read of one Pod."""

    requests: Mapping[str, int]
    selector: Mapping[str, str] = field(default_factory=dict)
    terms: tuple[Mapping[str, Any], ...] | None = None
    """Of the required node affinity, one of which must match; None without any."""
    tolerations: tuple[Mapping[str, Any], ...] = ()

    @classmethod
    def of(cls, pod: Mapping[str, Any]) -> "KubePod":
        """Return what is read of *pod*, a v1 Pod."""
        spec = pod.get("spec") or {}
        required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(_REQUIRED) or {}
        terms = required.get("nodeSelectorTerms")
        return cls(
            _requests(pod),
            spec.get("nodeSelector") or {},
            None if terms is None else tuple(terms),
            tuple(spec.get("tolerations") or ()),
        )


@dataclass(frozen=True, slots=True)
class KubeView:
    """What kube-scheduler sees of the Nodes, as far as it could be read."""

    nodes: Mapping[str, KubeNode | None] = field(default_factory=dict)
    """By name. None is a Node that only its devices rule out, such as an imagined one."""
    why_unknown: str = ""
    """Why Nodes are missing here."""
    scheduler_name: str = ""
    """The schedulerName of the Pods that this scheduler is asked about; empty if it is unknown."""

    def copy(self) -> "KubeView":
        """Return a copy in which Pods can be counted."""
        nodes = {name: node and replace(node, requested=dict(node.requested)) for name, node in self.nodes.items()}
        return replace(self, nodes=nodes)

    def take(self, pod: KubePod, name: str, sign: int = 1) -> None:
        """Count *pod* on the Node *name*, or with -1 for *sign* no longer."""
        node = self.nodes.get(name)
        if node is not None:
            node.take(pod, sign)

    def misfits(self, pod: KubePod, name: str) -> tuple[KubeMisfit, ...]:
        """Return why kube-scheduler rules out the Node *name* for *pod*, by its first filter that does."""
        return next((found for found in self._of_filters(pod, name) if found), ())

    def only_misfit(self, pod: KubePod, name: str) -> KubeMisfit | None:
        """Return the only thing for which any filter rules out the Node *name*, None if there are more or none."""
        found = tuple(chain.from_iterable(self._of_filters(pod, name)))
        return found[0] if len(found) == 1 else None

    def _of_filters(self, pod: KubePod, name: str) -> Iterator[tuple[KubeMisfit, ...]]:
        """Yield the misfits of each filter, in the order of the default profile."""
        node = self.nodes.get(name)
        if node is not None:
            yield from (tuple(misfits(pod, node)) for misfits in _FILTERS)


class KubeNodes:
    """The Nodes of a cluster and the Pods there, added one by one, Nodes first."""

    def __init__(self, wanted: Callable[[str], bool]) -> None:
        """Keep the Nodes whose name is *wanted*."""
        self._wanted = wanted
        self.nodes: dict[str, KubeNode | None] = {}

    def add_node(self, node: Mapping[str, Any]) -> None:
        """Add *node*, a v1 Node, unless its kubelet has not said yet what it offers."""
        metadata, spec, status = node.get("metadata") or {}, node.get("spec") or {}, node.get("status") or {}
        name, amounts = str(metadata.get("name") or ""), status.get("allocatable") or {}
        if "pods" not in amounts or not self._wanted(name):
            return
        taints = [taint for taint in spec.get("taints") or () if taint.get("effect") in _KEEPS_OUT]
        ready = (one.get("status") for one in status.get("conditions") or () if one.get("type") == "Ready")
        if next(ready, "True") != "True" and not any(taint.get("key") == _NOT_READY["key"] for taint in taints):
            taints.append(_NOT_READY)
        allocatable = {resource: _units(resource, text) for resource, text in amounts.items() if _is_native(resource)}
        self.nodes[name] = KubeNode(
            name, metadata.get("labels") or {}, tuple(taints), bool(spec.get("unschedulable")), allocatable
        )

    def add_pod(self, pod: Mapping[str, Any]) -> None:
        """Count *pod*, a v1 Pod, on its Node if that was added before; a Pod that has ended counts nothing."""
        node = self.nodes.get(str((pod.get("spec") or {}).get("nodeName") or ""))
        if node is not None and not has_ended(pod):
            node.take(KubePod(_requests(pod)))


def summary(misfits: Mapping[str, KubeMisfit], pod: KubePod) -> str:
    """
    Return what rules out the Nodes of *misfits*, most common first, each counted once.

    >>> misfit = KubeMisfit("Insufficient cpu", "", _LACKS, "64 cpu", "", 3500)
    >>> summary({"a": misfit, "b": misfit}, KubePod({"cpu": 64000}))
    '2 lack 64 cpu (best has 3.5)'
    """
    groups: dict[tuple[str, str], list[KubeMisfit]] = {}
    for misfit in misfits.values():
        groups.setdefault((misfit.code, misfit.rest), []).append(misfit)
    parts = []
    for (code, rest), found in sorted(groups.items(), key=lambda item: (-len(item[1]), item[0])):
        resource = code.removeprefix(_INSUFFICIENT)
        best = f" (best has {_words(resource, max(one.free for one in found))})" if resource in pod.requests else ""
        parts.append(f"{len(found)} {found[0].verbs[len(found) > 1]} {rest}{best}")
    return ", ".join(parts)


def last_words(pod: Mapping[str, Any]) -> str:
    """Return what kube-scheduler has written on *pod* about why it has no Node, empty if it has not."""
    for condition in (pod.get("status") or {}).get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return str(condition.get("message") or condition.get("reason") or "")
    return ""


def gates(pod: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the scheduling gates of *pod*."""
    return tuple(str(gate.get("name")) for gate in (pod.get("spec") or {}).get("schedulingGates") or ())


def not_judged(pod: Mapping[str, Any], judged: Set[str]) -> tuple[str, ...]:
    """Return what kube-scheduler judges of *pod* and nobody here; *judged* are the resources that devices have."""
    spec, gang = pod.get("spec") or {}, gang_of(pod)
    affinity = spec.get("affinity") or {}
    ports = [port for container, _ in containers_of(pod) for port in container.get("ports") or ()]
    has_ports = any(port.get("hostPort") for port in ports) or bool(spec.get("hostNetwork") and ports)
    volumes = spec.get("volumes") or ()
    found = {
        "pod affinity": bool((affinity.get("podAffinity") or {}).get(_REQUIRED)),
        "pod anti-affinity": bool((affinity.get("podAntiAffinity") or {}).get(_REQUIRED)),
        "topology spread": any(
            one.get("whenUnsatisfiable") != "ScheduleAnyway" for one in spec.get("topologySpreadConstraints") or ()
        ),
        "volumes": any(not _BOUND_VOLUMES.isdisjoint(volume) for volume in volumes),
        "resource claims": bool(spec.get("resourceClaims")),
        "host ports": has_ports,
        "gang scheduling": gang is not None and gang.is_placed_together,
    }
    amounts = (container.get("resources") or {} for container, _ in containers_of(pod))
    named = chain.from_iterable((*(one.get("requests") or ()), *(one.get("limits") or ())) for one in amounts)
    others = sorted({name for name in named if not _is_native(name)} - judged)
    return (*(what for what, is_used in found.items() if is_used), *others)


# One Pod on one Node


def _cordons(pod: KubePod, node: KubeNode) -> Iterator[KubeMisfit]:
    if node.is_unschedulable and not _is_tolerated(_UNSCHEDULABLE, pod.tolerations):
        remedy = f"after kubectl uncordon {node.name}"
        yield KubeMisfit("node(s) were unschedulable", "is unschedulable", _IS, "unschedulable", remedy)


def _taints(pod: KubePod, node: KubeNode) -> Iterator[KubeMisfit]:
    code = "node(s) had untolerated taint(s)"
    for taint in node.taints:
        if _is_tolerated(taint, pod.tolerations):
            continue
        if taint is _NOT_READY:
            yield KubeMisfit(code, "is not ready", _IS, "not ready", "when the Node is ready")
            continue
        text = f"{taint.get('key')}{'=' if taint.get('value') else ''}{taint.get('value') or ''}:{taint.get('effect')}"
        what = f"has the taint {text}, which the Pod does not tolerate"
        yield KubeMisfit(code, what, _HAS, "a taint that the Pod does not tolerate", f"with a toleration of {text}")


def _mismatches(pod: KubePod, node: KubeNode) -> Iterator[KubeMisfit]:
    code, rest = "node(s) didn't match Pod's node affinity/selector", "match its nodeSelector or node affinity"
    lacking = ", ".join(f"{key}={value}" for key, value in pod.selector.items() if node.labels.get(key) != value)
    if lacking:
        what = f"lacks the label {lacking} of its nodeSelector"
        yield KubeMisfit(code, what, _DOES_NOT, rest, f"without {lacking} in its nodeSelector")
    if pod.terms is not None and not any(_matches(term, node) for term in pod.terms):
        what = "does not match its required node affinity"
        yield KubeMisfit(code, what, _DOES_NOT, rest, "without its required node affinity")


def _shortages(pod: KubePod, node: KubeNode) -> Iterator[KubeMisfit]:
    most = node.allocatable.get("pods", 0)
    if node.pods >= most:
        rest = "no place for another Pod"
        yield KubeMisfit("Too many pods", f"has {rest} ({node.pods} of {most})", _HAS, rest, "when a Pod there ends")
    for resource, asked in pod.requests.items():
        offered = node.allocatable.get(resource, 0)
        free = max(0, offered - node.requested.get(resource, 0))
        if asked > free:
            lack = f"{_words(resource, asked)} {resource}"
            numbers = f"{_words(resource, free)} of {_words(resource, offered)} free"
            less = f"with {_words(resource, free)} {resource} instead of {_words(resource, asked)}"
            remedy = less if free else f"when Pods there that request {resource} end"
            yield KubeMisfit(f"{_INSUFFICIENT}{resource}", f"lacks {lack} ({numbers})", _LACKS, lack, remedy, free)


_FILTERS: Sequence[Callable[[KubePod, KubeNode], Iterator[KubeMisfit]]] = (_cordons, _taints, _mismatches, _shortages)
"""In the order of the default profile."""


def _matches(term: Mapping[str, Any], node: KubeNode) -> bool:
    """Return whether *node* matches a term; an empty term matches no Node."""
    labels, fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    return bool(labels or fields) and all(
        chain(
            (holds(one, node.labels) for one in labels),
            (holds(one, {"metadata.name": node.name}) for one in fields),
        )
    )


def holds(requirement: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Return whether *labels* meet one requirement of a selector; an unknown operator is met by none."""
    value, operator = labels.get(str(requirement.get("key"))), str(requirement.get("operator"))
    values: Sequence[object] = requirement.get("values") or ()
    if operator == "In":
        return value in values
    if operator == "NotIn":
        return value not in values
    if operator in {"Exists", "DoesNotExist"}:
        return (value is None) == (operator == "DoesNotExist")
    return len(values) == 1 and _compares(value, operator, values[0])


def _compares(value: object, operator: str, bound: object) -> bool:
    """Return whether *value* is greater with `Gt`, less with `Lt`, than *bound*; what is no whole number never is."""
    if operator not in {"Gt", "Lt"} or not all(
        isinstance(text, str) and _WHOLE.fullmatch(text) for text in (value, bound)
    ):
        return False
    difference = int(str(value)) - int(str(bound))
    return difference > 0 if operator == "Gt" else difference < 0


def _is_tolerated(taint: Mapping[str, Any], tolerations: Iterable[Mapping[str, Any]]) -> bool:
    return any(_tolerates(toleration, taint) for toleration in tolerations)


def _tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    if (toleration.get("effect") or taint.get("effect")) != taint.get("effect"):
        return False
    if (toleration.get("key") or taint.get("key")) != taint.get("key"):
        return False
    operator, value = toleration.get("operator") or "Equal", taint.get("value") or ""
    if operator == "Equal":
        return (toleration.get("value") or "") == value
    return operator == "Exists" or _compares(value, operator, toleration.get("value"))


# Amounts


def _requests(pod: Mapping[str, Any]) -> dict[str, int]:
    """
    Return what *pod* requests of Kubernetes' own resources, as kube-scheduler counts it.

    A limit without a request counts, as the API server completes it. While a container is resized, the larger of the
    old and the new amount counts.
    Source: https://github.com/kubernetes/component-helpers/blob/v0.34.4/resource/helpers.go (`PodRequests`)
    """
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    conditions = status.get("conditions") or ()
    is_refused = any(one.get("type") == "PodResizePending" and one.get("reason") == "Infeasible" for one in conditions)
    statuses = statuses_of(status)
    containers = containers_of(pod)
    taken = (
        _container_requests(container, statuses.get(container.get("name") or "", {}), is_refused)
        for container, _ in containers
    )
    most = most_over_time([kind for _, kind in containers], taken)
    found = {resource: amount.units for resource, amount in most.items()}
    of_pod = spec.get("resources") or {}
    found = {**_native(of_pod.get("limits") or {}), **found, **_native(of_pod.get("requests") or {})}
    for resource, units in _native(spec.get("overhead") or {}).items():
        found[resource] = found.get(resource, 0) + units
    return {resource: units for resource, units in found.items() if units > 0}


def _container_requests(
    container: Mapping[str, Any], status: Mapping[str, Any], is_refused: bool
) -> dict[str, _Amount]:
    """Return what one container requests; *is_refused* says that its Node cannot resize it."""
    wanted, actual = _native(_completed(container.get("resources") or {})), status.get("resources")
    if actual is None:
        return {resource: _Amount(units) for resource, units in wanted.items()}
    sources = [_native(actual.get("requests") or {}), _native(status.get("allocatedResources") or {})]
    if not is_refused:
        sources.append(wanted)
    names = set().union(*sources)
    return {name: _Amount(max(source.get(name, 0) for source in sources)) for name in names}


def _completed(resources: Mapping[str, Any]) -> dict[str, Any]:
    return {**(resources.get("limits") or {}), **(resources.get("requests") or {})}


def _native(amounts: Mapping[str, Any]) -> dict[str, int]:
    return {name: _units(name, text) for name, text in amounts.items() if _is_native(name)}


def _is_native(resource: str) -> bool:
    """Return whether *resource* is one of Kubernetes' own; extended ones have a domain."""
    return "/" not in resource


def _units(resource: str, text: Any) -> int:
    return _parsed(resource == "cpu", str(text))


@lru_cache(maxsize=4096)
def _parsed(is_cpu: bool, text: str) -> int:
    """Return the amount in thousandths of a processor, else in whole units, rounded up; 0 if it is none."""
    try:
        amount = parse_quantity(text)
    except QuantityError:
        return 0
    return -int(-(amount * 1000 if is_cpu else amount) // 1)


def _words(resource: str, units: int) -> str:
    """
    Return an amount of *resource* as people write it.

    >>> _words("cpu", 3500), _words("memory", 5 * 2**29), _words("memory", 2**20), _words("hugepages-2Mi", 0)
    ('3.5', '2.5Gi', '1Mi', '0')
    """
    if resource == "cpu":
        return f"{units / 1000:g}"
    for unit, name in ((_GIB, "Gi"), (_MIB, "Mi")):
        if units >= unit:
            return f"{units * 100 // unit / 100:g}{name}"
    return str(units)
