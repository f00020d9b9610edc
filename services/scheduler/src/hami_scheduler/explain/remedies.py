"""
What would let a refused Pod fit.

Each remedy is one change alone, the smallest that helps; where none helps, it is the least pair of lower amounts. The
search changes the Pod's amounts or annotations, the quota, a cordon, or the Pods on a Node, and asks the same decision
again, so it holds for every vendor. It runs in small steps with pauses, because it asks often.
Neighbours: `report` shows what is found.
"""

import copy
import math
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, permutations
from typing import Any

import numpy as np

from hami_scheduler.explain.kube_filters import DEFAULT_SCHEDULER, KubePod
from hami_scheduler.search.place_pod import place, try_node
from hami_scheduler.search.placement import Placement
from hami_scheduler.search.preempt import fewest_to_leave
from hami_scheduler.search.prefilter import possible_nodes
from hami_scheduler.state.quota import Allowance
from hami_scheduler.state.view import ClusterView
from hami_scheduler.values.grant import Grant
from hami_scheduler.values.policies import Policies
from hami_scheduler.values.request import PodRequest, read_request
from hami_scheduler.values.vendor import VendorRules
from hamicommon.model import Object
from hamicommon.pod.amounts import amounts_over_time
from hamicommon.pod.containers import containers_of
from hamicommon.wire.errors import DecodeError
from hamicommon.wire.quantity import whole

_NODES_TRIED = 64
"""Nodes that are tried for one change, and Nodes where Pods are removed."""
_PODS_NAMED = 5
_PAIRS_TRIED = 32
_SIMULATED = "simulated-"
"""The begin of the UIDs of Pods that do not exist, so that none can end."""

Amount = tuple[int, str]
"""The position of a container, and a resource in it."""

Answer = Generator[None, None, str | None]
"""Yields at each pause, then returns the Node that fits."""


@dataclass(frozen=True, slots=True)
class Change:
    """One change after which the Pod fits."""

    kind: str
    """`amount`, `annotation`, `quota`, `cordon` or `pods`; `kube-scheduler` for what it alone judges."""
    what: str
    """In words, to follow "it fits": `with nvidia.com/gpumem 2048 instead of 3000 in container main`."""
    node: str
    """The Node that fits then."""


@dataclass(frozen=True, slots=True)
class Question:
    """
    A Pod, and what it asks.

    Raises:
        DecodeError: its device-scoring weights cannot be read.
    """

    pod: Object
    vendors: tuple[VendorRules, ...]
    policies: Policies
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Resources of vendors that are not placed, each with the flag that enables it."""
    request: PodRequest = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "request", read_request(self.pod, self.vendors, self.policies))

    @property
    def kube_pod(self) -> KubePod:
        """What kube-scheduler reads of the Pod, read each time."""
        return KubePod.of(self.pod)

    @property
    def device_resources(self) -> frozenset[str]:
        """The resources that are judged with the devices, or left alone."""
        return frozenset().union(*(rules.vendor.resource_set for rules in self.vendors), self.left_out)

    @property
    def bound_to(self) -> str:
        """The Pod's Node, empty if it has none."""
        return str((self.pod.get("spec") or {}).get("nodeName") or "")

    def amounts(self, position: int) -> dict[str, Any]:
        """Return what the container at *position*, init containers first, asks: limits before requests."""
        resources = containers_of(self.pod)[position][0].get("resources") or {}
        return {**(resources.get("requests") or {}), **(resources.get("limits") or {})}

    def changed(self, pod: Object) -> "Question | None":
        """Return the question of *pod*, None if it asks nothing or cannot be read."""
        try:
            found = Question(pod, self.vendors, self.policies)
        except DecodeError:
            return None
        return found if found.request.asks_for_devices else None


