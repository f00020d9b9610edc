"""
Decisions in words and numbers: for the log, for Events, and for reports.

Two concepts: a `_Phrase` says how a reason is worded, `Facts` fills in the numbers of one Pod on one state of the
cluster. These sentences may change with every call, so none of them may reach `FailedNodes`. Neighbours: `filter`
decides, `reasons` owns the stable codes.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hami_scheduler.rules.fit import WHOLE_CORE_PERCENT
from hami_scheduler.search.filter import FilterResult
from hami_scheduler.search.prefilter import belonging_devices, refused_devices
from hami_scheduler.state.ledger import Excess, Ledger
from hami_scheduler.state.quota import UNLIMITED, Allowance
from hami_scheduler.values.constraints import Constraints
from hami_scheduler.values.grant import Grant
from hami_scheduler.values.reasons import Misfit, Reason
from hami_scheduler.values.request import PodRequest
from hami_scheduler.values.vendor import VendorRules
from hamicommon.model import Request

EVENT_LIMIT_BYTES = 1024
"""Longest message of an Event; `hamicommon.runtime.api.kube` cuts there."""
_NODES_NAMED = (5, 2, 1, 0)
"""Nodes listed per code: the first number with which the message fits an Event."""
_CAUSES_NAMED = 6
_MEMORY, _CORES = 1, 2
"""Columns of the ledger's arrays."""


# Sentences


def choice(request: PodRequest, result: FilterResult) -> str:
    """
    Return what *request* gets: `default/a fits node n1: app gets GPU-1 (3000 MiB, 25 % compute); ...`.

    Raises:
        ValueError: *result* chose no Node.
    """
    if result.node is None or result.placement is None:
        raise ValueError(f"{request.namespace}/{request.name}: no Node was chosen")
    parts = []
    for position, container in enumerate(request.containers):
        shares = [share for vendor in result.placement.shares.values() for share in vendor[position]]
        if shares:
            got = ", ".join(f"{s.uuid} ({s.memory_mib} MiB, {s.core_percent} % compute)" for s in shares)
            parts.append(f"{container.name} gets {got}")
    return (
        f"{request.namespace}/{request.name} fits node {result.node} "
        f"({request.node_policy}, score {result.score:.2f}): {'; '.join(parts)}"
    )


def refusal(
    request: PodRequest,
    misfits: Mapping[str, Misfit],
    ledger: Ledger,
    allowances: Mapping[str, Allowance],
) -> str:
    """
    Return why no Node can take *request*, for an Event: causes in order, what is asked, and HAMi's words and codes.

    Names of Nodes are left out until it fits an Event.
    """
    parts = [summary(misfits, Facts(request, ledger, allowances))]
    asked = [
        describe(each, request.vendors[each.vendor]) for container in request.containers for each in container.requests
    ]
    if asked:
        parts.append(f"asked: {'; '.join(dict.fromkeys(asked))}")
    parts.append(f"no available node, {len(misfits)} nodes do not meet")
    text = ""
    for named in _NODES_NAMED:
        text = "; ".join((*parts, *_by_code(misfits, named)))
        if len(text.encode()) <= EVENT_LIMIT_BYTES:
            break
    return text


def summary(misfits: Mapping[str, Misfit], facts: "Facts") -> str:
    """Return how many Nodes refuse, and the causes: `0 of 3 nodes: 2 have no free replica, 1 is cordoned`."""
    found = causes(misfits, facts)
    return f"0 of {len(misfits)} nodes: {found}" if found else "0 of 0 nodes: there is no node to try"


def causes(misfits: Mapping[str, Misfit], facts: "Facts") -> str:
    """
    Return the causes, most common first, each Node counted once: `2 have no free replica, 1 is cordoned`.

    A Node counts for the reason that comes closest to fitting, and for the vendor whose devices have it.
    """
    nodes: defaultdict[tuple[Reason, str], list[str]] = defaultdict(list)
    for name, misfit in misfits.items():
        nodes[misfit.cause, misfit.vendor].append(name)
    ranked = sorted(nodes.items(), key=lambda item: (-len(item[1]), item[0]))
    parts = [
        of_nodes(cause, len(names), facts.about(cause, names, [misfits[name] for name in names]))
        for (cause, _), names in ranked[:_CAUSES_NAMED]
    ]
    others = sum(len(names) for _, names in ranked[_CAUSES_NAMED:])
    if others:
        parts.append(f"{others} for other reasons")
    return ", ".join(parts)


