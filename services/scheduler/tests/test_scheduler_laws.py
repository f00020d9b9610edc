"""
Laws of the whole scheduler under any history: what a solver by brute force says, and nothing granted twice.

The history is everything an API server, kube-scheduler, operators, users and clocks can do. Invariants I1 to I5 are
those of `e2e/harness/invariants.py`, on the objects of the API server and on the ledger.
"""

import asyncio
import copy
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from hami_scheduler.bind.fences import find_outcomes
from hami_scheduler.bind.locking import NodeLocks
from hami_scheduler.errors import BindError
from hami_scheduler.search.cache import Memo
from hami_scheduler.search.filter import filter_nodes
from hami_scheduler.serve.background.leader import Term
from hami_scheduler.serve.background.takeover import Takeover
from hami_scheduler.serve.bind import bind_pod
from hami_scheduler.serve.context import Clock, Context, Settings
from hami_scheduler.serve.filter import FilterAnswer, filter_pod
from hami_scheduler.state.cluster import Cluster
from hami_scheduler.state.reservation import RESERVATION_SECONDS, Stage
from hamicommon.model import Object
from hamicommon.wire import keys

from .support.builders import NOW, a_container, a_device, a_node, a_pod, a_request, promise_of, vendors
from .support.hypothesis_profiles import profile
from .support.reference import Ask, Card, Held, fits, fullness, peak, placements, takes, usage
from .support.scripted_api import ANSWERS, ScriptedApi

HARDWARE = {
    "n1": {"GPU-a": (3, 8000, 100), "GPU-b": (2, 8000, 100)},
    "n2": {"GPU-c": (2, 4000, 100)},
    "n3": {"GPU-d": (1, 6000, 100), "GPU-e": (4, 3000, 100)},
}
NAMES = sorted(HARDWARE)
UUIDS = [uuid for cards in HARDWARE.values() for uuid in cards]
PROBES = ((Ask("app", 1, 2000, 30),), (Ask("app", 2, 500, 0),), (Ask("app", 1, 4000, 100),))
ALLOCATED = "hami.io/vgpu-devices-allocated"
NAMESPACES = ("default", "team")
CALLS_A_STEP = 8
"""Requests one step may cause: asking reads once, and a bind in doubt reads twice and writes twice."""
SCORE_ERROR = 1e-4
"""The real scores are 32-bit floats, as HAMi's are."""

containers = st.tuples(
    st.sampled_from(["init", "sidecar", "app"]),
    st.sampled_from([1, 1, 2]),
    st.sampled_from([500, 2000, 4000]),
    st.sampled_from([0, 30, 100]),
)
index = st.integers(0, 7)


class Told(Cluster):
    """A cluster that keeps beside its ledger what it was told, for the solver."""

    def __init__(self) -> None:
        """Know nothing."""
        super().__init__(vendors(), lambda _kind, _name, _problem: None)
        self.pods: dict[str, Held] = {}
        self.read: dict[str, Held] = {}
        """What was read beside the watch. It is reserved until the watch reports it."""

    def put_read(self, pod: Any) -> None:
        """Note a bound Pod as it was when it was read."""
        super().put_read(pod)
        uid = pod["metadata"]["uid"]
        if pod["spec"].get("nodeName"):
            self.read[uid] = held_by(pod)
        if uid in self.reservations:
            self.pods.pop(uid, None)

    def put_pod(self, pod: Any, now: float | None = None) -> None:
        """Note a bound Pod for as long as it has not ended."""
        super().put_pod(pod, now)
        uid = pod["metadata"]["uid"]
        if pod["status"]["phase"] in {"Succeeded", "Failed"}:
            self.pods.pop(uid, None)
        elif pod["spec"].get("nodeName"):
            self.pods[uid] = held_by(pod)

    def drop_pod(self, pod: Any, now: float | None = None) -> None:
        """Forget it."""
        super().drop_pod(pod, now)
        self.pods.pop(pod["metadata"]["uid"], None)

    def replace_pods(self, pods: list[Object], now: float) -> None:
        """Forget all but these."""
        self.pods.clear()
        super().replace_pods(pods, now)


