"""
Every reason in words: of one Node or several, of one device or several, with what is asked and the best there is.

Owns the wording and the numbers in it. Must never reach `FailedNodes`: these texts change with every grant.
Neighbours: `reasons` owns the stable codes, `wording` and `report` put phrases together.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hami_scheduler.decide.prefilter import accepted_kinds, refused_uuids
from hami_scheduler.state.ledger import Ledger
from hami_scheduler.state.quota import UNLIMITED, Allowance
from hami_scheduler.values.fit import WHOLE_CORE_PERCENT
from hami_scheduler.values.reasons import Misfit, Reason
from hami_scheduler.values.request import PodRequest
from hami_scheduler.values.rules import Rules
from hami_scheduler.values.vendor import VendorFrame
from hamicommon.model import Request


@dataclass(frozen=True, slots=True)
class _Words:
    """How one reason is said; fields in braces are filled from `Details`."""

    one: str
    """The verb of one Node or one device."""
    many: str
    node: str
    """What follows the verb of a Node."""
    device: str
    """What follows the verb of a device."""
    device_one: str = ""
    """The verb of one device where it is another than a Node's."""
    device_many: str = ""


_WORDS = {
    Reason.NODE_UNREGISTERED: _Words("offers", "offer", "no device", "nothing"),
    Reason.NODE_DEVICES: _Words("has", "have", "fewer {vendor} devices than the {count} asked", "nothing"),
    Reason.UNHEALTHY: _Words("has", "have", "no healthy {vendor} device", "failed"),
    Reason.SICK: _Words("has", "have", "no healthy {vendor} device", "failed"),
    Reason.CORDONED: _Words("is", "are", "cordoned", "cordoned"),
    Reason.TYPE: _Words(
        "has",
        "have",
        "no {vendor} device of a type the Pod accepts{types}",
        "not of a type the Pod accepts{types}",
        "is",
        "are",
    ),
    Reason.MODE: _Words("has", "have", "no {vendor} device to be shared as the Pod asks", "another mode"),
    Reason.UUID: _Words("has", "have", "no device that the Pod's UUID lists allow", "a UUID the Pod does not accept"),
    Reason.OTHER_DEVICE: _Words(
        "has", "have", "no room on the device of the Pod's earlier container", "no earlier container of the Pod"
    ),
    Reason.APP_CLASS: _Words("has", "have", "no device free of Pods of another class", "Pods of another class"),
    Reason.QOS: _Words("has", "have", "no device of the Pod's QoS policy", "another QoS policy"),
    Reason.REPLICAS: _Words("has", "have", "no free replica", "no free replica"),
    Reason.EXCLUSIVE: _Words(
        "has", "have", "no {vendor} device to be had alone", "other users and cannot be had alone"
    ),
    Reason.QUOTA: _Words(
        "would exceed", "would exceed", "the namespace's quota{allowed}", "the namespace's quota{allowed}"
    ),
    Reason.MEMORY: _Words("lacks", "lack", "{memory} on any {vendor} device{best}", "{memory}{best}"),
    Reason.CORE: _Words("lacks", "lack", "{compute} on any {vendor} device{best}", "{compute}{best}"),
    Reason.ZERO_CORE: _Words("has", "have", "no compute left on any {vendor} device", "no compute left"),
    Reason.MIG: _Words("has", "have", "no MIG profile and place left for {memory}", "no MIG place for {memory}"),
    Reason.COUNT: _Words(
        "has", "have", "fewer {vendor} devices with room than the {count} asked{best}", "room, where {count} are asked"
    ),
    Reason.NUMA: _Words(
        "has", "have", "no {count} {vendor} devices with room{together}", "apart from the others", "is", "are"
    ),
}


@dataclass(frozen=True, slots=True)
class Details:
    """What fills the fields of the words."""

    vendor: str
    count: int
    memory: str
    compute: str
    types: str = ""
    allowed: str = ""
    best: str = ""
    together: str = ""


def of_nodes(reason: Reason, count: int, details: Details) -> str:
    """
    Return what *count* Nodes have in common.

    >>> of_nodes(Reason.MEMORY, 7, Details("NVIDIA", 1, "3000 MiB", "25 % compute", best=" (best has 2048)"))
    '7 lack 3000 MiB on any NVIDIA device (best has 2048)'
    """
    words = _WORDS[reason]
    return f"{count} {words.one if count == 1 else words.many} {_fill(words.node, details)}"


