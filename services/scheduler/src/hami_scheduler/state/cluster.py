"""
The cluster as decisions see it: Nodes, Pods and ResourceQuotas from the API server, and our reservations.

Every event is applied at once and idempotently, so that order and repetition do not matter. Time comes as an argument.
Must never count a Pod's allocation annotations before the Pod is bound. Neighbours: `cluster_feed` delivers events, the
verbs in `serve` decide on `view`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from hami_scheduler.state.health import plugin_is_alive
from hami_scheduler.state.ledger import Ledger
from hami_scheduler.state.quota import Quotas
from hami_scheduler.state.reservation import Reservation, Reservations, Stage
from hami_scheduler.state.view import ClusterView
from hami_scheduler.values.grant import Grant, keys_read, make_grant, places, read_grant
from hami_scheduler.values.inventory import NodeInventory, Problem, count_resource, read_inventory, what_is_read
from hami_scheduler.values.request import read_containers
from hami_scheduler.values.vendor import VendorFrame
from hamicommon.held import inits_are_done, is_over
from hamicommon.wire.errors import DecodeError

Report = Callable[[str, str, Problem], None]
"""Called with (kind, name, problem) for each part of an object that cannot be used."""

DELETED_PODS_REMEMBERED = 4096


@dataclass(slots=True)
class _NodeMemory:
    """What is remembered of a Node beyond what it offers now."""

    inventory: NodeInventory
    """The last inventory, also while the plugin is dead."""
    uid: str = ""
    read: tuple[Any, ...] = ()
    """The parts of the Node it was read from."""
    had_replicas: set[str] = field(default_factory=set)
    """Vendor keys whose kubelet resource has been above 0."""
    problems: tuple[Problem, ...] = ()


class Cluster:
    """Nodes, grants, reservations and quotas."""

    def __init__(self, vendors: tuple[VendorFrame, ...], report: Report) -> None:
        """Start empty; *report* is called for what cannot be used."""
        self.vendors = vendors
        self.ledger = Ledger()
        self.quotas = Quotas(vendors, lambda name, problem: report("ResourceQuota", name, problem))
        self.reservations = Reservations()
        self.drift = 0
        """Wrong numbers that recounts have found since the start."""
        self.edited_pods = 0
        """Bound Pods whose allocation annotation was changed after we had read it."""
        self._report = report
        self._nodes: dict[str, _NodeMemory] = {}
        self._edited: set[str] = set()
        self._keys_read = keys_read(vendors)
        self._read: dict[str, tuple[Any, ...]] = {}
        """
        Per UID of a Pod with a grant: the parts of the Pod that the grant was read from, or that its Binding writes.
        Most events of a bound Pod change none of them.
        """
        self._late: dict[str, set[str]] = {}
        """Per Pod UID: the keys of reservations for abandoned Bindings that may still arrive."""
        self._unreadable: dict[str, str] = {}
        self._unasked: set[str] = set()
        """UIDs of Pods that were reported for holding devices without asking."""
        self._deleted: dict[str, None] = {}
        """UIDs of the Pods deleted last, the latest at the end."""

    @property
    def node_count(self) -> int:
        """Number of Nodes, with devices or without."""
        return len(self._nodes)

    def knows(self, node: Mapping[str, Any]) -> bool:
        """Return whether *node*, a v1 Node, is one of these, and not another one of the same name."""
        metadata = node.get("metadata") or {}
        memory = self._nodes.get(metadata.get("name") or "")
        return memory is not None and bool(memory.uid) and memory.uid == metadata.get("uid")

    @property
    def view(self) -> ClusterView:
        """What a decision reads; valid until the next event."""
        return ClusterView(self.ledger, self.quotas)

    # Nodes

    def put_node(self, node: Mapping[str, Any]) -> None:
        """Take *node*, a v1 Node, as it is now."""
        name = node["metadata"]["name"]
        memory = self._nodes.setdefault(name, _NodeMemory(NodeInventory(name)))
        memory.uid = node["metadata"].get("uid") or ""
        read = what_is_read(node)
        if memory.read != read:
            inventory, problems = read_inventory(node, self.vendors, memory.inventory)
            for problem in problems:
                if problem not in memory.problems:
                    self._report("Node", name, problem)
            memory.inventory, memory.problems, memory.read = inventory, problems, read
        inventory = memory.inventory
        offering = {device.vendor for device in inventory.devices}
        alive = {frame.key for frame in self.vendors if frame.key in offering and self._is_alive(node, frame, memory)}
        devices = tuple(device for device in inventory.devices if device.vendor in alive)
        self.ledger.put_node(_with_devices(inventory, devices))

    def drop_node(self, node: Mapping[str, Any]) -> None:
        """Forget *node*."""
        name = node["metadata"]["name"]
        self._nodes.pop(name, None)
        self.ledger.drop_node(name)

    def replace_nodes(self, nodes: list[dict[str, Any]]) -> None:
        """Take *nodes* as all there are."""
        names = {node["metadata"]["name"] for node in nodes}
        for name in [name for name in self._nodes if name not in names]:
            self.drop_node({"metadata": {"name": name}})
        for node in nodes:
            self.put_node(node)

    @staticmethod
    def _is_alive(node: Mapping[str, Any], frame: VendorFrame, memory: _NodeMemory) -> bool:
        replica_count = count_resource(node, frame)
        annotations = (node.get("metadata") or {}).get("annotations") or {}
        alive = plugin_is_alive(
            annotations.get(frame.vendor.handshake_key),
            replica_count,
            had_replicas=frame.key in memory.had_replicas,
        )
        if replica_count:
            memory.had_replicas.add(frame.key)
        return alive

    # Pods

    def put_pod(self, pod: Mapping[str, Any]) -> None:
        """Take *pod*, a v1 Pod, as it is now."""
        uid = pod["metadata"].get("uid") or ""
        if is_over(pod):
            self._forget(uid)
        elif (pod.get("spec") or {}).get("nodeName"):
            self._put_bound(uid, pod)

    def drop_pod(self, pod: Mapping[str, Any]) -> None:
        """Forget *pod*: its object is gone."""
        uid = pod["metadata"].get("uid") or ""
        self._forget(uid)
        self._deleted[uid] = None
        while len(self._deleted) > DELETED_PODS_REMEMBERED:
            del self._deleted[next(iter(self._deleted))]

    def is_deleted(self, uid: str) -> bool:
        """Return whether the Pod *uid* was deleted lately. A choice for it would be held until it expires."""
        return uid in self._deleted

    def replace_pods(self, pods: list[dict[str, Any]], now: float) -> None:
        """Take *pods* as all there are; reservations stay, because a list may be older than a choice."""
        seen = {pod["metadata"].get("uid") or "" for pod in pods}
        gone = [grant.uid for grant in self.ledger.grants() if grant.uid not in seen]
        for uid in gone:
            if uid not in self.reservations:
                self._forget(uid)
        self.reservations.missed(seen, now)
        for pod in pods:
            self.put_pod(pod)

    def _put_bound(self, uid: str, pod: Mapping[str, Any]) -> None:
        read = self._what_is_read(pod)
        if self._read.get(uid) == read:
            self._settle(uid)
            return
        known = self.ledger.grant(uid)
        try:
            grant = read_grant(pod, self.vendors)
        except DecodeError as error:
            self._contain(uid, pod, error)
            self._settle(uid)
            if known is not None and known.node != pod["spec"]["nodeName"]:
                self._release(uid)
            return
        if known is not None and uid not in self.reservations and known.node == pod["spec"]["nodeName"]:
            grant = self._as_first_seen(known, grant, pod)
        self._settle(uid)
        if grant is None:
            self._release(uid)
        else:
            if grant.unasked and uid not in self._unasked:
                self._unasked.add(uid)
                self._tell_unasked(grant)
            self._hold(grant)
            self._read[uid] = read

    def _tell_unasked(self, grant: Grant) -> None:
        """Report what a Pod holds without asking: it was forged, or a resource was renamed."""
        for frame in self.vendors:
            if frame.key in grant.unasked:
                reason = (
                    f"names devices of {frame.key} on {grant.node}, and no container asks for any by a resource of the "
                    "device config; they count as taken until the Pod ends"
                )
                self._report("Pod", f"{grant.namespace}/{grant.name}", Problem(frame.vendor.allocated_key, reason))

    def _what_is_read(self, pod: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return the parts of a bound *pod* that its grant depends on and that can change."""
        spec = pod["spec"]
        said = self._said(pod["metadata"].get("annotations") or {})
        return spec["nodeName"], spec.get("priority") or 0, inits_are_done(pod), said

    def _said(self, annotations: Mapping[str, str]) -> dict[str, str]:
        return {key: text for key, text in annotations.items() if key in self._keys_read}

    def _as_first_seen(self, known: Grant, grant: Grant | None, pod: Mapping[str, Any]) -> Grant:
        """Return what *pod* holds by the shares it was bound with, even if its annotations were edited."""
        if grant is not None and grant.shares == known.shares and places(grant.mig) == places(known.mig):
            return replace(grant, notes=known.notes)
        if known.uid not in self._edited:
            self._edited.add(known.uid)
            self.edited_pods += 1
            problem = Problem("allocation", "changed after the Pod was bound; the first one counts")
            self._report("Pod", f"{known.namespace}/{known.name}", problem)
        kinds = tuple(container.kind for container in read_containers(pod, self.vendors))
        identity = (known.uid, known.namespace, known.name)
        return make_grant(
            identity,
            known.node,
            kinds,
            known.shares,
            mig=known.mig,
            inits_are_done=inits_are_done(pod),
            notes=known.notes,
            is_settled=grant is None or grant.is_settled,
            priority=known.priority,
        )

    def _contain(self, uid: str, pod: Mapping[str, Any], error: DecodeError) -> None:
        if self._unreadable.get(uid) != str(error):
            self._unreadable[uid] = str(error)
            metadata = pod["metadata"]
            key, _, place = error.place.partition(", ")
            name = f"{metadata.get('namespace')}/{metadata.get('name')}"
            self._report("Pod", name, Problem(key, f"{place}: {error.reason}"))

    def _settle(self, uid: str) -> None:
        """Free what is held for Bindings of the Pod *uid*: it is bound, or gone."""
        self.reservations.drop(uid)
        for late in self._late.pop(uid, ()):
            self.unreserve(late)

    # Promises

    def reserve(self, grant: Grant, now: float) -> None:
        """Hold *grant* for a Pod that is not bound yet, instead of what it held."""
        self.reservations.put(grant, now)
        self._hold(grant)

    def begin_bind(self, uid: str, annotations: Mapping[str, str]) -> None:
        """
        Keep the reservation of the Pod *uid* while a Binding with *annotations* is written.

        If the shares say everything, a Pod seen bound with exactly these annotations is not read again.
        """
        grant = self.reservations.begin_bind(uid).grant
        if not (grant.mig or grant.notes or grant.annotations):
            self._read[uid] = (grant.node, grant.priority, False, self._said(annotations))

    def take_over(self, other: "Cluster", now: float) -> None:
        """
        Hold what *other*, the same cluster under another config, holds for Pods not seen bound here; keep its counters.

        *other* may be ahead of our watch or behind it, so these reservations expire.
        """
        bound = (
            Reservation(grant, now + self.reservations.seconds, Stage.WRITTEN)
            for grant in other.ledger.grants()
            if grant.uid not in other.reservations
        )
        for held in (*other.reservations.all(), *bound):
            if self.ledger.grant(held.grant.uid) is None:
                self.reservations.take(held)
                self._hold(held.grant)
        self.drift, self.edited_pods = other.drift, other.edited_pods
        self._deleted = {**other._deleted, **self._deleted}

    def unreserve(self, uid: str) -> None:
        """Free the reservation of the Pod *uid*; what it holds as a bound Pod stays."""
        if self.reservations.drop(uid) is not None:
            self._release(uid)

    def give_up(self, uid: str, now: float) -> None:
        """
        Free the reservation of the Pod *uid*, unless a Binding of it may still arrive.

        What an unanswered Binding would take stays reserved as long as any reservation.
        """
        held = self.reservations.get(uid)
        self.unreserve(uid)
        if held is not None and not held.is_certain:
            late = replace(held.grant, uid=f"{uid} on {held.grant.node}")
            self._late.setdefault(uid, set()).add(late.uid)
            self.reserve(late, now)

    def is_bound(self, uid: str) -> bool:
        """Return whether the Pod *uid*, which holds something, is known to be bound, even if it was not seen bound."""
        held = self.reservations.get(uid)
        return held is None or (held.stage is Stage.WRITTEN and held.is_certain)

    def expire(self, now: float) -> list[str]:
        """Free expired reservations and return their Pods' UIDs."""
        gone = self.reservations.expired(now)
        for uid in gone:
            self.unreserve(uid)
        return gone

    def recount(self) -> int:
        """Check every sum against the grants, repair it, and return how many numbers were wrong."""
        drift = self.ledger.recount() + self.quotas.recount(self.ledger.grants())
        self.drift += drift
        return drift

    def _hold(self, grant: Grant) -> None:
        if self.ledger.grant(grant.uid) == grant:
            return
        self._release(grant.uid)
        self.ledger.put(grant)
        self.quotas.hold(grant, 1)

    def _release(self, uid: str) -> None:
        self._read.pop(uid, None)
        grant = self.ledger.drop(uid)
        if grant is not None:
            self.quotas.hold(grant, -1)

    def _forget(self, uid: str) -> None:
        self._settle(uid)
        self._release(uid)
        self._edited.discard(uid)
        self._unreadable.pop(uid, None)
        self._unasked.discard(uid)


def _with_devices(inventory: NodeInventory, devices: tuple[Any, ...]) -> NodeInventory:
    return replace(inventory, devices=devices)
