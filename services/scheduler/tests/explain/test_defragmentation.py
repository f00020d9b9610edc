"""
Plans of moves: valid by the scheduler's own rules, as good as brute force on small clusters, and bounded on large ones.
"""

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations
from typing import Any

import pytest

from hami_scheduler.explain import defragmentation
from hami_scheduler.explain.defragmentation import MOVES_LIMIT, Task, defragment
from hami_scheduler.explain.kube_filters import KubeNode, KubePod, KubeView
from hami_scheduler.explain.movable import Budgets, Fixed, Holder, NewPod
from hami_scheduler.explain.move_plan import Plan
from hami_scheduler.explain.report import finish
from hami_scheduler.search.filter import filter_nodes
from hami_scheduler.search.placement import grant_of
from hami_scheduler.state.cluster import Cluster
from hami_scheduler.state.view import ClusterView
from hami_scheduler.values.grant import Grant
from hamicommon.model import Object

from ..support.builders import (
    QUOTA,
    a_cluster,
    a_container,
    a_device,
    a_grant,
    a_node,
    a_pod,
    a_request,
    a_share,
    only_devices,
)

Place = tuple[str, str]
SAMPLES = 50
WORST_RATIO = 1.05


def a_new_pod(name: str, *, gpu: int = 1, gpumem: int = 16384, policy: str = "binpack", cpu: int = 0) -> NewPod:
    """Return a Pod that asks for *gpu* NVIDIA devices, whole ones by default, and *cpu* thousandths of a processor."""
    request = a_request(a_pod(name, a_container(gpu=gpu, gpumem=gpumem)), node=policy)
    return NewPod(request, KubePod({"cpu": cpu}))


def a_holder(name: str, node: str, *uuids: str, mib: int, budget: str = "", **asks: Any) -> Holder:
    """Return a Pod of a ReplicaSet that holds *mib* of each of *uuids*."""
    new = a_new_pod(name, gpu=len(uuids), gpumem=mib, **asks)
    grant = a_grant(new.request.uid, node, *(a_share(uuid, mib) for uuid in uuids))
    budgets = (budget,) if budget else ()
    return Holder(replace(grant, name=name), new, new.kube, "ReplicaSet/web", name, budgets)


def planned(
    cluster: Cluster,
    movable: Sequence[Holder],
    *waiting: NewPod,
    fixed: Sequence[Grant] = (),
    allowed: dict[str, int] | None = None,
    kube: KubeView | None = None,
    empties_nodes: bool = False,
    moves: int = MOVES_LIMIT,
) -> Plan:
    """Return the plan for *cluster* with *movable* and *fixed* Pods on it; the cluster itself stays as it is."""
    for grant in chain((holder.grant for holder in movable), fixed):
        cluster.ledger.put(grant)
        cluster.quotas.count(grant, 1)
    stays = [Fixed(grant.namespace, grant.name, grant.node, "no controller") for grant in fixed]
    version = cluster.view.version
    task = Task(movable, stays, Budgets(allowed or {}), waiting, empties_nodes, moves)
    plan = finish(defragment(task, cluster.view, kube or only_devices(cluster)))
    assert version == cluster.view.version
    return plan


def moved(plan: Plan) -> dict[str, str]:
    """Return per Pod that moves: where it goes, as `node/UUIDs`."""
    return {move.pod: f"{move.gets.node}/{','.join(one.id for one in move.gets.devices)}" for move in plan.moves}


def emptied(plan: Plan) -> list[str]:
    """Return the UUIDs that become empty."""
    return sorted(device.id for spot in plan.empties for device in spot.devices)


def two_nodes() -> Cluster:
    """Return a cluster of the Nodes a and b with a device of 16384 MiB each."""
    return a_cluster(a_node("a", a_device("GPU-a")), a_node("b", a_device("GPU-b")))


# What a plan says


def test_pod_in_the_way_of_a_whole_device_moves_beside_another() -> None:
    """Its device is closed until it runs elsewhere, and the waiting Pod gets it."""
    holders = [a_holder("x", "a", "GPU-a", mib=4000), a_holder("y", "b", "GPU-b", mib=9000)]

    plan = planned(two_nodes(), holders, a_new_pod("large"))

    assert {"x": "b/GPU-b"} == moved(plan)
    assert [("default/large",)] == [move.gains for move in plan.moves]
    assert [("large", "a")] == [(fit.pod, fit.gets.node) for fit in plan.fits if fit.gets]
    assert [("a", ("GPU-a",))] == [(cordon.node, cordon.devices) for cordon in plan.cordons]
    assert plan.is_best