def of_node(reason: Reason, details: Details) -> str:
    """
    Return why one Node as a whole is refused.

    >>> of_node(Reason.NODE_UNREGISTERED, Details("", 0, "", ""))
    'offers no device'
    """
    words = _WORDS[reason]
    return f"{words.one} {_fill(words.node, details)}"


def of_devices(reason: Reason, count: int, details: Details, among: str = "") -> str:
    """
    Return what *count* devices of one Node have in common; *among* says of how many.

    >>> details = Details("NVIDIA", 1, "3000 MiB", "25 % compute")
    >>> of_devices(Reason.CORDONED, 1, details), of_devices(Reason.MEMORY, 2, details, " of 4 devices")
    ('1 is cordoned', '2 of 4 devices lack 3000 MiB')
    """
    words = _WORDS[reason]
    verb = (words.device_one or words.one) if count == 1 else (words.device_many or words.many)
    return f"{count}{among} {verb} {_fill(words.device, details)}"


def share_words(asked: Request, frame: VendorFrame) -> str:
    """Return what *asked* wants of each device, empty where it wants just devices: `3000 MiB and 25 % compute`."""
    profile = f"{asked.profile_size} of its parts" if asked.profile_size else ""
    cores = compute_words(asked, frame) if asked.core_percent else ""
    return " and ".join(part for part in (profile, memory_words(asked, frame), cores) if part)


def memory_words(asked: Request, frame: VendorFrame) -> str:
    """Return the memory of *asked* in words, empty where its vendor does not count memory."""
    if not frame.sharing.counts_memory:
        return ""
    if asked.memory_mib:
        return f"{frame.memory_in_mib(asked.memory_mib)} MiB"
    return "" if asked.memory_percent is None else f"{asked.memory_percent} % of the memory"


def compute_words(asked: Request, frame: VendorFrame) -> str:
    """Return the compute of *asked* in words, as its vendor counts it."""
    return f"{asked.held_core_percent} {frame.core_unit}"


class Lexicon:
    """The details of every reason for one Pod, on one state of the cluster."""

    def __init__(self, request: PodRequest, ledger: Ledger, allowances: Mapping[str, Allowance]) -> None:
        """Read *ledger* when asked; it must not change meanwhile."""
        self._request = request
        self._ledger = ledger
        self._allowances = allowances
        self._left: dict[Request, _Left] = {}
        asked = {each: None for container in request.containers for each in container.requests}
        self._asked = sorted(asked, key=_size, reverse=True)

    def details(self, reason: Reason, nodes: Sequence[str], misfits: Sequence[Misfit] = ()) -> Details:
        """Return what to say of *nodes*, which refuse the Pod for *reason* and perhaps others, as *misfits* say."""
        if not self._asked:
            return Details("", 0, "", "")
        asked, best = self._asked[0], ""
        if reason in {Reason.MEMORY, Reason.CORE}:
            asked, best = self._lacking(self._rows(nodes), is_memory=reason is Reason.MEMORY)
        elif reason in {Reason.COUNT, Reason.NODE_DEVICES, Reason.NUMA}:
            asked = max(self._asked, key=lambda each: each.count)
        if reason is Reason.COUNT and misfits:
            best = f" (best has {max(dict(misfit.counts).get(reason, 0) for misfit in misfits)})"
        rules, frame = self._request.rules[asked.vendor], self._request.vendors[asked.vendor]
        return Details(
            asked.vendor,
            asked.count,
            memory_words(asked, frame) or "memory",
            compute_words(asked, frame),
            _types(rules),
            _allowed(self._allowances.get(asked.vendor, UNLIMITED)),
            best,
            " on one NUMA node" if rules.is_numa_bound else " that belong together",
        )

    def _rows(self, nodes: Sequence[str]) -> NDArray[np.int64]:
        """Return the device rows of *nodes*."""
        if len(nodes) > 1:
            return np.flatnonzero(
                np.isin(self._ledger.node_of_row[: self._ledger.row_count], self._ledger.indexes(nodes))
            )
        entries = [entry for entry in map(self._ledger.node, nodes) if entry is not None]
        return np.array([row for entry in entries for row in entry.rows.values()], np.int64)

    def _lacking(self, rows: NDArray[np.int64], *, is_memory: bool) -> tuple[Request, str]:
        """Return the first request that even the best device has too little left for, and what that device has."""
        for asked in self._asked:
            frame = self._request.vendors[asked.vendor]
            if not frame.sharing.is_plain:
                return asked, ""
            left = self._left_for(asked)
            found = left.memory(rows, asked) if is_memory else left.compute(rows, asked, frame.core_unit)
            if found is None:
                return asked, ""
            if found.is_short:
                return asked, f" (best has {found.words})"
        users = [container for container in self._request.containers if container.requests]
        return self._asked[0], " beside the Pod's other containers" if len(users) > 1 else ""

    def _left_for(self, asked: Request) -> "_Left":
        if asked not in self._left:
            self._left[asked] = _Left(self._ledger, asked, self._request.rules[asked.vendor])
        return self._left[asked]


