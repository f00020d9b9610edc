"""
The cluster as decisions see it: Nodes, Pods and ResourceQuotas from the API server, and our reservations.

Every event is applied at once and idempotently, so that order and repetition do not matter. Time comes as an argument.
Must never count a Pod's allocation annotations before the Pod is bound. Neighbours: `cluster_feed` delivers events, the
verbs in `serve` decide on `view`.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from hami_scheduler.state.claims import Claims
from hami_scheduler.state.ledger import Ledger
from hami_scheduler.state.quota import Quotas
from hami_scheduler.state.reservation import Basis, Reservation, Reservations, Stage
from hami_scheduler.state.view import ClusterView
from hami_scheduler.values.grant import Grant, keys_read, places, read_grant, read_replicas_alone
from hami_scheduler.values.inventory import (
    NodeInventory,
    Problem,
    offered,
    read_inventory,
    what_is_read,
    with_claimable,
    with_tokens,
)
from hami_scheduler.values.rejection import REJECTION_LIMIT_SECONDS, REJECTION_SECONDS, Rejection, rejected_resources
from hami_scheduler.values.request import read_replicas
from hami_scheduler.values.vendor import VendorRules, resources_counted
from hamicommon.dra.names import TOKEN_CLASS
from hamicommon.pod.containers import containers_of, has_ended, inits_are_done
from hamicommon.wire.errors import DecodeError

Report = Callable[[str, str, Problem], None]
"""Called with (kind, name, problem) for each part of an object that cannot be used."""

DELETED_PODS_REMEMBERED = 4096
_DEFAULT_GRACE_SECONDS = 30
"""The grace period of a Pod that names none."""
_LONGEST_GRACE_SECONDS = 300
"""A Pod deleted by force is counted no longer than this; if its kubelet counts it longer, it rejects a Pod."""
_END_SECONDS = 2.0
"""What a kubelet needs to end a Pod beyond its grace period."""
_ENDING = " ends"
"""Behind the UID of a Pod that was deleted by force, for what its kubelet still counts."""


@dataclass(slots=True)
class _NodeMemory:
    """What is remembered of a Node beyond what it offers now."""

    inventory: NodeInventory
    """What it lists, also while the plugin is dead."""
    uid: str = ""
    read: tuple[Any, ...] = ()
    """The parts of the Node it was read from."""
    problems: tuple[Problem, ...] = ()


class Cluster:
    """Nodes, grants, reservations and quotas."""

    def __init__(self, vendors: tuple[VendorRules, ...], report: Report) -> None:
        """Start empty; *report* is called for what cannot be used."""
        self.vendors = vendors
        self.ledger = Ledger()
        self.quotas = Quotas(vendors, lambda name, problem: report("ResourceQuota", name, problem))
        self.reservations = Reservations()
        self.claims = Claims(self.ledger, self._offer_again, report)
        self.drift = 0
        """Wrong numbers that recounts have found since the start."""
        self.edited_pods = 0
        """Bound Pods whose allocation annotation was changed after we had read it."""
        self.kubelet_rejections = 0
        """Pods that kubelets rejected although they had enough left by our count."""
        self._report = report
        self._rejections: dict[str, dict[str, Rejection]] = {}
        """Per Node and resource."""
        self._nodes: dict[str, _NodeMemory] = {}
        self._mapping_class = ""
        """The DeviceClass that maps the count of NVIDIA devices; empty if there is none."""
        self._edited: set[str] = set()
        self._keys_read = keys_read(vendors)
        self._read: dict[str, tuple[Any, ...]] = {}
        """
        Per UID of a Pod with a grant: the parts of the Pod that the grant was read from, or that its Binding writes.
        Most events of a bound Pod change none of them.
        """
        self._unreadable: dict[str, str] = {}
        self._reported_unrequested: set[str] = set()
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
        uid = node["metadata"].get("uid") or ""
        if uid != memory.uid:
            self._forget_ending(name)
        memory.uid = uid
        read = what_is_read(node)
        if memory.read != read:
            inventory, problems = read_inventory(node, self.vendors, memory.inventory)
            for problem in problems:
                if problem not in memory.problems:
                    self._report("Node", name, problem)
            memory.inventory, memory.problems, memory.read = inventory, problems, read
            self._offer(memory)

    def _offer(self, memory: _NodeMemory) -> None:
        """Let a Node offer what it lists, apart from what its kubelet rejects for now."""
        inventory, rejections = self._by_kind(memory.inventory), self._rejections.get(memory.inventory.name)
        if rejections:
            replicas = inventory.replicas or {}
            same = {name: found for name, found in rejections.items() if replicas.get(name) == found.offered}
            self._rejections[inventory.name] = same
            rejecting = frozenset(name for name, found in same.items() if math.isfinite(found.until))
            inventory = replace(inventory, rejecting=rejecting)
        self.ledger.put_node(inventory)

    def _by_kind(self, listed: NodeInventory) -> NodeInventory:
        """Return what a Node that lists *listed* offers, by how devices reach its kubelet."""
        listed = replace(listed, is_mapped=bool(self._mapping_class))
        if not listed.gives_claims:
            return offered(listed, self.vendors)
        tokens = self.claims.tokens(listed.name) if self._mapping_class == TOKEN_CLASS else 0
        if tokens:
            listed = with_tokens(listed, tokens, self.vendors)
        return with_claimable(offered(listed, self.vendors), self.claims.pool(listed.name), listed.devices)

    def map_count(self, device_class: str) -> None:
        """
        Take which DeviceClass maps the count of NVIDIA devices, empty without one.

        kube-scheduler gives tokens only by ours.
        """
        if device_class != self._mapping_class:
            self._mapping_class = device_class
            for memory in self._nodes.values():
                self._offer(memory)

    def _offer_again(self, name: str) -> None:
        """Let the Node *name* offer what its ResourceSlices list now, if it gives devices by ResourceClaims."""
        memory = self._nodes.get(name)
        if memory is not None and memory.inventory.gives_claims:
            self._offer(memory)

    def drop_node(self, node: Mapping[str, Any]) -> None:
        """Forget *node*."""
        name = node["metadata"]["name"]
        self._forget_ending(name)
        self._rejections.pop(name, None)
        self._nodes.pop(name, None)
        self.ledger.drop_node(name)

    def _forget_ending(self, name: str) -> None:
        """Forget what the kubelet of Node *name* was still ending: it is gone, or has begun anew."""
        for grant in self.ledger.grants_on(name):
            if grant.uid.endswith(_ENDING):
                self._forget(grant.uid)

    def replace_nodes(self, nodes: list[dict[str, Any]]) -> None:
        """Take *nodes* as all there are."""
        names = {node["metadata"]["name"] for node in nodes}
        for name in [name for name in self._nodes if name not in names]:
            self.drop_node({"metadata": {"name": name}})
        for node in nodes:
            self.put_node(node)

    # Pods

    def put_pod(self, pod: Mapping[str, Any], now: float | None = None) -> None:
        """Take *pod*, a v1 Pod, as it is now. At the time *now* its kubelet may just have rejected it."""
        uid = pod["metadata"].get("uid") or ""
        if has_ended(pod):
            if now is not None and self.ledger.grant(uid) is not None:
                self._learn(pod, now)
            self._forget(uid)
        elif (pod.get("spec") or {}).get("nodeName"):
            self._put_bound(uid, pod)

    def put_read(self, pod: Mapping[str, Any]) -> None:
        """
        Take *pod*, a v1 Pod that was read beside the watch.

        If it is bound it counts until the watch reports it, even if a list that was begun earlier lacks it.
        """
        uid = pod["metadata"].get("uid") or ""
        if self.is_deleted(uid):
            return
        is_known = self.ledger.grant(uid) is not None and uid not in self.reservations
        self.put_pod(pod)
        grant = self.ledger.grant(uid)
        if grant is not None and not is_known and uid not in self.reservations:
            self.reservations.take(Reservation(grant, None, Stage.WRITTEN))

    def _learn(self, pod: Mapping[str, Any], now: float) -> None:
        """
        Leave the Node of *pod*, which counted until now, alone if its kubelet rejected the Pod although it had enough.

        The status of a Node lags behind, and a kubelet may not have counted back yet what an ended Pod held. A Pod that
        did not fit by our count teaches nothing: anyone who sent it there could close a Node otherwise. Nor does one
        that was sent before the Node was left alone: a kubelet that has just booted rejects all its Pods at once.
        """
        replicas = read_replicas(pod, resources_counted(self.vendors))
        name = (pod.get("spec") or {}).get("nodeName") or ""
        entry, memory = self.ledger.node(name), self._nodes.get(name)
        if entry is None or memory is None:
            return
        for resource in rejected_resources(pod, replicas):
            before = self._rejections.setdefault(name, {}).get(resource)
            is_alone = before is not None and math.isfinite(before.until)
            if is_alone or self.ledger.replicas_left(entry, resource) < 0:
                continue
            seconds = min(2 * before.seconds, REJECTION_LIMIT_SECONDS) if before else REJECTION_SECONDS
            count = (entry.inventory.replicas or {}).get(resource, 0)
            self._rejections[name][resource] = Rejection(count, now + seconds, seconds)
            self.kubelet_rejections += 1
            metadata = pod["metadata"]
            reason = (
                f"its kubelet rejected Pod {metadata.get('namespace')}/{metadata.get('name')}, for which it had enough "
                f"by the Node's status; no Pod that asks for it goes there for {seconds:.0f} s, or until that changes"
            )
            self._report("Node", name, Problem(resource, reason))
        self._offer(memory)

    def drop_pod(self, pod: Mapping[str, Any], now: float | None = None) -> None:
        """
        Forget *pod*: its object is gone.

        A Pod that goes at the time *now* without having ended was deleted by force. Its kubelet still ends it, and
        counts its replicas until then.
        """
        uid = pod["metadata"].get("uid") or ""
        known = self.ledger.grant(uid)
        is_forced = uid not in self.reservations and not has_ended(pod)
        if known is not None and known.replicas and known.node in self._nodes and now is not None and is_forced:
            grace = (pod.get("spec") or {}).get("terminationGracePeriodSeconds", _DEFAULT_GRACE_SECONDS)
            still = Grant(uid + _ENDING, known.namespace, known.name, known.node, (), {}, replicas=known.replicas)
            until = now + min(grace, _LONGEST_GRACE_SECONDS) + _END_SECONDS
            self.reservations.take(Reservation(still, until))
            self._count(still.uid, still)
        self._forget(uid)
        self._deleted[uid] = None
        while len(self._deleted) > DELETED_PODS_REMEMBERED:
            del self._deleted[next(iter(self._deleted))]

    def is_deleted(self, uid: str) -> bool:
        """Return whether the Pod *uid* was deleted lately. A choice for it would stay reserved until it expires."""
        return uid in self._deleted

    def replace_pods(self, pods: list[dict[str, Any]], now: float) -> None:
        """Take *pods* as all there are; reservations stay, because a list may be older than a choice."""
        seen = {pod["metadata"].get("uid") or "" for pod in pods}
        gone = [grant.uid for grant in self.ledger.grants() if grant.uid not in seen and not grant.is_claim]
        for uid in gone:
            if uid not in self.reservations:
                self._forget(uid)
        self.reservations.missed(seen, now)
        for pod in pods:
            self.put_pod(pod)  # A Pod that was rejected before says nothing about now.

    def _put_bound(self, uid: str, pod: Mapping[str, Any]) -> None:
        was_reserved = self.reservations.drop(uid) is not None
        read = self._what_is_read(pod)
        if self._read.get(uid) == read:
            return
        known = self.ledger.grant(uid)
        has_moved = known is None or known.node != pod["spec"]["nodeName"]
        try:
            grant = read_grant(pod, self.vendors)
        except DecodeError as error:
            self._contain(uid, pod, error)
            if has_moved:
                self._count(uid, read_replicas_alone(pod, self.vendors))
            return
        if known is not None and known.shares and not was_reserved and not has_moved:
            grant = self._without_later_edits(known, grant, pod)
        self._count(uid, grant)
        if grant is not None:
            if grant.granted_unrequested and uid not in self._reported_unrequested:
                self._reported_unrequested.add(uid)
                self._report_unrequested(grant)
            self._read[uid] = read

    def _report_unrequested(self, grant: Grant) -> None:
        """Report what a Pod holds without asking: it was forged, or a resource was renamed."""
        for rules in self.vendors:
            if rules.key in grant.granted_unrequested:
                reason = (
                    f"names devices of {rules.key} on {grant.node}, and no container asks for any by a resource of the "
                    "device config; they count as taken until the Pod ends"
                )
                self._report("Pod", f"{grant.namespace}/{grant.name}", Problem(rules.vendor.allocated_key, reason))

    def _what_is_read(self, pod: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return the parts of a bound *pod* that its grant depends on and that can change."""
        spec = pod["spec"]
        said = self._said(pod["metadata"].get("annotations") or {})
        return spec["nodeName"], spec.get("priority") or 0, inits_are_done(pod), said

    def _said(self, annotations: Mapping[str, str]) -> dict[str, str]:
        return {key: text for key, text in annotations.items() if key in self._keys_read}

    def _without_later_edits(self, known: Grant, grant: Grant | None, pod: Mapping[str, Any]) -> Grant:
        """Return what *pod* holds by the shares it was bound with, even if its annotations were edited."""
        if grant is not None and grant.shares == known.shares and places(grant.mig) == places(known.mig):
            return replace(grant, vendor_annotations=known.vendor_annotations)
        if known.uid not in self._edited:
            self._edited.add(known.uid)
            self.edited_pods += 1
            problem = Problem("allocation", "changed after the Pod was bound; the first one counts")
            self._report("Pod", f"{known.namespace}/{known.name}", problem)
        return replace(
            known,
            kinds=tuple(kind for _, kind in containers_of(pod)),
            inits_are_done=inits_are_done(pod),
            is_set_up=grant is None or grant.is_set_up,
        )

    def _contain(self, uid: str, pod: Mapping[str, Any], error: DecodeError) -> None:
        if self._unreadable.get(uid) != str(error):
            self._unreadable[uid] = str(error)
            metadata = pod["metadata"]
            key, _, place = error.place.partition(", ")
            name = f"{metadata.get('namespace')}/{metadata.get('name')}"
            self._report("Pod", name, Problem(key, f"{place}: {error.reason}"))

    # Promises

    def reserve(self, grant: Grant, now: float, basis: Basis | None = None) -> None:
        """Reserve *grant*, chosen for the unbound Pod of *basis*, instead of what it held."""
        self.reservations.put(grant, now, basis)
        self._count(grant.uid, grant)

    def begin_bind(self, uid: str, annotations: Mapping[str, str]) -> None:
        """
        Keep the reservation of the Pod *uid* while a Binding with *annotations* is written.

        If the shares say everything, a Pod seen bound with exactly these annotations is not read again.
        """
        grant = self.reservations.begin_bind(uid).grant
        if not (grant.mig or grant.vendor_annotations or grant.annotations):
            self._read[uid] = (grant.node, grant.priority, False, self._said(annotations))

    def take_over(self, other: "Cluster", now: float) -> None:
        """
        Reserve what *other* counts for Pods not seen bound here, and keep its counters.

        *other* is the same cluster under another config. It may be ahead of our watch or behind it, so these
        reservations expire. What ResourceClaims hold has been listed here, and is not taken over.
        """
        bound = (
            Reservation(grant, now + self.reservations.seconds, Stage.WRITTEN)
            for grant in other.ledger.grants()
            if grant.uid not in other.reservations and not grant.is_claim
        )
        for reserved in (*other.reservations.all(), *bound):
            if self.ledger.grant(reserved.grant.uid) is None:
                self.reservations.take(reserved)
                self._count(reserved.grant.uid, reserved.grant)
        self.drift, self.edited_pods = other.drift, other.edited_pods
        self.kubelet_rejections = other.kubelet_rejections
        self._rejections = {name: found for name, found in other._rejections.items() if name in self._nodes}
        for name in self._rejections:
            self._offer(self._nodes[name])
        self._deleted = {**other._deleted, **self._deleted}

    def unreserve(self, uid: str) -> None:
        """Free the reservation of the Pod *uid*; what it holds as a bound Pod stays."""
        if self.reservations.drop(uid) is not None:
            self._count(uid, None)

    def unreserve_chosen(self, uid: str) -> None:
        """Free the reservation of the Pod *uid*, unless its Binding was sent since."""
        reserved = self.reservations.get(uid)
        if reserved is not None and reserved.stage is Stage.CHOSEN:
            self.unreserve(uid)

    def give_up(self, uid: str) -> None:
        """Free the reservation of the Pod *uid*, unless a Binding of it may still arrive."""
        reserved = self.reservations.get(uid)
        if reserved is not None and reserved.is_certain:
            self.unreserve(uid)
        else:
            self.reservations.written(uid, is_certain=False)

    def fenced(self, uid: str) -> None:
        """Note that the Pod *uid* is not bound, and that no Binding sent so far can bind it."""
        reserved = self.reservations.get(uid)
        if reserved is None or reserved.is_certain:
            return
        if reserved.stage is Stage.WRITTEN:
            self.unreserve(uid)
        else:
            reserved.is_certain = True

    def is_bound(self, uid: str) -> bool:
        """Return whether the Pod *uid*, which holds something, is known to be bound, even if it was not seen bound."""
        reserved = self.reservations.get(uid)
        return reserved is None or reserved.is_bound

    def expire(self, now: float) -> list[str]:
        """
        Free expired reservations and return their Pods' UIDs.

        A Node that rejected a Pod long enough ago may be tried again.
        """
        for name, rejections in self._rejections.items():
            ended = {resource: found for resource, found in rejections.items() if found.until <= now}
            if ended:
                # How long it was is remembered, in case that the next Pod is rejected too.
                rejections.update({resource: replace(found, until=math.inf) for resource, found in ended.items()})
                self._offer(self._nodes[name])
        gone = self.reservations.expired(now)
        for uid in gone:
            self.unreserve(uid)
        return gone

    def recount(self) -> int:
        """Check every sum against the grants, repair it, and return how many numbers were wrong."""
        of_pods = (grant for grant in self.ledger.grants() if not grant.is_claim)
        drift = self.ledger.recount() + self.quotas.recount(of_pods)
        self.drift += drift
        return drift

    def _count(self, uid: str, grant: Grant | None) -> None:
        """Count *grant* as all that the Pod *uid* holds, None for nothing."""
        before = self.ledger.grant(uid)
        if grant is not None and before == grant:
            return
        self._read.pop(uid, None)
        if before is not None:
            self.ledger.drop(uid)
            self.quotas.count(before, -1)
        if grant is not None:
            self.ledger.put(grant)
            self.quotas.count(grant, 1)

    def _forget(self, uid: str) -> None:
        self.reservations.drop(uid)
        self._count(uid, None)
        self._edited.discard(uid)
        self._unreadable.pop(uid, None)
        self._reported_unrequested.discard(uid)