def test_pod_that_fits_already_moves_nothing() -> None:
    """The plan says where it goes."""
    plan = planned(two_nodes(), [a_holder("x", "a", "GPU-a", mib=4000)], a_new_pod("large"))

    assert ((), ()) == (plan.moves, plan.cordons)
    assert ["b"] == [fit.gets.node for fit in plan.fits if fit.gets]


def test_pod_that_no_move_helps_is_said_to_wait() -> None:
    """Nothing moves for nothing."""
    holders = [a_holder("x", "a", "GPU-a", mib=9000), a_holder("y", "b", "GPU-b", mib=9000)]

    plan = planned(two_nodes(), holders, a_new_pod("large"))

    assert () == plan.moves
    assert [None] == [fit.gets for fit in plan.fits]


def test_fewest_pods_move() -> None:
    """One Pod that suffices is preferred to two small ones."""
    cluster = a_cluster(a_node("a", a_device("GPU-a")), a_node("b", a_device("GPU-b")), a_node("c", a_device("GPU-c")))
    holders = [
        *(a_holder(f"small-{number}", "a", "GPU-a", mib=2000) for number in range(2)),
        a_holder("one", "b", "GPU-b", mib=5000),
        a_holder("full", "c", "GPU-c", mib=11000),
    ]

    plan = planned(cluster, holders, a_new_pod("large", gpumem=16000))

    assert {"one": "c/GPU-c"} == moved(plan)


def test_pod_that_must_stay_is_worked_around_and_named() -> None:
    """As one of a claim, or one without a controller."""
    fixed = [a_grant("bare", "a", a_share("GPU-a", 1000))]

    plan = planned(two_nodes(), [a_holder("y", "b", "GPU-b", mib=4000)], a_new_pod("large"), fixed=fixed)

    assert {"y": "a/GPU-a"} == moved(plan)
    assert [("pod-bare", "a", "no controller")] == [(one.pod, one.node, one.why) for one in plan.fixed]


def test_budget_limits_how_many_of_its_pods_move() -> None:
    """Two devices could become empty, and the budget allows one eviction."""
    cluster = a_cluster(*(a_node(name, a_device(f"GPU-{name}")) for name in "abc"))
    holders = [
        a_holder("x", "a", "GPU-a", mib=2000, budget="default/web"),
        a_holder("y", "b", "GPU-b", mib=2000, budget="default/web"),
        a_holder("z", "c", "GPU-c", mib=2000),
    ]

    one = planned(cluster, holders, allowed={"default/web": 1})
    both = planned(cluster, holders, allowed={"default/web": 2})

    assert (2, 2) == (len(one.empties), len(both.empties))
    assert 1 == sum(move.pod in "xy" for move in one.moves)
    assert 1 == len(planned(cluster, holders[:2], allowed={"default/web": 1}).moves)
    assert 0 == len(planned(cluster, holders[:2], allowed={"default/web": 0}).moves)


def test_moved_pod_fits_by_kube_schedulers_rules_too() -> None:
    """A Node whose processors are taken is no place for it."""
    kube = KubeView(
        {
            "a": KubeNode("a", allocatable={"cpu": 8000, "pods": 9}),
            "b": KubeNode("b", allocatable={"cpu": 8000, "pods": 9}, requested={"cpu": 7000}),
        }
    )
    holders = [a_holder("x", "a", "GPU-a", mib=4000, cpu=2000), a_holder("y", "b", "GPU-b", mib=4000)]

    assert {"y": "a/GPU-a"} == moved(planned(two_nodes(), holders, a_new_pod("large"), kube=kube))


def test_quota_of_the_namespace_counts_a_moved_pod_once() -> None:
    """It ends before it comes back, so a full quota does not hold it back."""
    cluster = two_nodes()
    cluster.quotas.put(QUOTA)
    holders = [a_holder("x", "a", "GPU-a", mib=2000), a_holder("y", "b", "GPU-b", mib=3000)]

    assert 1 == len(planned(cluster, holders).moves)


