"""Laws of the ledger under any history: never too much, never drift, and order does not matter."""

import copy
import random
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, precondition, rule

from hami_scheduler.bind.plan import plan_bind
from hami_scheduler.search.cache import Memo
from hami_scheduler.search.filter import FilterResult, filter_nodes
from hami_scheduler.state.cluster import Cluster
from hami_scheduler.state.ledger import shortfall
from hami_scheduler.state.reservation import Stage
from hami_scheduler.values.grant import Grant
from hami_scheduler.values.request import PodRequest
from hamicommon.model import Object
from hamicommon.wire import keys

from ..support.builders import (
    a_cluster,
    a_container,
    a_device,
    a_mig_device,
    a_node,
    a_pod,
    a_request,
    an_inventory,
    promises,
)
from ..support.hypothesis_profiles import profile

NODES = [
    a_node("n1", a_device("GPU-a", count=3, memory_mib=8000), a_device("GPU-b", count=3, memory_mib=8000, numa=1)),
    a_node("n2", a_device("GPU-c", count=2, memory_mib=4000)),
]
NAMES = ["n1", "n2"]
AMOUNTS = st.sampled_from([500, 2000, 4000])
CORES = st.sampled_from([0, 30, 100])
CONTAINERS = st.lists(st.tuples(st.sampled_from(["init", "sidecar", "app"]), AMOUNTS, CORES), min_size=1, max_size=3)