def node_sentence(name: str, misfit: Misfit, facts: "Facts") -> str:
    """Return why the Node *name* refuses: `2 of 4 NVIDIA devices lack 3000 MiB (best has 2048), 2 are cordoned`."""
    if misfit.parts:
        return "; ".join(dict.fromkeys(node_sentence(name, part, facts) for part in misfit.parts))
    if not misfit.device_count:
        return of_node(misfit.cause, facts.about(misfit.cause, [name], [misfit]))
    parts: list[str] = []
    for reason, count in sorted(misfit.counts, key=lambda item: (-item[1], item[0])):
        values = facts.about(reason, [name], [misfit])
        plural = "s" if misfit.device_count > 1 else ""
        among = "" if parts else f" of {misfit.device_count} {values['vendor']} device{plural}"
        parts.append(of_devices(reason, count, values, among))
    return ", ".join(parts)


def describe(asked: Request, rules: VendorRules) -> str:
    """Return *asked* in words: `2 NVIDIA devices with 3000 MiB and 25 % compute each`."""
    plural, each = ("s", " each") if asked.count > 1 else ("", "")
    profile = f"{asked.profile_size} of its parts" if asked.profile_size else ""
    cores = _compute_words(asked, rules) if asked.core_percent else ""
    share = " and ".join(part for part in (profile, _memory_words(asked, rules), cores) if part)
    return f"{asked.count} {asked.vendor} device{plural}" + (f" with {share}{each}" if share else "")


def short_by(grant: Grant, problems: Mapping[str, str]) -> str:
    """Return why *grant* can no longer be kept, from what `ledger.shortfall` found."""
    resources = {name for name, _ in grant.replicas}
    listed = ", ".join(
        f"{'resource' if key in resources else 'device'} {key} {problem}" for key, problem in sorted(problems.items())
    )
    return f"node {grant.node} can no longer take {grant.namespace}/{grant.name}: {listed}"


def above(excess: Excess) -> str:
    """Return what is granted of a device beyond what it offers, and to whom."""
    over = f"{excess.replicas} replicas, {excess.memory_mib} MiB and {excess.core_percent} % compute"
    return f"device {excess.uuid} is granted {over} above its capacity, to {', '.join(excess.holders)}"


def _by_code(misfits: Mapping[str, Misfit], named: int) -> list[str]:
    """Return per code how many Nodes have it, most first, and the first *named* of them by name."""
    nodes: defaultdict[Reason, list[str]] = defaultdict(list)
    for name, misfit in misfits.items():
        for reason in misfit.reasons:
            nodes[reason].append(name)
    parts = []
    for reason, names in sorted(nodes.items(), key=lambda item: (-len(item[1]), item[0])):
        listed = ",".join(sorted(names)[:named]) + (",..." if len(names) > named else "")
        parts.append(f"{len(names)} nodes {reason}" + (f"({listed})" if named else ""))
    return parts


# How each reason is worded


@dataclass(frozen=True, slots=True)
class _Phrase:
    """How one reason is worded; `Facts.about` fills the fields in braces."""

    node: str
    """What follows the verb of a Node."""
    device: str = "nothing"
    """What follows the verb of a device."""
    verbs: tuple[str, str] = ("has", "have")
    """Of one Node or device, and of many."""
    device_verbs: tuple[str, str] | None = None
    """Of devices, if they differ from those of Nodes."""