@dataclass(frozen=True, slots=True)
class _Best:
    is_short: bool
    words: str


class _Left:
    """What is left of the devices that one request may have, where a replica is left."""

    def __init__(self, ledger: Ledger, asked: Request, rules: Rules) -> None:
        rows = slice(0, ledger.row_count)
        self._capacity = ledger.capacity[rows]
        self._left = (self._capacity - ledger.promised[rows]).clip(0)
        self._is_possible = ledger.is_open[rows] & accepted_kinds(ledger, asked.vendor, rules) & (self._left[:, 0] > 0)
        if rules.use_uuids or rules.nouse_uuids:
            self._is_possible &= ~refused_uuids(ledger, rules)

    def memory(self, rows: NDArray[np.int64], asked: Request) -> _Best | None:
        """Return the device with the most memory left among *rows*, None where there is none."""
        row = self._best_row(rows, 1)
        if row is None:
            return None
        capacity, left = int(self._capacity[row, 1]), int(self._left[row, 1])
        if asked.memory_mib:
            return _Best(left < asked.memory_mib, str(left))
        percent = left * 100 // max(capacity, 1)
        return _Best(percent < (asked.memory_percent or 0), f"{percent} % of {capacity} MiB")

    def compute(self, rows: NDArray[np.int64], asked: Request, unit: str) -> _Best | None:
        """Return the device with the most compute left among *rows*, None where there is none."""
        row = self._best_row(rows, 2)
        if row is None:
            return None
        capacity, left = int(self._capacity[row, 2]), int(self._left[row, 2])
        words = f"{left} %" if capacity == WHOLE_CORE_PERCENT and unit.startswith("%") else f"{left} of {capacity}"
        return _Best(left < asked.held_core_percent, words)

    def _best_row(self, rows: NDArray[np.int64], column: int) -> int | None:
        rows = rows[self._is_possible[rows]]
        return int(rows[self._left[rows, column].argmax()]) if rows.size else None


def _fill(text: str, details: Details) -> str:
    return text.format_map({name: getattr(details, name) for name in Details.__slots__})


def _size(asked: Request) -> tuple[int, int, int, int]:
    return asked.memory_mib, asked.memory_percent or 0, asked.count, asked.core_percent


def _types(rules: Rules) -> str:
    """Return what the Pod says of types and modes, in brackets, empty where it says nothing."""
    said = [
        _listed(rules.use_types),
        f"not {_listed(rules.nouse_types)}" if _listed(rules.nouse_types) else "",
        f"mode {rules.modes.strip()}" if rules.modes and rules.modes.strip() else "",
    ]
    listed = ", ".join(part for part in said if part)
    return f" ({listed})" if listed else ""


def _listed(text: str | None) -> str:
    """Return the members of a comma list that say something."""
    return ", ".join(word.strip() for word in (text or "").split(",") if word.strip())


def _allowed(allowance: Allowance) -> str:
    """Return what the quota leaves, in brackets, empty where there is none."""
    said = [
        f"{max(0, amount)} {unit}"
        for amount, unit in ((allowance.memory_mib, "MiB"), (allowance.core_percent, "% compute"))
        if amount is not None
    ]
    return f" ({' and '.join(said)} left)" if said else ""
