"""
What the scheduler does when Pods are evicted: where each comes back, and which waiting Pods fit then.

The devices that the Pods leave, and those that waiting Pods are to get, are closed to new Pods until all have come
back, because a scheduler that packs would put them where they were. Pods are evicted oldest first, as the descheduler
does it. Forecasts are made on a copy of the cluster, and undone. Must never judge a fit itself: the scheduler's search
and `kube_filters` do. Neighbours: `movable` has the Pods, `defragmentation` chooses which of them leave.
"""

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from hami_scheduler.explain.kube_filters import KubePod, KubeView
from hami_scheduler.explain.movable import Holder, NewPod
from hami_scheduler.search.cache import Memo
from hami_scheduler.search.filter import Choice
from hami_scheduler.search.place_pod import try_node
from hami_scheduler.search.placement import Placement, grant_of
from hami_scheduler.state.view import ClusterView
from hami_scheduler.values.grant import Grant
from hami_scheduler.values.inventory import NodeInventory

Place = tuple[str, str]
"""A Node, and the UUID of a device there."""
_ASKED_ONE_BY_ONE = 4
"""Nodes that kube-scheduler may rule out before it is asked about all."""
NODES_A_TRY = 20
"""Nodes that are looked through in the time of one try."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What becomes of the Pods."""

    moves: tuple[tuple[Holder, Choice], ...] = ()
    """Each Pod that leaves, oldest first, and what it gets."""
    placed: tuple[Choice | None, ...] = ()
    """Per waiting Pod: what it gets, None if it still fits nowhere."""
    closed: frozenset[Place] = frozenset()
    """The devices that are closed meanwhile."""


class Forecast:
    """A copy of a cluster, in which Pods come and go."""

    def __init__(self, view: ClusterView, kube: KubeView, is_late: Callable[[], bool]) -> None:
        """Take *view* and *kube*, which nobody else changes; every forecast fails once *is_late*."""
        self.is_late = is_late
        self.tries = 0
        """How often a Pod was tried on a Node or in the cluster; what a search is bounded by."""
        self._view = view
        self.ledger = view.ledger
        self._kube = kube
        self._memo = Memo()
        self._undo: list[Callable[[], None]] = []

    def carry_out(
        self, leaving: Sequence[Holder], waiting: Sequence[NewPod] = (), closed: frozenset[Place] = frozenset()
    ) -> Generator[None, None, Outcome | None]:
        """
        Return what becomes of the Pods *leaving* and *waiting*, None if one that leaves fits nowhere, or if it is late.

        *waiting* are placed in their order, after all others; *closed* devices are closed as well.
        """
        begin = len(self._undo)
        try:
            for holder in leaving:
                self.leave(holder)
            closed |= held_by(leaving) | self._wanted_by(waiting)
            before = self.close(closed)
            moves = []
            yield
            for holder in sorted(leaving, key=eviction_order):
                choice = self.place(holder.pod)
                if choice is None or self.is_late():
                    return None
                moves.append((holder, choice))
                yield
            for inventory in before:
                self.ledger.put_node(inventory)
            return Outcome(tuple(moves), tuple(map(self.place, waiting)), closed)
        finally:
            self.undo(begin)

    # Steps, which can be undone

    def begin(self) -> int:
        """Return where steps begin that are undone later."""
        return len(self._undo)

    def undo(self, begin: int) -> None:
        """Undo all steps since *begin*."""
        while len(self._undo) > begin:
            self._undo.pop()()

    def leave(self, holder: Holder) -> None:
        """Let a Pod end."""
        self._count(holder.grant, holder.kube, -1)
        self._undo.append(partial(self._count, holder.grant, holder.kube, 1))

    def place(self, pod: NewPod) -> Choice | None:
        """Place *pod* where the scheduler would; None if it fits nowhere."""
        choice = self._choose(pod)
        if choice is not None:
            inventory = self._view.inventory(choice.node)
            grant = grant_of(pod.request, inventory, choice.placement, unix_nanoseconds=0)
            self._count(grant, pod.kube, 1)
            self._undo.append(partial(self._count, grant, pod.kube, -1))
        return choice

    def close(self, places: Iterable[Place]) -> list[NodeInventory]:
        """Close devices to new Pods, and return the inventories that open them again."""
        of_node: dict[str, set[str]] = {}
        for node, uuid in places:
            of_node.setdefault(node, set()).add(uuid)
        opened = [entry.inventory for node in of_node if (entry := self.ledger.node(node))]
        for inventory in opened:
            closed = inventory.cordoned | of_node[inventory.name]
            self.ledger.put_node(replace(inventory, cordoned=closed))
            self._undo.append(partial(self.ledger.put_node, inventory))
        return opened

    def fits(self, pod: NewPod, node: str) -> bool:
        """Return whether *pod* would get devices on *node*, and kube-scheduler does not rule it out."""
        self.tries += 1
        allowances = self._view.allowances(pod.request)
        found = try_node(pod.request, node, self.ledger, allowances)
        return isinstance(found, Placement) and not self._kube.misfits(pod.kube, node)

    # Inside

    def _wanted_by(self, waiting: Sequence[NewPod]) -> frozenset[Place]:
        """Return the devices that *waiting* would get now."""
        begin = self.begin()
        found = [placed_on(choice) for pod in waiting if (choice := self.place(pod)) is not None]
        self.undo(begin)
        return frozenset().union(*found)

    def _choose(self, pod: NewPod) -> Choice | None:
        search = self._memo.search(pod.request, self._view)
        left_out: set[str] = set()
        while True:
            self.tries += 1
            choice = search.choose(dict.fromkeys(name for name in self.ledger.names if name not in left_out))
            if choice is None or not self._kube.misfits(pod.kube, choice.node):
                return choice
            left_out.add(choice.node)
            if len(left_out) == _ASKED_ONE_BY_ONE:
                left_out |= {name for name in self.ledger.names if self._kube.misfits(pod.kube, name)}
                self.tries += len(self.ledger.names) // NODES_A_TRY

    def _count(self, grant: Grant, pod: KubePod, sign: int) -> None:
        if sign > 0:
            self.ledger.put(grant)
        else:
            self.ledger.drop(grant.uid)
        self._view.quotas.count(grant, sign)
        self._kube.take(pod, grant.node, sign)


def held_by(holders: Iterable[Holder]) -> frozenset[Place]:
    """Return the devices that *holders* hold."""
    return frozenset((holder.grant.node, uuid) for holder in holders for uuid in holder.grant.amounts)


def placed_on(choice: Choice) -> frozenset[Place]:
    """Return the devices of *choice*."""
    vendors = choice.placement.shares.values()
    return frozenset((choice.node, share.uuid) for shares in vendors for container in shares for share in container)


def eviction_order(holder: Holder) -> tuple[str, str, str]:
    """Return a key that sorts Pods as the descheduler evicts them: oldest first."""
    return holder.created, holder.grant.namespace, holder.grant.name