class Cycle(RuleBasedStateMachine):
    """
    Pods that are created, decided, bound, ended and deleted; a watch that reports it late, twice, or by a new list.

    `pods` is the API server; what the cluster was told may lag behind it.
    """

    created = Bundle("created")
    reserved = Bundle("reserved")
    bound = Bundle("bound")

    def __init__(self) -> None:
        """Begin with two Nodes and no Pod."""
        super().__init__()
        self.cluster = a_cluster(*copy.deepcopy(NODES))
        self.pods: dict[str, Object] = {}
        self.untold: list[tuple[str, Object]] = []
        self.now = 0.0
        self.number = 0
        self.memo = Memo()

    @rule(target=created, containers=CONTAINERS, policy=st.sampled_from(["binpack", "spread"]))
    def create(self, containers: list[tuple[str, int, int]], policy: str) -> str:
        """A user creates a Pod."""
        self.number += 1
        made = [
            (kind, a_container(f"c{i}", sidecar=kind == "sidecar", gpu=1, gpumem=memory, gpucores=cores))
            for i, (kind, memory, cores) in enumerate(containers)
        ]
        apps = [container for kind, container in made if kind == "app"] or [a_container("idle")]
        inits = [container for kind, container in made if kind != "app"]
        pod = a_pod(f"p{self.number}", *apps, inits=inits, annotations={keys.NODE_SCHEDULER_POLICY: policy})
        self._write(pod)
        return str(pod["metadata"]["uid"])

    @rule(target=reserved, uid=consumes(created))
    def decide(self, uid: str) -> str:
        """kube-scheduler asks; the choice is reserved. What is remembered or foreseen changes no answer."""
        if uid in self.pods:
            request = a_request(self.pods[uid])
            self.cluster.unreserve(uid)
            result = self.answer(request, NAMES)
            if result.placement is not None and result.node is not None:
                names = request.namespace, request.name
                grant = Grant(uid, *names, result.node, request.kinds, result.placement.shares)
                self.cluster.reserve(grant, self.now)
            self.memo.search(request, self.cluster.view).look_ahead()
            for candidates in (NAMES, NAMES[:1], NAMES[1:]):
                self.answer(request, candidates)
        return uid

    def answer(self, request: PodRequest, candidates: list[str]) -> FilterResult:
        """Return the answer of who remembers, which is the one of who does not."""
        found = filter_nodes(
            request, candidates, self.cluster.view, search=self.memo.search(request, self.cluster.view)
        )
        assert filter_nodes(request, candidates, self.cluster.view) == found
        return found

    @rule(target=bound, uid=consumes(reserved), fails=st.booleans())
    def bind(self, uid: str, fails: bool) -> str:
        """kube-scheduler binds; the API server may refuse."""
        held = self.cluster.reservations.get(uid)
        if held is None or held.stage is not Stage.CHOSEN or shortfall(self.cluster.ledger, held.grant):
            self.cluster.unreserve(uid)
            return uid
        written = plan_bind(held.grant, self.cluster.vendors, 1).annotations
        self.cluster.begin_bind(uid, written)
        if fails or uid not in self.pods:
            self.cluster.unreserve(uid)
            return uid
        pod = copy.deepcopy(self.pods[uid])
        pod["spec"]["nodeName"] = held.grant.node
        pod["metadata"]["annotations"].update(written)
        self._write(pod)
        self.cluster.reservations.written(uid)
        return uid

    @rule(uid=bound, event=st.sampled_from(["Running", "Succeeded", "Failed", "inits", "terminating"]))
    def change(self, uid: str, event: str) -> None:
        """The Pod goes on with its life."""
        if uid in self.pods and self.pods[uid]["status"]["phase"] not in {"Succeeded", "Failed"}:
            pod = copy.deepcopy(self.pods[uid])
            if event == "inits":
                names = [c["name"] for c in pod["spec"]["initContainers"]]
                exits = [{"name": name, "state": {"terminated": {"exitCode": 0}}} for name in names]
                pod["status"]["initContainerStatuses"] = exits
            elif event == "terminating":
                pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
            else:
                pod["status"]["phase"] = event
            self._write(pod)

    @rule(uid=st.one_of(consumes(bound), consumes(created), consumes(reserved)))
    def delete(self, uid: str) -> None:
        """The Pod's object goes."""
        if uid in self.pods:
            self.untold.append(("delete", self.pods.pop(uid)))

    @rule(times=st.integers(1, 2))
    def queue_event(self, times: int) -> None:
        """The watch delivers the oldest event, perhaps twice."""
        if self.untold:
            kind, pod = self.untold.pop(0)
            for _ in range(times):
                (self.cluster.put_pod if kind == "put" else self.cluster.drop_pod)(pod)

    @rule()
    def relist(self) -> None:
        """The watch broke, and a new list replaces what was not told."""
        self.untold.clear()
        self.cluster.replace_pods(copy.deepcopy(list(self.pods.values())), self.now)

    @rule(seconds=st.sampled_from([1.0, 30.0, 61.0]))
    def wait(self, seconds: float) -> None:
        """Time passes."""
        self.now += seconds
        self.cluster.expire(self.now)

    @rule(is_gone=st.booleans())
    def flap(self, is_gone: bool) -> None:
        """A Node goes, or comes back."""
        if is_gone:
            self.cluster.drop_node(NODES[1])
        else:
            self.cluster.put_node(copy.deepcopy(NODES[1]))

    @invariant()
    def no_device_is_promised_beyond_what_it_offers(self) -> None:
        """Memory, compute and replicas promised never pass the device's."""
        ledger = self.cluster.ledger
        assert (ledger.promised <= ledger.capacity).all()
        assert (ledger.promised >= 0).all()

    @invariant()
    def nothing_is_granted_twice_at_the_api(self) -> None:
        """Whatever was told: the bound Pods of the API server never hold more than there is."""
        told = a_cluster(*copy.deepcopy(NODES))
        told.replace_pods(copy.deepcopy(list(self.pods.values())), 0.0)
        assert (told.ledger.promised <= told.ledger.capacity).all()

    @invariant()
    def sums_equal_their_parts(self) -> None:
        """A recount finds no difference."""
        assert 0 == self.cluster.recount()

    @precondition(lambda self: not self.untold and not len(self.cluster.reservations))
    @invariant()
    def once_told_the_ledger_equals_the_api(self) -> None:
        """With nothing untold and nothing reserved, the history no longer shows."""
        fresh = a_cluster(*(node for node in NODES if self.cluster.ledger.node(node["metadata"]["name"])))
        fresh.replace_pods(copy.deepcopy(list(self.pods.values())), 0.0)
        assert [promises(fresh, name) for name in NAMES] == [promises(self.cluster, name) for name in NAMES]

    def _write(self, pod: Object) -> None:
        self.pods[pod["metadata"]["uid"]] = pod
        self.untold.append(("put", copy.deepcopy(pod)))