class Leading:
    """A replica that leads."""

    TERM = Term("here")

    def blocked(self) -> str | None:
        """Nothing stands in the way."""
        return None

    def term(self) -> Term:
        """The same all the time."""
        return self.TERM


class History(RuleBasedStateMachine):
    """One cluster from the first Pod on; each rule is something that somebody does."""

    def __init__(self) -> None:
        """Begin with every Node known and no Pod."""
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.api = ScriptedApi()
        self.steady, self.wall = 0.0, NOW
        self.closed: dict[str, set[str]] = {"unhealthy": set(), "cordoned": set()}
        self.created = 0
        self.asked: dict[str, Object] = {}
        """Every Pod ever created, as kube-scheduler first saw it."""
        self.answers: dict[str, str] = {}
        self.binds: set[asyncio.Task[None]] = set()
        for name in NAMES:
            self.put_node(name)
        self.start()

    def teardown(self) -> None:
        """Leave nothing behind."""
        self.stop()
        self.loop.close()

    # What happens

    @rule(names=index, namespace=st.sampled_from(NAMESPACES), made=st.lists(containers, min_size=1, max_size=3))
    def create(self, names: int, namespace: str, made: list[tuple[str, int, int, int]]) -> None:
        """A user creates a Pod, perhaps under the name of one that is gone."""
        name = f"p{names}"
        if f"{namespace}/{name}" in self.api.objects["pods"]:
            return
        self.created += 1
        parts = [
            (kind, a_container(f"c{i}", sidecar=kind == "sidecar", gpu=count, gpumem=memory, gpucores=cores))
            for i, (kind, count, memory, cores) in enumerate(made)
        ]
        apps = [part for kind, part in parts if kind == "app"] or [a_container("idle")]
        inits = [part for kind, part in parts if kind != "app"]
        pod = a_pod(name, *apps, inits=inits, namespace=namespace, uid=f"u{self.created}")
        self.api.put("pods", pod)
        self.asked[f"u{self.created}"] = copy.deepcopy(pod)

    @precondition(lambda self: self.asked)
    @rule(which=index, one_is_left_out=st.booleans())
    def ask(self, which: int, one_is_left_out: bool) -> None:
        """kube-scheduler asks about a Pod, perhaps late, and perhaps not about every Node."""
        uid = self.some(self.asked, which)
        names = NAMES[1:] if one_is_left_out else NAMES
        answer: FilterAnswer = self.loop.run_until_complete(filter_pod(self.context, self.asked[uid], names, None))
        if answer.node_names:
            (self.answers[uid],) = answer.node_names
        if not answer.error:
            self.judge(uid, names, answer)

    @precondition(lambda self: self.asked)
    @rule(which=index, anywhere=index)
    def bind(self, which: int, anywhere: int) -> None:
        """kube-scheduler binds, once or again, in time or late; after a restart it may be on a choice now unknown."""
        uid = self.some(self.asked, which)
        metadata = self.asked[uid]["metadata"]
        node = self.answers.get(uid) or NAMES[anywhere % len(NAMES)]
        self.binds.add(
            self.loop.create_task(bind_pod(self.context, uid, metadata["namespace"], metadata["name"], node))
        )
        self.pump()

    @precondition(lambda self: self.asked)
    @rule(which=index, one_is_left_out=st.booleans(), answers=st.lists(st.sampled_from(ANSWERS), max_size=2))
    def place(self, which: int, one_is_left_out: bool, answers: list[str]) -> None:
        """kube-scheduler asks and binds in one go, and the API server does what it does."""
        self.ask(which, one_is_left_out)
        self.bind(which, which)
        for answer in answers:
            if self.api.writing:
                self.answer_bind(0, answer)

    @precondition(lambda self: self.api.writing)
    @rule(which=index, answer=st.sampled_from(ANSWERS))
    def answer_bind(self, which: int, answer: str) -> None:
        """The API server gets to a Binding."""
        writing = self.api.writing.pop(which % len(self.api.writing))
        writing.answer.set_result(answer)
        self.pump()

    @precondition(lambda self: self.api.on_their_way)
    @rule(which=index, is_made=st.booleans())
    def arrive(self, which: int, is_made: bool) -> None:
        """A Binding that nobody waits for any more is made after all, or is not."""
        late = self.api.on_their_way.pop(which % len(self.api.on_their_way))
        if is_made:
            self.api.apply(*late)

    @rule(which=index, event=st.sampled_from(["Running", "Succeeded", "Failed", "inits", "terminating"]))
    def change(self, which: int, event: str) -> None:
        """A bound Pod goes on with its life."""
        alive = [
            pod
            for pod in self.api.objects["pods"].values()
            if pod["spec"].get("nodeName") and pod["status"]["phase"] not in {"Succeeded", "Failed"}
        ]
        if not alive:
            return
        pod = copy.deepcopy(alive[which % len(alive)])
        if event == "inits":
            names = [c["name"] for c in pod["spec"]["initContainers"]]
            pod["status"]["initContainerStatuses"] = [
                {"name": name, "state": {"terminated": {"exitCode": 0}}} for name in names
            ]
        elif event == "terminating":
            pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        else:
            pod["status"]["phase"] = event
        self.api.put("pods", pod)

    @precondition(lambda self: self.api.objects["pods"])
    @rule(which=index)
    def delete(self, which: int) -> None:
        """A Pod's object goes, whatever is going on with it."""
        self.api.remove("pods", self.api.objects["pods"][self.some(self.api.objects["pods"], which)])

    @rule(uuid=st.sampled_from(UUIDS), share=st.sampled_from([(500, 0), (2000, 30), (3000, 100)]))
    def bind_elsewhere(self, uuid: str, share: tuple[int, int]) -> None:
        """Another scheduler that keeps the same books puts a Pod beside ours."""
        node = next(name for name in NAMES if uuid in HARDWARE[name])
        taken = usage(self.known(), node).get(uuid, (0, 0, 0))
        if not takes(Card(uuid, HARDWARE[node][uuid]), taken, Ask("app", 1, *share)):
            return
        self.created += 1
        container = a_container(gpu=1, gpumem=share[0], gpucores=share[1])
        allocated = f"{uuid},NVIDIA,{share[0]},{share[1]}:;"
        name = f"foreign{self.created}"
        self.api.put("pods", a_pod(name, container, uid=f"f{self.created}", node=node, allocated=allocated))
        self.deliver(len(self.api.untold) - 1)

    @precondition(lambda self: self.api.untold)
    @rule(which=index, times=st.integers(1, 2))
    def queue_event(self, which: int, times: int) -> None:
        """A watch delivers an event, perhaps twice, perhaps before an earlier one of another object."""
        places = list(self.api.deliverable())
        self.deliver(places[which % len(places)], times)

    @rule(kind=st.sampled_from(["pods", "nodes", "quotas"]))
    def relist(self, kind: str) -> None:
        """A watch broke or its version is gone, and a list takes its place."""
        listed = self.api.listed(kind)
        if kind == "pods":
            self.cluster.replace_pods(listed, self.steady)
        elif kind == "nodes":
            self.cluster.replace_nodes(listed)
            self.told_nodes = {node["metadata"]["name"]: node for node in listed}
        else:
            self.cluster.quotas.replace(listed)
            self.told_limits = {quota["metadata"]["namespace"]: limit_of(quota) for quota in listed}

    @rule(is_made=st.booleans())
    def restart(self, is_made: bool) -> None:
        """The scheduler dies and another one takes over; requests of the first arrive before that, or ever after."""
        self.api.on_their_way += [(writing.plan, writing.version) for writing in self.api.writing]
        self.api.is_away = False
        self.stop()
        for late in self.api.on_their_way if is_made else ():
            self.api.apply(*late)
        self.start()

    @rule(name=st.sampled_from(NAMES))
    def lose_or_find_node(self, name: str) -> None:
        """A Node's object goes, or comes back."""
        if name in self.api.objects["nodes"]:
            self.api.remove("nodes", self.api.objects["nodes"][name])
        else:
            self.put_node(name)

    @rule(uuid=st.sampled_from(UUIDS), how=st.sampled_from(["unhealthy", "cordoned"]))
    def open_or_close_device(self, uuid: str, how: str) -> None:
        """A device falls ill, recovers, is cordoned or uncordoned."""
        self.closed[how] ^= {uuid}
        name = next(name for name in NAMES if uuid in HARDWARE[name])
        if name in self.api.objects["nodes"]:
            self.put_node(name)

    @rule(namespace=st.sampled_from(NAMESPACES), limit=st.sampled_from([None, 0, 3000, 9000]))
    def limit(self, namespace: str, limit: int | None) -> None:
        """An operator sets, changes or removes a quota."""
        quota = {"metadata": {"namespace": namespace, "name": "q"}}
        if limit is None:
            self.api.remove("quotas", quota)
        else:
            self.api.put("quotas", {**quota, "spec": {"hard": {"limits.nvidia.com/gpumem": str(limit)}}})

    @rule(seconds=st.sampled_from([1.0, 30.0, 61.0]))
    def wait(self, seconds: float) -> None:
        """Time passes, and settles nothing."""
        self.steady += seconds
        self.wall += timedelta(seconds=seconds)
        self.cluster.expire(self.steady)

    @rule(hours=st.sampled_from([-25, 25]))
    def set_clock(self, hours: int) -> None:
        """Somebody sets the wall clock."""
        self.wall += timedelta(hours=hours)

    @rule()
    def come_or_go(self) -> None:
        """The API server does not answer reads for a while."""
        self.api.is_away = not self.api.is_away

    @rule(is_read_only=st.booleans())
    def settle(self, is_read_only: bool) -> None:
        """The scheduler finds out about its unanswered Bindings, if it gets an answer."""
        self.api.is_read_only = is_read_only
        for _ in self.cluster.reservations.in_doubt()[CALLS_A_STEP // 2 :]:
            return
        self.loop.run_until_complete(find_outcomes(self.cluster, self.context.api, self.context.marks))

    @rule()
    def wake(self) -> None:
        """The scheduler looks for Pods that nobody asked about."""
        self.loop.run_until_complete(self.context.wake_one())

    # What must hold

    @invariant()
    def what_is_promised_is_what_is_held_or_reserved(self) -> None:
        """I3: every number of the ledger is the solver's, and a recount finds no drift."""
        known = self.known()
        for name in self.told_nodes:
            taken = usage(known, name)
            for uuid in HARDWARE[name]:
                found = promise_of(self.cluster.ledger, name, uuid)
                assert taken.get(uuid, (0, 0, 0)) == (found.replicas, found.memory_mib, found.core_percent)
        assert 0 == self.cluster.recount()

    @invariant()
    def nothing_is_granted_twice(self) -> None:
        """I1 and I2: the bound Pods of the API server never hold more than there is, and who wants all has it alone."""
        bound = [
            held_by(pod)
            for pod in self.api.objects["pods"].values()
            if pod["spec"].get("nodeName") and pod["status"]["phase"] not in {"Succeeded", "Failed"}
        ]
        for name, cards in HARDWARE.items():
            for uuid, taken in usage(bound, name).items():
                assert all(part <= whole for part, whole in zip(taken, cards[uuid], strict=True)), (name, uuid, taken)
                here = [peak(held)[uuid] for held in bound if held.node == name and uuid in peak(held)]
                assert len(here) == 1 or 100 not in [core_percent for _, _, core_percent in here]

    @invariant()
    def no_promise_outlives_its_time(self) -> None:
        """I4 and I5: what is reserved is about to expire, being written, or in doubt; all of it for a reason."""
        underway = {writing.plan.uid for writing in self.api.writing}
        for held in self.cluster.reservations.all():
            if held.stage is Stage.CHOSEN:
                assert held.expires_at is not None
                assert self.steady < held.expires_at <= self.steady + RESERVATION_SECONDS
            elif held.stage is Stage.BINDING:
                assert held.grant.uid in underway

    @invariant()
    def the_solver_agrees(self) -> None:
        """Same feasibility on every Node, and the choice has the best score."""
        for asks in PROBES:
            pod = a_pod(
                "probe", *(a_container(gpu=a.count, gpumem=a.memory_mib, gpucores=a.core_percent) for a in asks)
            )
            request, snapshot = a_request(pod), self.cluster.view
            result = filter_nodes(request, NAMES, snapshot, explain_all=True)
            known = self.known()
            assert self.solved(asks, "default", NAMES, known) == [n for n in NAMES if n not in result.refusal.misfits]
            if result.node is not None:
                self.check_best(result.node, [n for n in NAMES if n not in result.refusal.misfits], known)
            else:
                again = filter_nodes(request, NAMES, snapshot, search=self.memo.search(request, snapshot))
                assert result.refusal.failed_nodes == again.refusal.failed_nodes

    @invariant()
    def requests_are_few(self) -> None:
        """No step makes the scheduler ask the API server again and again."""
        assert self.api.calls <= CALLS_A_STEP
        self.api.calls = 0

    # How

    def judge(self, uid: str, names: list[str], answer: FilterAnswer) -> None:
        """Hold a decision against the solver's, on what was known without the Pod itself."""
        asks, known = asks_of(self.asked[uid]), self.known(without=uid)
        namespace = self.asked[uid]["metadata"]["namespace"]
        possible = self.solved(asks, namespace, names, known)
        if not answer.node_names:
            assert not possible
            return
        (node,) = answer.node_names
        assert node in possible
        held = self.cluster.reservations.get(uid)
        assert held is not None
        chosen = tuple(tuple(share.uuid for share in shares) for shares in held.grant.shares["NVIDIA"] if shares)
        allowed = placements(self.cards(node), usage(known, node), asks)
        assert tuple(map(sorted, chosen)) in [tuple(map(sorted, one)) for one in allowed]
        self.check_best(node, possible, known)

    def solved(self, asks: tuple[Ask, ...], namespace: str, names: list[str], known: list[Held]) -> list[str]:
        """Return the Nodes of *names* where the solver finds room."""
        return [
            name
            for name in names
            if name in self.told_nodes and fits(self.cards(name), known, name, namespace, asks, self.told_limits)
        ]

    def check_best(self, node: str, possible: list[str], known: list[Held]) -> None:
        """Check that no other Node of *possible* is fuller."""
        scores = {name: fullness(self.cards(name), usage(known, name)) for name in possible}
        assert float(scores[node]) >= float(max(scores.values())) - SCORE_ERROR

    def cards(self, name: str) -> list[Card]:
        """Return the devices of a Node as delivered to the scheduler."""
        closed = self.told_nodes[name]["test"]
        return [Card(uuid, offers, uuid not in closed) for uuid, offers in HARDWARE[name].items()]

    def known(self, without: str = "") -> list[Held]:
        """Return what the scheduler knows to be held: by delivered Pods and by its reservations."""
        found = [
            held for uid, held in self.cluster.pods.items() if uid != without and uid not in self.cluster.reservations
        ]
        for reserved in self.cluster.reservations.all():
            grant = reserved.grant
            kinds = [kind for kind, _ in containers_of(self.asked[grant.uid.split(" ")[0]])]
            shares = [tuple((s.uuid, s.memory_mib, s.core_percent) for s in c) for c in grant.shares["NVIDIA"]]
            read = self.cluster.read.get(grant.uid) if reserved.stage is Stage.WRITTEN else None
            are_done = read is not None and read.inits_are_done
            if grant.uid != without:
                containers = tuple(zip(kinds, shares, strict=True))
                found.append(Held(grant.node, grant.namespace, containers, inits_are_done=are_done))
        return found

    def deliver(self, place: int, times: int = 1) -> None:
        """Tell the scheduler one event."""
        kind, verb, item = self.api.untold.pop(place)
        for _ in range(times):
            if kind == "pods":
                (self.cluster.put_pod if verb == "put" else self.cluster.drop_pod)(copy.deepcopy(item))
            elif kind == "quotas":
                (self.cluster.quotas.put if verb == "put" else self.cluster.quotas.drop)(item)
                self.told_limits.pop(item["metadata"]["namespace"], None)
                if verb == "put":
                    self.told_limits[item["metadata"]["namespace"]] = limit_of(item)
            elif verb == "put":
                self.cluster.put_node(item)
                self.told_nodes[item["metadata"]["name"]] = item
            else:
                self.cluster.drop_node(item)
                self.told_nodes.pop(item["metadata"]["name"], None)

    def put_node(self, name: str) -> None:
        """Write a Node as its device plugin does now."""
        devices = [
            a_device(
                uuid,
                count=offers[0],
                memory_mib=offers[1],
                healthy=uuid not in self.closed["unhealthy"],
                finds_owners=True,
            )
            for uuid, offers in HARDWARE[name].items()
        ]
        node = a_node(name, *devices)
        cordoned = self.closed["cordoned"] & set(HARDWARE[name])
        node["metadata"]["annotations"][keys.NODE_CORDON] = ",".join(sorted(cordoned))
        self.api.put("nodes", {**node, "test": self.closed["unhealthy"] | cordoned})

    def start(self) -> None:
        """Begin a scheduler's life."""
        self.cluster, self.memo = Told(), Memo()
        api: Any = self.api
        locks = NodeLocks(api, lambda: self.wall, timedelta(minutes=5))
        clock = Clock(lambda: self.wall, lambda: self.steady)
        self.context = Context(self.cluster, api, locks, clock, Settings(), lambda: None)
        for kind in ("nodes", "quotas", "pods"):
            self.relist(kind)
        self.api.is_read_only = False
        readiness: Any = Leading()
        takeover = Takeover(api, readiness, lambda: self.cluster, self.context.marks)
        self.loop.run_until_complete(takeover._take_over(Leading.TERM))
        assert takeover.blocked() is None
        assert not takeover.unfenced_count
        self.api.calls = 0

    def stop(self) -> None:
        """End it, with whatever it was doing."""
        for task in self.binds:
            task.cancel()

        async def ended() -> None:
            await asyncio.gather(*self.binds, return_exceptions=True)

        self.loop.run_until_complete(ended())
        self.binds.clear()
        self.api.writing.clear()

    def pump(self) -> None:
        """Let binds go on until all of them wait for the API server or have ended."""
        for _ in range(10):
            self.loop.run_until_complete(asyncio.sleep(0))
        for task in [task for task in self.binds if task.done()]:
            self.binds.remove(task)
            assert isinstance(task.exception(), BindError | None)

    @staticmethod
    def some(found: dict[str, Any], which: int) -> str:
        """Return one key, of the latest."""
        return list(found)[-1 - which % len(found)]


def containers_of(pod: Object) -> list[tuple[str, Object]]:
    """Return the containers of *pod* in order, each with its kind."""
    spec = pod["spec"]
    inits = [("sidecar" if c.get("restartPolicy") == "Always" else "init", c) for c in spec["initContainers"]]
    return inits + [("app", c) for c in spec["containers"]]


def asks_of(pod: Object) -> tuple[Ask, ...]:
    """Return what each container of *pod* that asks for devices asks."""
    found = []
    for kind, container in containers_of(pod):
        limits = container["resources"]["limits"]
        if limits:
            amounts = (int(limits[f"nvidia.com/{key}"]) for key in ("gpu", "gpumem", "gpucores"))
            found.append(Ask(kind, *amounts))
    return tuple(found)


def held_by(pod: Object) -> Held:
    """Return what the annotation of *pod* says it holds."""
    kinds = [kind for kind, _ in containers_of(pod)]
    texts = pod["metadata"]["annotations"].get(ALLOCATED, "").split(";")
    shares = []
    for text in texts[: len(kinds)]:
        fields = [share.split(",") for share in text.split(":") if share]
        shares.append(tuple((uuid, int(memory_mib), int(cores)) for uuid, _, memory_mib, cores in fields))
    statuses = (pod["status"].get("initContainerStatuses")) or ()
    metadata = pod["metadata"]
    return Held(
        pod["spec"]["nodeName"],
        metadata["namespace"],
        tuple(zip(kinds, shares, strict=False)),
        inits_are_done=bool(statuses),
    )


def limit_of(quota: Object) -> int:
    """Return the MiB that *quota* allows."""
    return int(quota["spec"]["hard"]["limits.nvidia.com/gpumem"])


History.TestCase.settings = profile(40, 50)
TestLife = pytest.mark.property(History.TestCase)
