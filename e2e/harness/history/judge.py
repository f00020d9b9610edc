"""
The judge: replays a history event by event, and says which rules were broken at which version.

Owns the state of the replay. Neighbours: `reading` reads objects, `devices`, `grants`, `containers` and `waiting` have
one rule or several each, `findings` lists all rules.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from hamicommon.config.device_config import ConfigError, load_device_config
from hamicommon.model import Device
from hamicommon.pod.amounts import NOTHING, Amounts
from hamicommon.vendors.description import Vendor
from hamicommon.wire import keys
from harness.history import containers, grants
from harness.history.claims import Claim, Slices
from harness.history.devices import Devices, Quotas, sum_of
from harness.history.events import CLAIM, CONTAINER, NODE, POD, QUOTA, SLICE, Change, Event
from harness.history.findings import Finding, Rule
from harness.history.grants import Fault
from harness.history.reading import Node, Pod, read_node, read_pod
from harness.history.waiting import fits, form_of, is_plain
from harness.history.window import Window

LOCK_SECONDS = 30.0
"""How long a lock may stay without a purpose: its owner may have to start again first."""
LOCK_AGE_SECONDS = 300.0
"""The greatest age of a lock that names no owner. Source: HAMi v2.10.0, pkg/util/nodelock/nodelock.go"""
LOST_SECONDS = 90.0
"""How long a Pod may wait that fits. A dead leader is replaced after 15 s, and kube-scheduler backs off."""
TICK_SECONDS = 2.0
"""How often what passes with time is judged."""
ALLOCATED = frozenset({keys.BIND_PHASE_SUCCESS, keys.BIND_PHASE_FAILED})


@dataclass(slots=True)
class Debt:
    """Something that has to happen soon."""

    rule: Rule
    subject: str
    text: str
    since: float
    version: int
    limit_seconds: float
    is_reported: bool = False


class Judge:
    """
    The state of a cluster at one version, and what was found up to it.

    Give it the events in order with `take`. At rest, `debts` says what should have happened and has not yet.
    """

    def __init__(self) -> None:
        self.line = 0
        """The number of events so far."""
        self.gaps = 0
        """How many of them say that versions are missing."""
        self.pods: dict[str, Pod] = {}
        """By UID."""
        self._vendors: tuple[Vendor, ...] = ()
        self._nodes: dict[str, Window[Node]] = {}
        self._names: dict[str, str] = {}
        """The UID of each Pod, by `default/p`."""
        self._claims: dict[str, Claim] = {}
        """By UID."""
        self._slices = Slices()
        self._devices = Devices()
        self._quotas = Quotas()
        self._waiting: set[str] = set()
        """UIDs of the Pods that wait for our scheduler."""
        self._granted: dict[str, Mapping[str, str]] = {}
        """The grant with which each Pod was bound, by UID."""
        self._locked: set[str] = set()
        """The Nodes with a lock."""
        self._debts: dict[tuple[Rule, str], Debt] = {}
        self._version = 0
        self._at = 0.0
        self._ticked = 0.0

    def take(self, event: Event) -> list[Finding]:
        """Replay one event, and return what it breaks."""
        self.line += 1
        held_since, self._at = self._at, max(self._at, event.at)
        overdue = list(self._overdue(held_since, event.version))
        self._version = max(self._version, event.version)
        return [*overdue, *self._taken(event)]

    def held(self) -> dict[tuple[str, str], Amounts]:
        """Return what is held of each device at present, by Node and UUID."""
        return {
            place: sum_of(each.amount for each in holders.values())
            for place, holders in self._devices.holders.items()
            if holders
        }

    def nodes(self) -> dict[str, Node]:
        """Return the Nodes at present, by name."""
        return {name: window.present for name, window in self._nodes.items()}

    def debts(self, since: float = math.inf) -> list[str]:
        """
        Return one sentence for each lock that has lost its purpose and for each Pod that waits although it fits.

        Those that have been so only after *since*, Unix seconds, are left out.
        """
        self._look_for_debts(self._at)
        return [f"{debt.rule}: {debt.subject}: {debt.text}" for debt in self._debts.values() if debt.since <= since]

    # --- one event -------------------------------------------------------------------------------------------------

    def _taken(self, event: Event) -> Iterator[Finding]:
        is_gone = event.change is Change.DELETED
        if event.change is Change.CONFIG:
            self._configure(event.object["text"])
        elif event.change is Change.GAP:
            self.gaps += 1
        elif event.kind == NODE:
            yield from self._take_node(event.object, is_gone=is_gone)
        elif event.kind == QUOTA:
            self._quotas.put_quota(event.object, self._vendors, self._at, is_gone=is_gone)
        elif event.kind == SLICE:
            for problem in self._slices.put(event.object, is_gone=is_gone):
                yield self._finding(f"ResourceSlice {event.object['metadata']['name']}", (Rule.READABLE, problem))
        elif event.kind == CLAIM:
            yield from self._take_claim(event.object, is_gone=is_gone)
        elif event.kind == POD:
            yield from self._take_pod(event.object, is_gone=is_gone)
        elif event.kind == CONTAINER:
            yield from self._take_container(event.object)

    def _configure(self, text: str) -> None:
        try:
            self._vendors = load_device_config(text).vendors()
        except ConfigError:
            return  # The services keep the config before it, too.

    def _take_node(self, item: Mapping[str, Any], *, is_gone: bool) -> Iterator[Finding]:
        name = item["metadata"]["name"]
        if is_gone:
            self._nodes.pop(name, None)
            self._locked.discard(name)
            return
        node = read_node(item, self._vendors)
        if name in self._nodes:
            before = self._nodes[name].present.problems
            self._nodes[name].put(node, self._at)
        else:
            before = ()
            self._nodes[name] = Window(node, self._at)
        (self._locked.add if node.locks else self._locked.discard)(name)
        for problem in node.problems:
            if problem not in before:
                yield self._finding(f"Node {name}", (Rule.READABLE, problem))

    def _take_pod(self, item: Mapping[str, Any], *, is_gone: bool) -> Iterator[Finding]:
        meta = item["metadata"]
        uid, name = meta.get("uid", ""), f"{meta.get('namespace', '')}/{meta['name']}"
        before = self.pods.pop(uid, None)
        after = None if is_gone else read_pod(item, self._vendors)
        self._waiting.discard(uid)
        if after is None:
            if self._names.get(name) == uid:
                del self._names[name]
            self._granted.pop(uid, None)
        else:
            self.pods[uid] = after
            self._names[name] = uid
            if after.waits_for_us:
                self._waiting.add(uid)
        risen = self._devices.put(name, before.places if before else {}, after.places if after else {})
        is_more = self._quotas.put(name, before, after)
        if after is None:
            return
        for fault in self._faults_of_pod(before, after, risen, is_more):
            yield self._finding(str(after), fault)

    def _faults_of_pod(
        self, before: Pod | None, after: Pod, risen: list[tuple[str, str]], is_more: bool
    ) -> Iterator[Fault]:
        for problem in after.problems:
            if after.node and (before is None or problem not in before.problems or not before.node):
                yield Rule.READABLE, problem
        yield from self._faults_of_grant(before, after)
        for node, uuid in risen:
            offers = self._offers(node, uuid)
            if offers:
                yield from self._devices.faults(node, uuid, offers)
        if is_more:
            yield from self._quotas.faults(after, self._vendors, self._at)

    def _faults_of_grant(self, before: Pod | None, after: Pod) -> Iterator[Fault]:
        """Judge a grant once, and each later difference from it."""
        if not after.node:
            return
        if after.uid not in self._granted:
            self._granted[after.uid] = after.texts
            was_scheduled = before is not None and before.waits_for_us
            if after.texts or was_scheduled:
                yield from grants.faults(after, self._vendors, self._versions(after.node))
            return
        granted = self._granted[after.uid]
        if after.texts != granted:
            self._granted[after.uid] = after.texts
            for vendor in sorted(granted.keys() | after.texts.keys()):
                was, now = granted.get(vendor), after.texts.get(vendor)
                if was != now:
                    yield Rule.CHANGED, f"its grant of {vendor} was {was!r} when it was bound, and is {now!r}"

    def _take_claim(self, item: Mapping[str, Any], *, is_gone: bool) -> Iterator[Finding]:
        uid = item["metadata"]["uid"]
        before, after = self._claims.pop(uid, None), self._slices.read_claim(item)
        holds = {} if is_gone else after.holdings
        risen = self._devices.put(after.name, before.holdings if before else {}, holds)
        if is_gone:
            return
        self._claims[uid] = after
        for problem in after.problems:
            if before is None or problem not in before.problems:
                yield self._finding(after.name, (Rule.READABLE, problem))
        for node, uuid in risen:
            offers = self._offers(node, uuid)
            if offers and all(device.healthy for device in offers):
                text = f"holds {uuid} of Node {node}, which Pods can get by resources"
                yield self._finding(after.name, (Rule.SIDES, text))
            for fault in self._devices.faults(node, uuid, offers or self._slices.offers(node, uuid)):
                yield self._finding(after.name, fault)

    def _take_container(self, seen: Mapping[str, Any]) -> Iterator[Finding]:
        pod = self.pods.get(seen["uid"])
        if pod is None:
            return
        devices = {device.id: device for node in self._versions(pod.node) for device in node.devices.values()}
        for fault in containers.faults(pod, seen, devices):
            yield self._finding(str(pod), fault)

    def _versions(self, node: str) -> list[Node]:
        return self._nodes[node].at(self._at) if node in self._nodes else []

    def _offers(self, node: str, uuid: str) -> list[Device]:
        return [each.devices[uuid] for each in self._versions(node) if uuid in each.devices]

    def _finding(self, subject: str, fault: Fault) -> Finding:
        rule, text = fault
        return Finding(rule, subject, text, self._version, self.line)

    # --- what passes with time -------------------------------------------------------------------------------------

    def _overdue(self, held_since: float, version: int) -> Iterator[Finding]:
        """Judge what should have happened before *version*; the state before it has held since *held_since*."""
        if self._at - self._ticked < TICK_SECONDS:
            return
        self._ticked = self._at
        self._look_for_debts(held_since)
        for debt in self._debts.values():
            waited = self._at - debt.since
            if waited > debt.limit_seconds and not debt.is_reported:
                debt.is_reported = True
                text = f"{debt.text}, since version {debt.version}, {waited:.0f} s before"
                yield Finding(debt.rule, debt.subject, text, version, self.line)

    def _look_for_debts(self, held_since: float) -> None:
        """Keep a debt as long as it lasts; a new one counts from *held_since*."""
        before, self._debts = self._debts, {}
        for debt in (*self._useless_locks(held_since), *self._fitting_pods(held_since)):
            key = debt.rule, f"{debt.subject} {debt.text}"
            self._debts[key] = before.get(key, debt)

    def _useless_locks(self, since: float) -> Iterator[Debt]:
        for name in sorted(self._locked):
            for text, lock in self._nodes[name].present.locks.values():
                why = self._why_useless(name, f"{lock.namespace}/{lock.pod}") if lock.pod else None
                limit_seconds = LOCK_SECONDS if lock.pod else LOCK_AGE_SECONDS
                if why or not lock.pod:
                    said = f"its lock {text} stays, {why}" if why else f"its lock {text}, without owner, stays"
                    yield Debt(Rule.LOCK, f"Node {name}", said, since, self._version, limit_seconds)

    def _why_useless(self, node: str, holder: str) -> str | None:
        pod = self.pods.get(self._names.get(holder, ""))
        if pod is None:
            return f"but Pod {holder} is gone"
        if pod.has_ended:
            return f"but {pod} has ended"
        if pod.node and pod.node != node:
            return f"but {pod} is on Node {pod.node}"
        phase = pod.annotations.get(keys.BIND_PHASE)
        return f"but {pod} is allocated ({phase})" if pod.node and phase in ALLOCATED else None

    def _fitting_pods(self, since: float) -> Iterator[Debt]:
        if not self._waiting:
            return
        by_node: dict[str, list[Pod]] = {name: [] for name in self._nodes}
        for pod in self.pods.values():
            if pod.node in by_node and not pod.has_ended:
                by_node[pod.node].append(pod)
        known: dict[str, bool] = {}
        """Whether Pods of a form fit: a crowd has many Pods, and few forms."""
        for uid in sorted(self._waiting):
            pod = self.pods[uid]
            if not is_plain(pod, self._vendors) or self._quotas.limits(pod.namespace):
                continue
            form = form_of(pod, self._vendors)
            if form not in known:
                known[form] = any(
                    fits(pod, window.present, self._vendors, self._amount, by_node[name])
                    for name, window in self._nodes.items()
                )
            if known[form]:
                yield Debt(Rule.LOST, str(pod), "it waits although it fits", since, self._version, LOST_SECONDS)

    def _amount(self, node: str, uuid: str) -> Amounts:
        holders = self._devices.holders.get((node, uuid), {})
        return sum_of(each.amount for each in holders.values()) if holders else NOTHING
