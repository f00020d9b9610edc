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

from hami_scheduler.decide.filter import FilterResult
from hami_scheduler.decide.prefilter import accepted_kinds, refused_uuids
from hami_scheduler.state.ledger import Ledger
from hami_scheduler.state.quota import UNLIMITED, Allowance
from hami_scheduler.values.fit import WHOLE_CORE_PERCENT
from hami_scheduler.values.grant import Grant
from hami_scheduler.values.reasons import Misfit, Reason
from hami_scheduler.values.request import PodRequest
from hami_scheduler.values.rules import Rules
from hami_scheduler.values.vendor import VendorFrame
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
    parts = [summary(request, misfits, Facts(request, ledger, allowances))]
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


def summary(request: PodRequest, misfits: Mapping[str, Misfit], facts: "Facts") -> str:
    """
    Return the causes, most common first, each Node counted once: `0 of 3 nodes: 2 have no free replica, 1 is cordoned`.

    A Node counts for the reason that comes closest to fitting.
    """
    nodes: defaultdict[Reason, list[str]] = defaultdict(list)
    for name, misfit in misfits.items():
        nodes[misfit.cause].append(name)
    ranked = sorted(nodes.items(), key=lambda item: (-len(item[1]), item[0]))
    parts = [
        of_nodes(cause, len(names), facts.about(cause, names, [misfits[name] for name in names]))
        for cause, names in ranked[:_CAUSES_NAMED]
    ]
    others = sum(len(names) for _, names in ranked[_CAUSES_NAMED:])
    if others:
        parts.append(f"{others} for other reasons")
    return f"0 of {len(misfits)} nodes: {', '.join(parts)}" if parts else "0 of 0 nodes: there is no node to try"


def node_sentence(name: str, misfit: Misfit, facts: "Facts") -> str:
    """Return why the Node *name* refuses: `2 of 4 NVIDIA devices lack 3000 MiB (best has 2048), 2 are cordoned`."""
    if not misfit.device_count:
        return of_node(misfit.cause, facts.about(misfit.cause, [name], [misfit]))
    parts: list[str] = []
    for reason, count in sorted(misfit.counts, key=lambda item: (-item[1], item[0])):
        values = facts.about(reason, [name], [misfit])
        plural = "s" if misfit.device_count > 1 else ""
        among = "" if parts else f" of {misfit.device_count} {values['vendor']} device{plural}"
        parts.append(of_devices(reason, count, values, among))
    return ", ".join(parts)


def describe(asked: Request, frame: VendorFrame) -> str:
    """Return *asked* in words: `2 NVIDIA devices with 3000 MiB and 25 % compute each`."""
    plural, each = ("s", " each") if asked.count > 1 else ("", "")
    share = share_words(asked, frame)
    return f"{asked.count} {asked.vendor} device{plural}" + (f" with {share}{each}" if share else "")


def short_by(grant: Grant, problems: Mapping[str, str]) -> str:
    """Return why *grant* can no longer be kept, from what `ledger.shortfall` found."""
    listed = ", ".join(f"device {uuid} {problem}" for uuid, problem in sorted(problems.items()))
    return f"node {grant.node} can no longer take {grant.namespace}/{grant.name}: {listed}"


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

    one: str
    """The verb of one Node or one device."""
    many: str
    node: str
    """What follows the verb of a Node."""
    device: str
    """What follows the verb of a device."""
    device_one: str = ""
    """The verb of one device, if it differs from a Node's."""
    device_many: str = ""