def as_new(
    pods: Sequence[Object],
    vendors: tuple[VendorRules, ...],
    policies: Policies,
    left_out: Mapping[str, str] | None = None,
) -> list[Question]:
    """Return the questions of *pods* as if they did not exist yet; the webhook sets the schedulerName of new Pods."""
    found = []
    for number, pod in enumerate(pods):
        metadata = {**(pod.get("metadata") or {}), "uid": f"{_SIMULATED}{number}"}
        metadata.setdefault("name", metadata.get("generateName") or "unnamed")
        metadata.pop("deletionTimestamp", None)
        spec = {key: value for key, value in (pod.get("spec") or {}).items() if key != "nodeName"}
        if spec.get("schedulerName") == DEFAULT_SCHEDULER:
            del spec["schedulerName"]
        new = {"kind": "Pod", "metadata": metadata, "spec": spec}
        found.append(Question(new, vendors, policies, left_out or {}))
    return found


def changes(question: Question, view: ClusterView, names: Sequence[str]) -> Generator[None, None, tuple[Change, ...]]:
    """Return the changes that let the Pod fit on one of the Nodes *names*; changes of its amounts come first."""
    found: list[Change] = []
    for search in (_amounts_lowered, _annotations_dropped, _quota_raised, _uncordoned, _pods_ended):
        yield
        found.extend((yield from search(question, view, names)))
    return tuple(found or (yield from _least_pair(question, view, names)))


Search = Generator[None, None, list[Change]]


def _amounts_lowered(question: Question, view: ClusterView, names: Sequence[str]) -> Search:
    """For each amount of each container find the largest smaller amount that fits; if none does, try two together."""
    found: list[Change] = []
    counts = {rules.count_resource for rules in question.vendors}
    for position in range(len(question.request.containers)):
        has_part = False
        for resource in _resources(question, position):
            best = yield from _largest_that_fits(question, view, names, position, resource)
            if best is not None:
                has_part = has_part or resource not in counts
                found.append(_lowered_by(question, _Lowered({(position, resource): best[0]}, best[1])))
        if not has_part:
            found += yield from _part_of_device(question, view, names, position)
    return found


def _part_of_device(question: Question, view: ClusterView, names: Sequence[str], position: int) -> Search:
    """Find the largest part of a device that fits: memory first, then compute."""
    asked = {each.vendor for each in question.request.containers[position].requests}
    amounts = question.amounts(position)
    for rules in question.vendors:
        memory, cores = rules.vendor.memory_resource_name, rules.vendor.core_resource_name
        if rules.key in asked and memory and cores in amounts:
            pair = yield from _pair_lowered(question, view, names, (position, memory), (position, cores))
            if pair is not None:
                return [_lowered_by(question, pair)]
    return []


@dataclass(frozen=True, slots=True)
class _Lowered:
    """Amounts that fit together, and the Node."""

    amounts: Mapping[Amount, int]
    node: str

    def kept(self, question: Question) -> float:
        """Return the product of the parts that are left of the amounts, 1 for a whole device's."""
        asked = {
            (position, resource): whole(question.amounts(position).get(resource) or 0) or 0
            for position, resource in self.amounts
        }
        return math.prod(left / asked[amount] for amount, left in self.amounts.items() if asked[amount])


def _least_pair(question: Question, view: ClusterView, names: Sequence[str]) -> Search:
    """Find the two amounts that fit if both are lowered, and of which the largest parts are left."""
    every = [
        (position, resource)
        for position in range(len(question.request.containers))
        for resource in _resources(question, position)
    ]
    best: _Lowered | None = None
    for first, second in islice(permutations(every, 2), _PAIRS_TRIED):
        found = yield from _pair_lowered(question, view, names, first, second)
        if found is not None and (best is None or found.kept(question) > best.kept(question)):
            best = found
    if best is None:
        return []
    in_order = {amount: best.amounts[amount] for amount in every if amount in best.amounts}
    return [_lowered_by(question, _Lowered(in_order, best.node))]