_LACK, _ARE = ("lacks", "lack"), ("is", "are")
_PHRASES = {
    Reason.NODE_UNREGISTERED: _Phrase("no device", verbs=("offers", "offer")),
    Reason.SILENT: _Phrase(
        "devices, and the kubelet offers no {silent}: its device plugin does not run", verbs=("lists", "list")
    ),
    Reason.CLAIMS_ONLY: _Phrase(
        "devices by ResourceClaims, and the Pod asks for them by resources", verbs=("gives", "give")
    ),
    Reason.PREPARED_ELSEWHERE: _Phrase(
        "a device plugin, and the Pod's status names a ResourceClaim, which a device plugin does not prepare"
    ),
    Reason.SECOND_CLAIM: _Phrase(
        "a device plugin, and kube-scheduler binds no Pod with ResourceClaims of its own there while a DeviceClass "
        "maps the count of devices"
    ),
    Reason.ONE_REQUEST: _Phrase(
        "devices by ResourceClaims, and a claim has one request for an init container and a later one, so both would "
        "get the same share",
        verbs=("gives", "give"),
    ),
    Reason.KUBELET: _Phrase("fewer {resource} left on the kubelet than the {replicas} asked{left}"),
    Reason.NODE_DEVICES: _Phrase("fewer {vendor} devices than the {count} asked"),
    Reason.UNHEALTHY: _Phrase("no healthy {vendor} device", "failed"),
    Reason.SICK: _Phrase("no healthy {vendor} device", "failed"),
    Reason.CORDONED: _Phrase("cordoned", "cordoned", _ARE),
    Reason.TYPE: _Phrase(
        "no {vendor} device of a type the Pod accepts{types}",
        "not of a type the Pod accepts{types}",
        device_verbs=_ARE,
    ),
    Reason.MODE: _Phrase("no {vendor} device that can be shared as the Pod asks", "another mode"),
    Reason.UUID: _Phrase("no device that the Pod's UUID lists allow", "a UUID the Pod does not accept"),
    Reason.OTHER_DEVICE: _Phrase(
        "no room on the device of the Pod's earlier container", "no earlier container of the Pod"
    ),
    Reason.APP_CLASS: _Phrase("no device free of Pods of another class", "Pods of another class"),
    Reason.QOS: _Phrase("no device of the Pod's QoS policy", "another QoS policy"),
    Reason.REPLICAS: _Phrase("no free replica", "no free replica"),
    Reason.EXCLUSIVE: _Phrase("no {vendor} device without other users", "other users, and the Pod needs it alone"),
    Reason.QUOTA: _Phrase(
        "the namespace's quota{allowed}", "the namespace's quota{allowed}", ("would exceed", "would exceed")
    ),
    Reason.MEMORY: _Phrase("{memory} on any {vendor} device{best}", "{memory}{best}", _LACK),
    Reason.CORE: _Phrase("{compute} on any {vendor} device{best}", "{compute}{best}", _LACK),
    Reason.ZERO_CORE: _Phrase("no compute left on any {vendor} device", "no compute left"),
    Reason.MIG: _Phrase("no MIG profile and place left for {memory}", "no MIG place for {memory}"),
    Reason.COUNT: _Phrase(
        "fewer {vendor} devices with room than the {count} asked{best}", "room, but {count} are asked"
    ),
    Reason.NUMA: _Phrase("no {count} {vendor} devices with room{together}", "apart from the others", device_verbs=_ARE),
}


def of_nodes(reason: Reason, count: int, values: Mapping[str, str]) -> str:
    """
    Return what *count* Nodes have in common.

    >>> of_nodes(Reason.MEMORY, 7, {"vendor": "NVIDIA", "memory": "3000 MiB", "best": " (best has 2048)"})
    '7 lack 3000 MiB on any NVIDIA device (best has 2048)'
    """
    phrase = _PHRASES[reason]
    return f"{count} {phrase.verbs[count > 1]} {phrase.node.format_map(values)}"


def of_node(reason: Reason, values: Mapping[str, str]) -> str:
    """
    Return why one Node as a whole refuses.

    >>> of_node(Reason.NODE_UNREGISTERED, {})
    'offers no device'
    """
    phrase = _PHRASES[reason]
    return f"{phrase.verbs[0]} {phrase.node.format_map(values)}"


