"""
Which Pods would have to move so that waiting Pods fit, or so that as many devices or Nodes as possible become empty.

A plan is a set of Pods to evict: `forecast` says where the scheduler would place them again, and what fits then. The
search goes depth first, the most promising set first, and every set is forecast as a whole. It is exhaustive on a small
cluster, and ends at `TRIES_LIMIT` on a large one; then the plan says so. A try is one Pod on one Node, one search of
the cluster, or a set that budgets forbid. Only a search of the cluster takes time that grows with its devices. A plan
takes at most `TRIES_LIMIT` of them, and those of its last forecasts. Neighbours: `movable` has the Pods, `move_plan`
what a plan says.
"""

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

from hami_scheduler.explain.forecast import NODES_A_TRY, Forecast, Outcome, Place, held_by, placed_on
from hami_scheduler.explain.kube_filters import KubeView
from hami_scheduler.explain.movable import Budgets, Fixed, Holder, NewPod
from hami_scheduler.explain.move_plan import Cordon, Device, Fit, Move, Plan, Spot
from hami_scheduler.explain.planning import copied
from hami_scheduler.search.filter import Choice
from hami_scheduler.state.view import ClusterView

TRIES_LIMIT = 20_000
"""Tries after which a search ends."""
MOVES_LIMIT = 200
"""The most Pods that one plan moves."""
MOVES_DEFAULT = 50
WAITING_LIMIT = 20
"""The most waiting Pods in one question."""
FIXED_SHOWN = 100
_NODES_TRIED = 64
"""Nodes that are looked at for one waiting Pod, those with the fewest Pods on a device first."""
_SETS_OF_POOL = 256
"""Sets of Pods of one pool that are tried for one waiting Pod."""
_SETS_KEPT = 64
"""Sets of Pods that are forecast for one waiting Pod, the smallest first."""
_STEP_NODES = 20
"""Nodes between two pauses."""
_STEP_DEVICES = 50
"""Devices that are closed between two pauses."""
_REPLAYS = 32
"""Forecasts to find the empty devices that must be closed."""

Steps = Generator[None, None, None]
"""Yields at each pause."""
Leaving = tuple[Holder, ...]


@dataclass(frozen=True, slots=True)
class Task:
    """What is to be planned."""

    movable: Sequence[Holder]
    fixed: Sequence[Fixed]
    budgets: Budgets
    waiting: Sequence[NewPod] = ()
    """In the order of kube-scheduler's queue; empty to make devices or Nodes empty."""
    empties_nodes: bool = False
    moves: int = MOVES_DEFAULT


def defragment(
    task: Task, view: ClusterView, kube: KubeView, is_late: Callable[[], bool] = lambda: False
) -> Generator[None, None, Plan]:
    """
    Return the best plan that was found for *task*; *view* and *kube* stay as they are.

    The search ends once *is_late*, because a Pod with many containers makes a try dear.
    """
    forecast = Forecast((yield from copied(view)), kube.copy(), is_late)
    search = _ForPods(task, forecast) if task.waiting else _ForEmpties(task, forecast)
    yield from search.run()
    return search.plan()


@dataclass(slots=True)
class _Best:
    """The best set of Pods so far."""

    leaving: Leaving = ()
    gain: int = -1
    outcome: Outcome = field(default_factory=Outcome)