def test_emptied_device_is_not_filled_from_another_and_empty_ones_stay_empty() -> None:
    """With the device policy spread, the scheduler would take the empty device, so it is closed too."""
    cluster = a_cluster(a_node("a", a_device("GPU-a")), a_node("b", a_device("GPU-b"), a_device("GPU-e", index=1)))
    holders = [a_holder("x", "a", "GPU-a", mib=2000), a_holder("y", "b", "GPU-b", mib=4000)]

    plan = planned(cluster, holders)

    assert (["GPU-a"], {"x": "b/GPU-b"}) == (emptied(plan), moved(plan))
    assert {"a": ("GPU-a",), "b": ("GPU-e",)} == {cordon.node: cordon.devices for cordon in plan.cordons}


def test_whole_nodes_become_empty_if_asked() -> None:
    """An empty device of a used Node may be taken then."""
    cluster = a_cluster(a_node("a", a_device("GPU-a")), a_node("b", a_device("GPU-b"), a_device("GPU-e", index=1)))
    holders = [a_holder("x", "a", "GPU-a", mib=9000), a_holder("y", "b", "GPU-b", mib=9000)]

    plan = planned(cluster, holders, empties_nodes=True)

    assert ("nodes", ["a"], {"x": "b/GPU-e"}) == (plan.goal, [one.node for one in plan.empties], moved(plan))
    assert () == planned(cluster, holders).moves


def test_devices_closed_before_are_told_so_that_they_stay_closed() -> None:
    """Who opens the others afterwards must not open these."""
    node = a_node("a", a_device("GPU-a"), a_device("GPU-z", index=1))
    node["metadata"]["annotations"]["hami.io/device-cordon"] = "GPU-z"
    cluster = a_cluster(node, a_node("b", a_device("GPU-b")))
    holders = [a_holder("x", "a", "GPU-a", mib=4000), a_holder("y", "b", "GPU-b", mib=9000)]

    [cordon] = planned(cluster, holders, a_new_pod("large")).cordons

    assert ("a", ("GPU-a",), ("GPU-z",)) == (cordon.node, cordon.devices, cordon.before)


def test_device_that_an_operator_has_closed_is_not_opened_by_a_plan() -> None:
    """A Pod on it and on another device moves, and only the other device is closed and opened again."""
    node = a_node("a", a_device("GPU-a"), a_device("GPU-z", index=1))
    node["metadata"]["annotations"]["hami.io/device-cordon"] = "GPU-z"
    cluster = a_cluster(node, a_node("b", a_device("GPU-b"), a_device("GPU-c", index=1)))
    holders = [
        a_holder("x", "a", "GPU-a", "GPU-z", mib=4000),
        *(a_holder(f"y{uuid}", "b", uuid, mib=9000) for uuid in ("GPU-b", "GPU-c")),
    ]

    [cordon] = planned(cluster, holders, a_new_pod("large")).cordons

    assert ("a", ("GPU-a",), ("GPU-z",)) == (cordon.node, cordon.devices, cordon.before)


# Bounds


def test_search_that_takes_too_long_ends_with_what_it_has() -> None:
    """However dear a try is."""
    cluster = a_cluster(*(a_node(name, a_device(f"GPU-{name}")) for name in "abcdef"))
    holders = [a_holder(f"x{name}", name, f"GPU-{name}", mib=2000) for name in "abcdef"]
    for holder in holders:
        cluster.ledger.put(holder.grant)
    moments = iter(range(1000))

    plan = finish(
        defragment(Task(holders, [], Budgets()), cluster.view, only_devices(cluster), lambda: next(moments) > 8)
    )

    assert 0 < len(plan.empties) < 5
    assert len(plan.moves) == len(plan.empties)
    assert not plan.is_best


def test_plan_moves_no_more_pods_than_asked() -> None:
    """And says that more might help."""
    cluster = a_cluster(*(a_node(name, a_device(f"GPU-{name}")) for name in "abcd"))
    holders = [a_holder(f"x{name}", name, f"GPU-{name}", mib=2000) for name in "abcd"]

    plan = planned(cluster, holders, moves=2)

    assert (2, 2, False) == (len(plan.moves), len(plan.empties), plan.is_best)