def _pair_lowered(
    question: Question, view: ClusterView, names: Sequence[str], first: Amount, second: Amount
) -> Generator[None, None, _Lowered | None]:
    """Return the largest *first* that fits with any *second*, with the largest *second* that fits beside it."""
    least = question.changed(_with_amount(question.pod, *second, 1))
    most_first = (yield from _largest_that_fits(least, view, names, *first)) if least else None
    if most_first is None:
        return None
    rest = question.changed(_with_amount(question.pod, *first, most_first[0]))
    most_second = (yield from _largest_that_fits(rest, view, names, *second)) if rest else None
    amount, node = most_second or (1, most_first[1])
    return _Lowered({first: most_first[0], second: amount}, node)


def _lowered_by(question: Question, lowered: _Lowered) -> Change:
    """Return the change to *lowered*, in words."""
    by_container: dict[int, list[str]] = {}
    for (position, resource), amount in lowered.amounts.items():
        before = question.amounts(position).get(resource)
        # The API server has made 50000 to 50k.
        instead = "a whole device's" if before is None else whole(before) or before
        by_container.setdefault(position, []).append(f"{resource} {amount} instead of {instead}")
    texts = (
        f"{' and '.join(parts)} in container {question.request.containers[position].name}"
        for position, parts in by_container.items()
    )
    return Change("amount", f"with {' and '.join(texts)}", lowered.node)


def _resources(question: Question, position: int) -> Iterator[str]:
    """Yield the resources of the vendors that the container at *position* asks, and memory if it asks whole devices."""
    asked = {each.vendor for each in question.request.containers[position].requests}
    amounts = question.amounts(position)
    for rules in question.vendors:
        if rules.key in asked:
            named = [name for name in rules.vendor.resource_names if name in amounts]
            memory = rules.vendor.memory_resource_name
            is_whole = memory and len(named) == len(
                set(named) & {rules.count_resource, rules.vendor.core_resource_name}
            )
            yield from [*named, memory] if is_whole else named


def _largest_that_fits(
    question: Question, view: ClusterView, names: Sequence[str], position: int, resource: str
) -> Generator[None, None, tuple[int, str] | None]:
    """Return the largest smaller amount that fits, and the Node. It assumes that less fits if more does."""
    asked = question.amounts(position).get(resource)
    # The memory of the largest device in MiB, which is the smallest unit, bounds amounts of memory.
    largest = np.max(view.ledger.capacity[: view.ledger.row_count, 1], initial=0)
    limit = whole(asked) if asked is not None else int(largest) + 1
    best: tuple[int, str] | None = None
    low, high = 1, (limit or 0) - 1
    while low <= high:
        amount = low if best is None else (low + high + 1) // 2
        yield
        changed = question.changed(_with_amount(question.pod, position, resource, amount))
        node = (yield from _first_fit(changed.request, view, names)) if changed else None
        if node is not None:
            best, low = (amount, node), amount + 1
        elif best is None:
            return None
        else:
            high = amount - 1
    return best


def _annotations_dropped(question: Question, view: ClusterView, names: Sequence[str]) -> Search:
    """Find the annotations without which the Pod would fit."""
    found = []
    metadata = question.pod.get("metadata") or {}
    annotations = metadata.get("annotations") or {}
    for key, text in sorted(annotations.items()):
        rest = {other: value for other, value in annotations.items() if other != key}
        changed = question.changed({**question.pod, "metadata": {**metadata, "annotations": rest}})
        if changed is None or changed.request == question.request:
            continue
        yield
        node = yield from _first_fit(changed.request, view, names)
        if node is not None:
            found.append(Change("annotation", f"without annotation {key}: {text}", node))
    return found


def _quota_raised(question: Question, view: ClusterView, names: Sequence[str]) -> Search:
    """Find by how much the namespace's quotas must grow, if nothing else is in the way."""
    request = question.request
    allowances = view.allowances(request)
    if not any(allowance != Allowance() for allowance in allowances.values()):
        return []
    node = yield from _first_fit(request, view, names, {})
    placed = try_node(request, node, view.ledger, {}) if node else None
    if node is None or not isinstance(placed, Placement):
        return []
    missing = []
    for key, allowance in allowances.items():
        vendor = request.vendors[key].vendor
        amounts = amounts_over_time(request.kinds, placed.shares.get(key, ())).values()
        memory_mib, core_percent = sum(a.memory_mib for a in amounts), sum(a.core_percent for a in amounts)
        missing += [
            f"{most - left} {unit} of {name}"
            for name, most, left, unit in (
                (vendor.memory_resource_name, memory_mib, allowance.memory_mib, "MiB"),
                (vendor.core_resource_name, core_percent, allowance.core_percent, "%"),
            )
            if left is not None and most > left
        ]
    what = f"with {' and '.join(missing)} more in the quota of namespace {request.namespace}"
    return [Change("quota", what, node)] if missing else []