_PHRASES = {
    Reason.NODE_UNREGISTERED: _Phrase("offers", "offer", "no device", "nothing"),
    Reason.NODE_DEVICES: _Phrase("has", "have", "fewer {vendor} devices than the {count} asked", "nothing"),
    Reason.UNHEALTHY: _Phrase("has", "have", "no healthy {vendor} device", "failed"),
    Reason.SICK: _Phrase("has", "have", "no healthy {vendor} device", "failed"),
    Reason.CORDONED: _Phrase("is", "are", "cordoned", "cordoned"),
    Reason.TYPE: _Phrase(
        "has",
        "have",
        "no {vendor} device of a type the Pod accepts{types}",
        "not of a type the Pod accepts{types}",
        "is",
        "are",
    ),
    Reason.MODE: _Phrase("has", "have", "no {vendor} device that can be shared as the Pod asks", "another mode"),
    Reason.UUID: _Phrase("has", "have", "no device that the Pod's UUID lists allow", "a UUID the Pod does not accept"),
    Reason.OTHER_DEVICE: _Phrase(
        "has", "have", "no room on the device of the Pod's earlier container", "no earlier container of the Pod"
    ),
    Reason.APP_CLASS: _Phrase("has", "have", "no device free of Pods of another class", "Pods of another class"),
    Reason.QOS: _Phrase("has", "have", "no device of the Pod's QoS policy", "another QoS policy"),
    Reason.REPLICAS: _Phrase("has", "have", "no free replica", "no free replica"),
    Reason.EXCLUSIVE: _Phrase(
        "has", "have", "no {vendor} device without other users", "other users, and the Pod needs it alone"
    ),
    Reason.QUOTA: _Phrase(
        "would exceed", "would exceed", "the namespace's quota{allowed}", "the namespace's quota{allowed}"
    ),
    Reason.MEMORY: _Phrase("lacks", "lack", "{memory} on any {vendor} device{best}", "{memory}{best}"),
    Reason.CORE: _Phrase("lacks", "lack", "{compute} on any {vendor} device{best}", "{compute}{best}"),
    Reason.ZERO_CORE: _Phrase("has", "have", "no compute left on any {vendor} device", "no compute left"),
    Reason.MIG: _Phrase("has", "have", "no MIG profile and place left for {memory}", "no MIG place for {memory}"),
    Reason.COUNT: _Phrase(
        "has", "have", "fewer {vendor} devices with room than the {count} asked{best}", "room, but {count} are asked"
    ),
    Reason.NUMA: _Phrase(
        "has", "have", "no {count} {vendor} devices with room{together}", "apart from the others", "is", "are"
    ),
}


def of_nodes(reason: Reason, count: int, values: Mapping[str, str]) -> str:
    """
    Return what *count* Nodes have in common.

    >>> of_nodes(Reason.MEMORY, 7, {"vendor": "NVIDIA", "memory": "3000 MiB", "best": " (best has 2048)"})
    '7 lack 3000 MiB on any NVIDIA device (best has 2048)'
    """
    phrase = _PHRASES[reason]
    return f"{count} {phrase.one if count == 1 else phrase.many} {phrase.node.format_map(values)}"


def of_node(reason: Reason, values: Mapping[str, str]) -> str:
    """
    Return why one Node as a whole refuses.

    >>> of_node(Reason.NODE_UNREGISTERED, {})
    'offers no device'
    """
    phrase = _PHRASES[reason]
    return f"{phrase.one} {phrase.node.format_map(values)}"


def of_devices(reason: Reason, count: int, values: Mapping[str, str], among: str = "") -> str:
    """
    Return what *count* devices of one Node have in common; *among* says how many devices there are.

    >>> values = {"memory": "3000 MiB", "best": ""}
    >>> of_devices(Reason.CORDONED, 1, {}), of_devices(Reason.MEMORY, 2, values, " of 4 devices")
    ('1 is cordoned', '2 of 4 devices lack 3000 MiB')
    """
    phrase = _PHRASES[reason]
    verb = (phrase.device_one or phrase.one) if count == 1 else (phrase.device_many or phrase.many)
    return f"{count}{among} {verb} {phrase.device.format_map(values)}"


def share_words(asked: Request, frame: VendorFrame) -> str:
    """Return what *asked* wants of each device, empty if it only wants devices: `3000 MiB and 25 % compute`."""
    profile = f"{asked.profile_size} of its parts" if asked.profile_size else ""
    cores = _compute_words(asked, frame) if asked.core_percent else ""
    return " and ".join(part for part in (profile, _memory_words(asked, frame), cores) if part)


def _memory_words(asked: Request, frame: VendorFrame) -> str:
    """Return the memory of *asked*, empty if its vendor does not count memory."""
    if not frame.sharing.counts_memory:
        return ""
    if asked.memory_mib:
        return f"{frame.memory_in_mib(asked.memory_mib)} MiB"
    return "" if asked.memory_percent is None else f"{asked.memory_percent} % of the memory"


def _compute_words(asked: Request, frame: VendorFrame) -> str:
    """Return the compute of *asked*, in its vendor's unit."""
    return f"{asked.held_core_percent} {frame.core_unit}"