class _Search:
    """What both searches have."""

    def __init__(self, task: Task, forecast: Forecast) -> None:
        self.task = task
        self.ledger = forecast.ledger
        self.forecast = forecast
        self.best = _Best()
        self.is_best = True

    @property
    def is_spent(self) -> bool:
        """Whether the search must end now."""
        is_spent = self.forecast.tries >= TRIES_LIMIT or self.forecast.is_late()
        self.is_best = self.is_best and not is_spent
        return is_spent

    def is_allowed(self, leaving: Leaving) -> bool:
        """Return whether *leaving* may be evicted together."""
        is_allowed = self.task.budgets.allow(leaving)
        if len(leaving) > self.task.moves:
            self.is_best = is_allowed = False
        self.forecast.tries += not is_allowed
        return is_allowed

    def consider(self, leaving: Leaving, gain: int, outcome: Outcome) -> None:
        """Keep *leaving* if it gains more than the best so far, or the same with fewer moves."""
        if (gain, -len(leaving)) > (self.best.gain, -len(self.best.leaving)):
            self.best = _Best(leaving, gain, outcome)

    def spot(self, node: str, uuids: Iterable[str]) -> Spot:
        """Return devices of *node*, in their order."""
        entry = self.ledger.node(node)
        indexes = {device.id: device.index for device in entry.inventory.devices} if entry else {}
        found = (Device(uuid, indexes.get(uuid)) for uuid in uuids)
        return Spot(node, tuple(sorted(found, key=lambda device: (device.index or 0, device.id))))

    def chosen(self, choice: Choice) -> Spot:
        """Return the devices of *choice*."""
        return self.spot(choice.node, {uuid for _, uuid in placed_on(choice)})

    def plan_of(self, goal: str, gains: Callable[[Holder], tuple[str, ...]]) -> Plan:
        """Return the plan of the best set, without what it gains."""
        outcome, task = self.best.outcome, self.task
        moves = tuple(
            Move(
                holder.grant.namespace,
                holder.grant.name,
                holder.owner,
                self.spot(holder.grant.node, holder.grant.amounts),
                self.chosen(choice),
                gains(holder),
            )
            for holder, choice in outcome.moves
        )
        return Plan(
            goal,
            moves,
            cordons=self._cordons(outcome.closed) if moves else (),
            fixed=tuple(task.fixed[:FIXED_SHOWN]),
            fixed_count=len(task.fixed),
            tries=self.forecast.tries,
            is_best=self.is_best,
        )

    def _cordons(self, closed: frozenset[Place]) -> tuple[Cordon, ...]:
        of_node: dict[str, set[str]] = {}
        for node, uuid in closed:
            of_node.setdefault(node, set()).add(uuid)
        found = []
        for node, uuids in sorted(of_node.items()):
            entry = self.ledger.node(node)
            before = entry.inventory.cordoned if entry else frozenset[str]()
            if not uuids <= before:
                found.append(Cordon(node, tuple(sorted(uuids - before)), tuple(sorted(before))))
        return tuple(found)