Cycle.TestCase.settings = profile(60, 40)
TestCycle = pytest.mark.property(Cycle.TestCase)


@pytest.mark.property
@pytest.mark.parametrize("seed", range(20))
def test_order_of_nodes_and_pods_does_not_matter(seed: int) -> None:
    """Any order of first sight, with Nodes coming and going in between, ends in the same sums."""
    draw = random.Random(seed)
    nodes = [a_node(f"n{n}", *(a_device(f"GPU-{n}-{i}") for i in range(4))) for n in range(30)]
    pods = [a_pod(f"p{i}", node=f"n{i % 30}", allocated=f"GPU-{i % 30}-{i % 4},NVIDIA,{i},1:;") for i in range(120)]
    events: list[tuple[Any, Object]] = [(Cluster.put_pod, pod) for pod in pods]
    events += [(lambda cluster, node: cluster.put_node(node), node) for node in nodes for _ in range(2)]
    events += [(Cluster.drop_node, node) for node in draw.sample(nodes, 15)]
    draw.shuffle(events)
    cluster, expected = a_cluster(), a_cluster(*nodes)
    for act, item in events:
        act(cluster, item)
    for node in draw.sample(nodes, 30):
        cluster.put_node(node)
    expected.replace_pods(pods, 0.0)

    assert 0 == cluster.recount()
    assert [promises(expected, f"n{n}") for n in range(30)] == [promises(cluster, f"n{n}") for n in range(30)]


@pytest.mark.property
@pytest.mark.parametrize("seed", range(30))
def test_screening_rules_out_only_what_cannot_fit(seed: int) -> None:
    """Choosing with the arrays equals choosing by trying every Node."""
    draw = random.Random(seed)
    nodes = [
        a_node(
            f"n{n}",
            *(
                a_device(f"GPU-{n}-{i}", count=draw.choice([1, 4]), core_percent=draw.choice([0, 100, 200]))
                for i in range(draw.choice([1, 2, 4]))
            ),
        )
        for n in range(12)
    ]
    cluster = a_cluster(*nodes)
    for i in range(40):
        n, d = draw.randrange(12), draw.randrange(4)
        share = f"GPU-{n}-{d},NVIDIA,{draw.choice([500, 9000])},{draw.choice([0, 50, 100])}:;"
        cluster.put_pod(a_pod(f"p{i}", node=f"n{n}", allocated=share))
    for _ in range(20):
        annotations = draw.choice([{}, {"nvidia.com/use-gpuuuid": "GPU-3-0, GPU-4-1"}, {"nvidia.com/use-gpuuuid": " "}])
        policy = draw.choice(["spread", "mutex", "binpack"])
        container = a_container(
            gpu=draw.choice([1, 2]), gpumem=draw.choice([100, 8000]), gpucores=draw.choice([0, 60, 100])
        )
        request = a_request(a_pod("ask", container, annotations=annotations), device=policy)
        names = [f"n{n}" for n in range(12)]

        everywhere = filter_nodes(request, names, cluster.view, explain_all=True)
        chosen = filter_nodes(request, names, cluster.view)

        assert everywhere.node == chosen.node
        assert (everywhere.node is None) == (set(everywhere.refusal.misfits) == set(names))
        assert {} == {name: why for name, why in everywhere.refusal.misfits.items() if name == chosen.node}


def test_mig_devices_are_not_ruled_out_by_their_number() -> None:
    """One device in MIG mode can serve a request for two; the arrays must not forbid it."""
    cluster = a_cluster()
    cluster.ledger.put_node(an_inventory("n1", a_mig_device()))
    request = a_request(a_pod("p", a_container(gpu=2, gpumem=5000)))

    assert "n1" == filter_nodes(request, ["n1"], cluster.view).node