def _uncordoned(question: Question, view: ClusterView, names: Sequence[str]) -> Search:
    """Find a Node that fits if its devices are uncordoned."""
    allowances = view.allowances(question.request)
    for name in names:
        entry = view.ledger.node(name)
        if entry is None or not entry.inventory.cordoned:
            continue
        if view.ledger.short_replicas(entry, question.request.replicas):
            continue
        yield
        uses = view.ledger.device_uses(name)
        for use in uses:
            use.is_cordoned = False
        placed = place(question.request, uses, allowances, entry.inventory.pair_scores)
        if isinstance(placed, Placement):
            used = {share.uuid for vendor in placed.shares.values() for shares in vendor for share in shares}
            devices = ", ".join(sorted(used & entry.inventory.cordoned))
            return [Change("cordon", f"with {devices} on node {name} uncordoned", name)]
    return []


def _pods_ended(question: Question, view: ClusterView, names: Sequence[str]) -> Search:
    """Find the Node where the fewest Pods must end."""
    ledger, request = view.ledger, question.request
    allowances = view.allowances(request)
    on_node = {name: grants for name in names if (grants := [g for g in ledger.grants_on(name) if not g.is_claim])}
    best: tuple[str, list[Grant]] | None = None
    for name in sorted(on_node, key=lambda name: (len(on_node[name]), name))[:_NODES_TRIED]:
        yield
        entry = ledger.node(name)
        if entry is None:
            continue
        claims = [grant for grant in ledger.grants_on(name) if grant.is_claim]
        ended = fewest_to_leave(request, entry.inventory, allowances, on_node[name], staying=claims)
        if not ended or any(grant.uid.startswith(_SIMULATED) for grant in ended):
            continue
        if best is None or len(ended) < len(best[1]):
            best = (name, ended)
    if best is None:
        return []
    pods = sorted(f"{grant.namespace}/{grant.name}" for grant in best[1])
    listed = ", ".join(pods[:_PODS_NAMED]) + (f" and {len(pods) - _PODS_NAMED} more" if len(pods) > _PODS_NAMED else "")
    return [Change("pods", f"when {listed} end{'s' if len(pods) == 1 else ''}", best[0])]


def _first_fit(
    request: PodRequest,
    view: ClusterView,
    names: Sequence[str],
    allowances: Mapping[str, Allowance] | None = None,
) -> Answer:
    """Return the first Node of *names* that takes *request*; without *allowances* the namespace's quotas count."""
    ledger = view.ledger
    if allowances is None:
        allowances = view.allowances(request)
    possible = possible_nodes(ledger, request)
    tried = 0
    for name in names:
        entry = ledger.node(name)
        if entry is None or entry.index >= len(possible) or not possible[entry.index]:
            continue
        if isinstance(try_node(request, name, ledger, allowances), Placement):
            return name
        tried += 1
        if tried == _NODES_TRIED:
            break
        yield
    return None


def _with_amount(pod: Object, position: int, resource: str, amount: int) -> Object:
    """Return a copy of *pod* whose container at *position* asks *amount* of *resource*."""
    changed: dict[str, Any] = copy.deepcopy(dict(pod))
    container: Any = containers_of(changed)[position][0]
    resources = container["resources"] = dict(container.get("resources") or {})
    for part in ("limits", "requests"):
        if part == "limits" or resource in (resources.get(part) or {}):
            resources[part] = {**(resources.get(part) or {}), resource: str(amount)}
    return changed