# The numbers


class Facts:
    """The numbers for one Pod, on one state of the cluster."""

    def __init__(self, request: PodRequest, ledger: Ledger, allowances: Mapping[str, Allowance]) -> None:
        """Read *ledger* when asked; it must not change meanwhile."""
        self._request = request
        self._ledger = ledger
        self._allowances = allowances
        self._left: NDArray[np.int64] = (ledger.capacity - ledger.promised)[: ledger.row_count].clip(0)
        """Per device row: replicas, MiB and percent that are not promised."""
        self._usable: dict[Request, NDArray[np.bool_]] = {}
        asked = {each: None for container in request.containers for each in container.requests}
        self._asked = sorted(asked, key=_size, reverse=True)

    def about(self, reason: Reason, nodes: Sequence[str], misfits: Sequence[Misfit] = ()) -> dict[str, str]:
        """Return what fills the phrase of *reason* for *nodes*, which refuse as *misfits* say."""
        if not self._asked:
            return dict.fromkeys(("vendor", "count", "memory", "compute", "types", "allowed", "best", "together"), "")
        asked, best = self._asked[0], ""
        if reason in {Reason.MEMORY, Reason.CORE}:
            asked, best = self._lacking(self._rows(nodes), _MEMORY if reason is Reason.MEMORY else _CORES)
        elif reason in {Reason.COUNT, Reason.NODE_DEVICES, Reason.NUMA}:
            asked = max(self._asked, key=lambda each: each.count)
        if reason is Reason.COUNT and misfits:
            best = f" (best has {max(dict(misfit.counts).get(reason, 0) for misfit in misfits)})"
        rules, frame = self._request.rules[asked.vendor], self._request.vendors[asked.vendor]
        return {
            "vendor": asked.vendor,
            "count": str(asked.count),
            "memory": _memory_words(asked, frame) or "memory",
            "compute": _compute_words(asked, frame),
            "types": _types(rules),
            "allowed": _allowed(self._allowances.get(asked.vendor, UNLIMITED)),
            "best": best,
            "together": " on one NUMA node" if rules.is_numa_bound else " that belong together",
        }

    def _rows(self, nodes: Sequence[str]) -> NDArray[np.int64]:
        """Return the device rows of *nodes*."""
        if len(nodes) > 1:
            return np.flatnonzero(
                np.isin(self._ledger.node_of_row[: self._ledger.row_count], self._ledger.indexes(nodes))
            )
        entries = [entry for entry in map(self._ledger.node, nodes) if entry is not None]
        return np.array([row for entry in entries for row in entry.rows.values()], np.int64)

    def _lacking(self, rows: NDArray[np.int64], column: int) -> tuple[Request, str]:
        """Return the first request for which even the best device has too little left, and what that device has."""
        for asked in self._asked:
            if not self._request.vendors[asked.vendor].sharing.is_plain:
                return asked, ""
            usable = rows[self._usable_for(asked)[rows]]
            if not usable.size:
                return asked, ""
            best = int(usable[self._left[usable, column].argmax()])
            shortage = self._shortage(asked, best, column)
            if shortage:
                return asked, f" (best has {shortage})"
        users = [container for container in self._request.containers if container.requests]
        return self._asked[0], " beside the Pod's other containers" if len(users) > 1 else ""

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
            ledger, rules = self._ledger, self._request.rules[asked.vendor]
            usable = ledger.is_open[: ledger.row_count] & accepted_kinds(ledger, asked.vendor, rules)
            usable &= self._left[:, 0] > 0
            if rules.use_uuids or rules.nouse_uuids:
                usable &= ~refused_uuids(ledger, rules)
            self._usable[asked] = usable
        return self._usable[asked]


def _size(asked: Request) -> tuple[int, int, int, int]:
    return asked.memory_mib, asked.memory_percent or 0, asked.count, asked.core_percent


def _types(rules: Rules) -> str:
    """Return the types and modes that the Pod names, in brackets, empty if it names none."""
    named = [
        _listed(rules.use_types),
        f"not {_listed(rules.nouse_types)}" if _listed(rules.nouse_types) else "",
        f"mode {rules.modes.strip()}" if rules.modes and rules.modes.strip() else "",
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