class _ForPods(_Search):
    """Finds the fewest Pods that must leave for waiting Pods."""

    def __init__(self, task: Task, forecast: Forecast) -> None:
        super().__init__(task, forecast)
        self._on_node: dict[str, list[Holder]] = {}
        for holder in task.movable:
            self._on_node.setdefault(holder.grant.node, []).append(holder)
        self._seen: set[frozenset[Holder]] = set()

    def run(self) -> Steps:
        """Search."""
        yield from self._search((), 0)

    def plan(self) -> Plan:
        """Return the best plan."""
        placed = self.best.outcome.placed
        names = [f"{pod.request.namespace}/{pod.request.name}" for pod in self.task.waiting]
        places = [placed_on(choice) if choice else frozenset[Place]() for choice in placed]

        def gains(holder: Holder) -> tuple[str, ...]:
            left = held_by([holder])
            return tuple(name for name, gets in zip(names, places, strict=True) if gets & left)

        fits = tuple(
            Fit(pod.request.namespace, pod.request.name, self.chosen(choice) if choice else None)
            for pod, choice in zip(self.task.waiting, placed, strict=True)
        )
        found = self.plan_of("pods", gains)
        needs_no_fewer = self.best.gain == len(fits) and len(found.moves) <= 1
        return replace(found, fits=fits, is_best=found.is_best or needs_no_fewer)

    def _search(self, leaving: Leaving, number: int) -> Steps:
        """Consider *leaving*, then add to it what lets the waiting Pod *number* fit, and later ones."""
        yield
        if frozenset(leaving) not in self._seen:
            self._seen.add(frozenset(leaving))
            outcome = yield from self.forecast.carry_out(leaving, self.task.waiting)
            if outcome is not None:
                self.consider(leaving, sum(choice is not None for choice in outcome.placed), outcome)
        if number == len(self.task.waiting):
            return
        for more in (yield from self._sets(leaving, number)):
            if self.is_spent:
                return
            if self._can_improve(len(leaving) + len(more)) and self.is_allowed((*leaving, *more)):
                yield from self._search((*leaving, *more), number + 1)
        if number + 1 < len(self.task.waiting):
            yield from self._search(leaving, number + 1)

    def _can_improve(self, moves: int) -> bool:
        """Return whether *moves* moves can be better than the best so far."""
        return self.best.gain < len(self.task.waiting) or moves < len(self.best.leaving)

    def _sets(self, leaving: Leaving, number: int) -> Generator[None, None, list[Leaving]]:
        """Return sets of Pods that must leave, beside *leaving*, for the waiting Pod *number*; the smallest first."""
        begin = self.forecast.begin()
        pod, found = self.task.waiting[number], list[Leaving]()
        # Half of what is left is for the forecasts.
        limit = (self.forecast.tries + TRIES_LIMIT) // 2
        try:
            for holder in leaving:
                self.forecast.leave(holder)
            for earlier in self.task.waiting[:number]:
                self.forecast.place(earlier)
            if self.forecast.place(pod) is not None:
                return [()]
            for node in self._nodes(leaving, pod):
                for pool in self._pools(node, leaving, pod):
                    yield
                    if self.forecast.tries < limit and not self.is_spent:
                        found += yield from self._sets_of(pool, node, pod)
                    else:
                        self.is_best = False
        finally:
            self.forecast.undo(begin)
        found.sort(key=len)
        if len(found) > _SETS_KEPT:
            self.is_best = False
        return found[:_SETS_KEPT]

    def _nodes(self, leaving: Leaving, pod: NewPod) -> list[str]:
        """Return the Nodes that are worth a try for *pod*: those first where the fewest Pods are on its devices."""
        count, gone = _devices_asked(pod), set(leaving)

        def pods_on_fewest(node: str) -> int:
            entry = self.ledger.node(node)
            counts = {device.id: 0 for device in entry.inventory.devices} if entry else {}
            for grant in self.ledger.grants_on(node):
                for uuid in grant.amounts:
                    counts[uuid] = counts.get(uuid, 0) + 1
            return sum(sorted(counts.values())[:count])

        nodes = [node for node, there in self._on_node.items() if not gone.issuperset(there)]
        self.forecast.tries += len(nodes) // NODES_A_TRY
        if len(nodes) > _NODES_TRIED:
            self.is_best = False
        return sorted(nodes, key=lambda node: (pods_on_fewest(node), node))[:_NODES_TRIED]

    def _pools(self, node: str, leaving: Leaving, pod: NewPod) -> list[Leaving]:
        """Return the sets of Pods on *node* of which some must leave: of one device, if *pod* asks for one device."""
        here = tuple(holder for holder in self._on_node[node] if holder not in leaving)
        if _devices_asked(pod) > 1:
            return [here]
        of_device: dict[str, list[Holder]] = {}
        for holder in here:
            for uuid in holder.grant.amounts:
                of_device.setdefault(uuid, []).append(holder)
        return [tuple(found) for _, found in sorted(of_device.items())]

    def _sets_of(self, pool: Leaving, node: str, pod: NewPod) -> Generator[None, None, list[Leaving]]:
        """Return the sets of *pool*, of which no part would do, without which *pod* fits on *node*."""
        if not self._fits_without(pool, node, pod):
            return []
        found: list[Leaving] = []
        left = _SETS_OF_POOL
        for size in range(1, len(pool) + 1):
            for some in combinations(pool, size):
                if left == 0:
                    self.is_best = False
                    return [*found, *self._walked(pool, node, pod)]
                left -= 1
                yield
                has_more_than_needed = any(set(less) <= set(some) for less in found)
                if not has_more_than_needed and self._fits_without(some, node, pod):
                    found.append(some)
        return found

    def _walked(self, pool: Leaving, node: str, pod: NewPod) -> list[Leaving]:
        """Return the sets that two walks over *pool* find: each Pod that can stays, the smallest or largest first."""
        found: list[Leaving] = []
        for sign in (1, -1):
            must_leave = list(pool)
            for holder in sorted(pool, key=lambda holder: sign * _size(holder)):
                fewer = [one for one in must_leave if one is not holder]
                if self._fits_without(fewer, node, pod):
                    must_leave = fewer
            found.append(tuple(must_leave))
        return found

    def _fits_without(self, leaving: Iterable[Holder], node: str, pod: NewPod) -> bool:
        begin = self.forecast.begin()
        for holder in leaving:
            self.forecast.leave(holder)
        fits = self.forecast.fits(pod, node)
        self.forecast.undo(begin)
        return fits