@pytest.mark.parametrize("waits", [False, True], ids=["to make devices empty", "for a Pod"])
def test_search_ends_at_its_bound_and_says_so(monkeypatch: pytest.MonkeyPatch, waits: bool) -> None:
    """With the best that was found by then."""
    monkeypatch.setattr(defragmentation, "TRIES_LIMIT", 40)
    cluster = a_cluster(*(a_node(f"n{number}", a_device(f"GPU-{number}")) for number in range(30)))
    holders = [a_holder(f"p{pod}", f"n{pod // 2}", f"GPU-{pod // 2}", mib=4000) for pod in range(60)]

    plan = planned(cluster, holders, *([a_new_pod("large")] if waits else []))

    assert plan.moves
    assert not plan.is_best
    assert plan.tries < 40 + 2 * MOVES_LIMIT


# Against brute force


@dataclass(frozen=True)
class Case:
    """A small cluster."""

    nodes: tuple[Object, ...]
    holders: tuple[Holder, ...]
    fixed: tuple[Grant, ...]
    waiting: tuple[NewPod, ...]

    def view(self) -> ClusterView:
        """Return the Nodes alone."""
        return a_cluster(*self.nodes).view

    def groups(self, *, of_nodes: bool) -> list[frozenset[Place]]:
        """Return what can be empty: each device, or all devices of a Node."""
        found = [
            [(entry.inventory.name, one.id) for one in entry.inventory.devices] for entry in self.view().ledger.nodes()
        ]
        return [frozenset(each) for each in (found if of_nodes else [[one] for each in found for one in each])]


def a_case(dice: random.Random, *, waits: bool) -> Case:
    """Return up to three Nodes of up to two devices, with up to seven Pods, as the scheduler could have placed them."""
    shapes = [dice.randint(1, 2) for _ in range(dice.randint(2, 3))]
    nodes = tuple(
        a_node(f"n{node}", *(a_device(f"GPU-{node}{index}", index=index) for index in range(count)))
        for node, count in enumerate(shapes)
    )
    view, holders, fixed = a_cluster(*nodes).view, list[Holder](), list[Grant]()
    for number in range(dice.randint(2, 7)):
        node = dice.randrange(len(shapes))
        count = 2 if shapes[node] == 2 and dice.random() < 0.15 else 1
        uuids = [f"GPU-{node}{index}" for index in dice.sample(range(shapes[node]), count)]
        mib = dice.choice((2000, 3000, 5000, 6000, 8000, 10000))
        policy = dice.choice(("binpack", "spread"))
        holder = a_holder(f"p{number}", f"n{node}", *uuids, mib=mib, policy=policy)
        uses = {use.device.id: use for use in view.ledger.device_uses(f"n{node}")}
        if any(uses[uuid].memory_mib + mib > uses[uuid].device.memory_mib for uuid in uuids):
            continue
        view.ledger.put(holder.grant)
        if dice.random() < 0.15:
            fixed.append(holder.grant)
        else:
            holders.append(holder)
    waiting = [
        a_new_pod(f"w{number}", gpu=dice.choice((1, 1, 1, 2)), gpumem=dice.choice((9000, 12000, 16384)))
        for number in range(dice.randint(1, 2) if waits else 0)
    ]
    return Case(nodes, tuple(holders), tuple(fixed), tuple(waiting))


def subsets(holders: Sequence[Holder]) -> Iterator[tuple[Holder, ...]]:
    """Yield every set of *holders*."""
    return chain.from_iterable(combinations(holders, size) for size in range(len(holders) + 1))


def held(grants: Iterable[Grant]) -> frozenset[Place]:
    """Return the devices of *grants*."""
    return frozenset((grant.node, uuid) for grant in grants for uuid in grant.amounts)


def put(pod: NewPod, view: ClusterView) -> Grant | None:
    """Let the scheduler place *pod*, and return what it gets; None if it fits nowhere."""
    result = filter_nodes(pod.request, sorted(view.ledger.names), view)
    if result.node is None or result.placement is None:
        return None
    grant = grant_of(pod.request, view.inventory(result.node), result.placement, 0)
    view.ledger.put(grant)
    return grant


def close(view: ClusterView, closed: Iterable[Place]) -> None:
    """Close exactly these devices."""
    for name in list(view.ledger.names):
        uuids = frozenset(uuid for node, uuid in closed if node == name)
        view.ledger.put_node(replace(view.inventory(name), cordoned=uuids))


def without(case: Case, leaving: Sequence[Holder]) -> ClusterView:
    """Return the cluster of *case* after the Pods *leaving* have ended."""
    view = case.view()
    for grant in (*case.fixed, *(holder.grant for holder in case.holders if holder not in leaving)):
        view.ledger.put(grant)
    return view