def of_devices(reason: Reason, count: int, values: Mapping[str, str], among: str = "") -> str:
    """
    Return what *count* devices of one Node have in common; *among* says how many devices there are.

    >>> values = {"memory": "3000 MiB", "best": ""}
    >>> of_devices(Reason.CORDONED, 1, {}), of_devices(Reason.MEMORY, 2, values, " of 4 devices")
    ('1 is cordoned', '2 of 4 devices lack 3000 MiB')
    """
    phrase = _PHRASES[reason]
    verb = (phrase.device_verbs or phrase.verbs)[count > 1]
    return f"{count}{among} {verb} {phrase.device.format_map(values)}"


def _memory_words(asked: Request, rules: VendorRules) -> str:
    """Return the memory of *asked*, empty if its vendor does not count memory."""
    if not rules.fit.counts_memory:
        return ""
    if asked.memory_mib:
        return f"{rules.memory_in_mib(asked.memory_mib)} MiB"
    return "" if asked.memory_percent is None else f"{asked.memory_percent} % of the memory"


def _compute_words(asked: Request, rules: VendorRules) -> str:
    """Return the compute of *asked*, in its vendor's unit."""
    return f"{asked.held_core_percent} {rules.core_unit}"


# The numbers


class Facts:
    """The numbers for one Pod, on one state of the cluster."""

    def __init__(self, request: PodRequest, ledger: Ledger, allowances: Mapping[str, Allowance]) -> None:
        """Read *ledger* when asked; it must not change meanwhile."""
        self._request = request
        self._ledger = ledger
        self._allowances = allowances
        self._left = ledger.left()
        """Per device row: replicas, MiB and percent that are not promised."""
        self._usable: dict[Request, NDArray[np.bool_]] = {}
        asked = {each: None for container in request.containers for each in container.requests}
        self._asked = sorted(
            asked, key=lambda one: (one.memory_mib, one.memory_percent or 0, one.count, one.core_percent), reverse=True
        )

    def about(self, reason: Reason, nodes: Sequence[str], misfits: Sequence[Misfit] = ()) -> dict[str, str]:
        """Return what fills the phrase of *reason* for *nodes*, which refuse as *misfits* say."""
        if not self._asked:
            fields = ("vendor", "count", "memory", "compute", "types", "allowed", "best", "together")
            return {**dict.fromkeys(fields, ""), **self._of_kubelets(nodes)}
        vendors = {misfit.vendor for misfit in misfits}
        asks = [each for each in self._asked if each.vendor in vendors] or self._asked
        asked, best = asks[0], ""
        if reason in {Reason.MEMORY, Reason.CORE}:
            asked, best = self._lacking(asks, self._rows(nodes), _MEMORY if reason is Reason.MEMORY else _CORES)
        elif reason in {Reason.COUNT, Reason.NODE_DEVICES, Reason.NUMA}:
            asked = max(asks, key=lambda each: each.count)
        if reason is Reason.COUNT and misfits:
            found = [dict(part.counts) for misfit in misfits for part in misfit.parts or (misfit,)]
            best = f" (best has {max(counts.get(reason, 0) for counts in found)})"
        constraints, rules = self._request.constraints[asked.vendor], self._request.vendors[asked.vendor]
        return {
            "vendor": asked.vendor,
            "count": str(asked.count),
            "memory": _memory_words(asked, rules) or "memory",
            "compute": _compute_words(asked, rules),
            "types": _types(constraints),
            "allowed": _allowed(self._allowances.get(asked.vendor, UNLIMITED)),
            "best": best,
            "together": " on one NUMA node" if constraints.is_numa_bound else " that belong together",
            **self._of_kubelets(nodes),
        }

    def _of_kubelets(self, nodes: Sequence[str]) -> dict[str, str]:
        """Return what the kubelets of *nodes* do not offer, or have too few of: the resource that the fewest have."""
        ledger = self._ledger
        entries = [entry for entry in map(ledger.node, nodes) if entry is not None]
        listed = [ledger.silent[name].silent for name in nodes if name in ledger.silent]
        silent = ", ".join(sorted({resource for resources in listed for resource in resources}))
        most = {
            resource: max((ledger.replicas_left(entry, resource) for entry in entries), default=0)
            for resource, _ in self._request.replicas
        }
        short = [(resource, count) for resource, count in self._request.replicas if most[resource] < count]
        resource, count = (short or [*self._request.replicas, ("", 0)])[0]
        rejecting = all(resource in entry.inventory.rejecting for entry in entries)
        left = " (it rejected a Pod, and its status is the same since)" if rejecting else ""
        return {
            "silent": silent,
            "resource": resource,
            "replicas": str(count),
            "left": left or f" (best has {max(0, most.get(resource, 0))})",
        }

    def _rows(self, nodes: Sequence[str]) -> NDArray[np.int64]:
        """Return the device rows of *nodes*."""
        if len(nodes) > 1:
            return np.flatnonzero(
                np.isin(self._ledger.node_of_row[: self._ledger.row_count], self._ledger.indexes(nodes))
            )
        entries = [entry for entry in map(self._ledger.node, nodes) if entry is not None]
        return np.array([row for entry in entries for row in entry.rows.values()], np.int64)

    def _lacking(self, asks: Sequence[Request], rows: NDArray[np.int64], column: int) -> tuple[Request, str]:
        """Return the first of *asks* for which even the best device has too little left, and what that device has."""
        if column == _CORES:
            asks = sorted(asks, key=lambda asked: asked.held_core_percent, reverse=True)
        for asked in asks:
            if not self._request.vendors[asked.vendor].fit.is_plain:
                return asked, ""
            usable = rows[self._usable_for(asked)[rows]]
            if not usable.size:
                return asked, ""
            best = int(usable[self._left[usable, column].argmax()])
            shortage = self._shortage(asked, best, column)
            if shortage:
                return asked, f" (best has {shortage})"
        users = [container for container in self._request.containers if container.requests]
        return asks[0], " beside the Pod's other containers" if len(users) > 1 else ""

    def _shortage(self, asked: Request, row: int, column: int) -> str:
        """Return what the device at *row* has left of what *column* counts, empty if that is enough."""
        left, capacity = int(self._left[row, column]), int(self._ledger.capacity[row, column])
        if column == _CORES:
            is_percent = capacity == WHOLE_CORE_PERCENT and self._request.vendors[asked.vendor].core_unit.startswith(
                "%"
            )
            words = f"{left} %" if is_percent else f"{left} of {capacity}"
            return words if left < asked.held_core_percent else ""
        if asked.memory_mib:
            return str(left) if left < asked.memory_mib else ""
        percent = left * 100 // max(capacity, 1)
        return f"{percent} % of {capacity} MiB" if percent < (asked.memory_percent or 0) else ""

    def _usable_for(self, asked: Request) -> NDArray[np.bool_]:
        """Return per device row whether *asked* accepts the device and a replica is left."""
        if asked not in self._usable:
            ledger, constraints = self._ledger, self._request.constraints[asked.vendor]
            fit = self._request.vendors[asked.vendor].fit
            usable = belonging_devices(ledger, asked.vendor, constraints) & (self._left[:, 0] > 0)
            for reason, refused in refused_devices(ledger, asked, constraints, fit, UNLIMITED):
                if reason in {fit.unhealthy, Reason.CORDONED, Reason.TYPE, Reason.UUID}:
                    usable &= ~refused
            self._usable[asked] = usable
        return self._usable[asked]


def _types(constraints: Constraints) -> str:
    """Return the types and modes that the Pod names, in brackets, empty if it names none."""
    named = [
        _listed(constraints.use_types),
        f"not {_listed(constraints.nouse_types)}" if _listed(constraints.nouse_types) else "",
        f"mode {constraints.modes.strip()}" if constraints.modes and constraints.modes.strip() else "",
    ]
    listed = ", ".join(part for part in named if part)
    return f" ({listed})" if listed else ""


def _listed(text: str | None) -> str:
    """Return the members of a comma list that are not blank."""
    return ", ".join(word.strip() for word in (text or "").split(",") if word.strip())


def _allowed(allowance: Allowance) -> str:
    """Return what the quota leaves, in brackets, empty without a quota."""
    left = [
        f"{max(0, amount)} {unit}"
        for amount, unit in ((allowance.memory_mib, "MiB"), (allowance.core_percent, "% compute"))
        if amount is not None
    ]
    return f" ({' and '.join(left)} left)" if left else ""