class _ForEmpties(_Search):
    """Finds the most devices or Nodes that can be made empty."""

    def __init__(self, task: Task, forecast: Forecast) -> None:
        super().__init__(task, forecast)
        self._groups: list[_Group] = []
        """What can be made empty, the easiest first."""
        self._empty: set[Place] = set()
        """The devices that are empty, or those of empty Nodes."""

    def run(self) -> Steps:
        """Search, with all empty devices closed, then find which of them must be closed."""
        yield from self._group()
        begin = self.forecast.begin()
        for number, place in enumerate(sorted(self._empty)):
            self.forecast.close([place])
            if number % _STEP_DEVICES == 0:
                yield
        self.consider((), 0, Outcome())
        yield from self._search((), (), 0)
        self.forecast.undo(begin)
        yield from self._close_no_more_than_needed()

    def plan(self) -> Plan:
        """Return the best plan."""
        emptied = self._emptied()
        spots = tuple(self.spot(group.node, (uuid for _, uuid in group.places)) for group in emptied)

        def gains(holder: Holder) -> tuple[str, ...]:
            left = held_by([holder])
            found = (spot for group, spot in zip(emptied, spots, strict=True) if group.places & left)
            return tuple(
                spot.node if self.task.empties_nodes else f"{spot.node}/{spot.devices[0].index}" for spot in found
            )

        return replace(self.plan_of("nodes" if self.task.empties_nodes else "devices", gains), empties=spots)

    def _search(self, leaving: Leaving, emptied: tuple["_Group", ...], begin: int) -> Steps:
        """Make more groups empty, from number *begin* on; the Pods *leaving* make *emptied* ones empty."""
        for number in range(begin, len(self._groups)):
            yield
            if len(emptied) + len(self._groups) - number < self.best.gain or self.is_spent:
                return
            group = self._groups[number]
            extended = (*leaving, *(one for one in group.holders if one not in leaving))
            if not self.is_allowed(extended):
                continue
            outcome = yield from self.forecast.carry_out(extended, closed=_places((*emptied, group)))
            if outcome is not None:
                self.consider(extended, len(emptied) + 1, outcome)
                yield from self._search(extended, (*emptied, group), number + 1)

    def _close_no_more_than_needed(self) -> Steps:
        """Replace the best outcome by one in which only those empty devices are closed that a Pod would get."""
        everything = self.best.outcome.closed.union(self._empty)
        closed = _places(self._emptied())
        for _ in range(_REPLAYS):
            outcome = yield from self.forecast.carry_out(self.best.leaving, closed=closed)
            if outcome is None:
                break
            used = {
                node for _, choice in outcome.moves for node, uuid in placed_on(choice) if (node, uuid) in self._empty
            }
            if not used:
                self.best.outcome = outcome
                return
            closed |= {place for place in self._empty if place[0] in used}
        self.best.outcome = replace(self.best.outcome, closed=everything)

    def _emptied(self) -> list["_Group"]:
        """Return what the best set makes empty."""
        leaving = set(self.best.leaving)
        return [group for group in self._groups if leaving.issuperset(group.holders)]

    def _group(self) -> Steps:
        """Find what can be made empty, and what is empty."""
        movable = {holder.grant.uid: holder for holder in self.task.movable}
        for number, entry in enumerate(list(self.ledger.nodes())):
            inventory = entry.inventory
            usable = [one.id for one in inventory.devices if one.healthy and one.id not in inventory.cordoned]
            holders: dict[str, list[str]] = {uuid: [] for uuid in usable}
            for grant in self.ledger.grants_on(inventory.name):
                for uuid in grant.amounts.keys() & holders.keys():
                    holders[uuid].append(grant.uid)
            for uuids in [usable] if self.task.empties_nodes else [[uuid] for uuid in usable]:
                uids = sorted({uid for uuid in uuids for uid in holders[uuid]})
                places = frozenset((inventory.name, uuid) for uuid in uuids)
                if not uids:
                    self._empty |= places
                elif all(uid in movable for uid in uids):
                    self._groups.append(_Group(inventory.name, places, tuple(movable[uid] for uid in uids)))
            if number % _STEP_NODES == 0:
                yield
        self._groups.sort(key=_ease)


@dataclass(frozen=True, slots=True)
class _Group:
    """One device, or all devices of a Node, that can be made empty."""

    node: str
    places: frozenset[Place]
    holders: Leaving


def _ease(group: _Group) -> tuple[int, int, list[Place]]:
    """Return a key that sorts what can be made empty: the fewest and smallest Pods first."""
    return len(group.holders), sum(map(_size, group.holders)), sorted(group.places)


def _places(groups: Iterable[_Group]) -> frozenset[Place]:
    return frozenset().union(*(group.places for group in groups))


def _devices_asked(pod: NewPod) -> int:
    return sum(request.count for container in pod.request.containers for request in container.requests)


def _size(holder: Holder) -> int:
    return sum(amount.memory_mib for amount in holder.grant.amounts.values())