def happens(
    case: Case, leaving: Sequence[Holder], closed: frozenset[Place]
) -> tuple[list[Grant], list[Grant | None]] | None:
    """Return what each Pod *leaving* and each waiting one gets while *closed* is closed until all are back."""
    view = without(case, leaving)
    close(view, closed)
    back = [put(holder.pod, view) for holder in sorted(leaving, key=lambda holder: holder.created)]
    if not all(back):
        return None
    close(view, ())
    return [grant for grant in back if grant], [put(pod, view) for pod in case.waiting]


def best_for_pods(case: Case) -> tuple[int, int]:
    """Return how many waiting Pods fit at best, and after how few moves, of all sets of Pods."""
    best = (-1, 0)
    for leaving in subsets(case.holders):
        view = without(case, leaving)
        wanted = held(grant for pod in case.waiting if (grant := put(pod, view)))
        found = happens(case, leaving, held(holder.grant for holder in leaving) | wanted)
        if found is not None:
            best = max(best, (sum(grant is not None for grant in found[1]), -len(leaving)))
    return best[0], -best[1]


def best_for_empties(case: Case, *, of_nodes: bool) -> tuple[int, int]:
    """Return how many more devices or Nodes are empty at best, and after how few moves, of all sets of Pods."""
    groups, best = case.groups(of_nodes=of_nodes), (-1, 0)
    before = held((*case.fixed, *(holder.grant for holder in case.holders)))
    for leaving in subsets(case.holders):
        stay = (*case.fixed, *(holder.grant for holder in case.holders if holder not in leaving))
        left = frozenset[Place]().union(*(group for group in groups if not group & held(stay)))
        found = happens(case, leaving, held(holder.grant for holder in leaving) | left)
        if found is not None:
            after = held((*stay, *found[0]))
            gain = sum(not group & after for group in groups) - sum(not group & before for group in groups)
            best = max(best, (gain, -len(leaving)))
    return best[0], -best[1]


def checked(case: Case, *, of_nodes: bool = False) -> tuple[int, int]:
    """Return what the plan for *case* gains and how many Pods it moves, after carrying it out as it says."""
    plan = planned(a_cluster(*case.nodes), case.holders, *case.waiting, fixed=case.fixed, empties_nodes=of_nodes)
    names = {move.pod for move in plan.moves}
    leaving = [holder for holder in case.holders if holder.grant.name in names]
    closed = frozenset((cordon.node, uuid) for cordon in plan.cordons for uuid in cordon.devices)
    found = happens(case, leaving, closed)
    assert plan.is_best
    assert found is not None
    back, placed = found
    assert {grant.name: (grant.node, frozenset(grant.amounts)) for grant in back} == {
        move.pod: (move.gets.node, frozenset(device.id for device in move.gets.devices)) for move in plan.moves
    }
    assert [grant and grant.node for grant in placed] == [fit.gets and fit.gets.node for fit in plan.fits]
    stay = (holder.grant for holder in case.holders if holder not in leaving)
    after = held((*case.fixed, *stay, *back))
    for spot in plan.empties:
        assert not after & {(spot.node, device.id) for device in spot.devices}
    gain = sum(grant is not None for grant in placed) if case.waiting else len(plan.empties)
    return gain, len(plan.moves)


@pytest.mark.parametrize("goal", ["pods", "devices", "nodes"])
def test_plans_are_valid_and_as_good_as_brute_force(goal: str) -> None:
    """Over all samples: at least 1/1.05 of its gain, and for the same gain at most 1.05 times its moves."""
    gains, moves, helped = [0, 0], [0, 0], 0
    for seed in range(SAMPLES):
        case = a_case(random.Random(f"{goal}-{seed}"), waits=goal == "pods")
        best = best_for_pods(case) if goal == "pods" else best_for_empties(case, of_nodes=goal == "nodes")
        gain, moved_count = checked(case, of_nodes=goal == "nodes")
        assert gain <= best[0]
        gains = [gains[0] + gain, gains[1] + best[0]]
        if gain == best[0]:
            moves = [moves[0] + moved_count, moves[1] + best[1]]
        helped += moved_count > 0

    assert helped > SAMPLES / 10
    assert gains[1] <= WORST_RATIO * gains[0]
    assert moves[0] <= WORST_RATIO * moves[1]
