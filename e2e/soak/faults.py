"""
What goes wrong: faults drawn from the seed, several at the same time, each with an end.

The same seed gives the same faults in the same order. What they meet is not drawn. Neighbour: `cluster`, the victim.
"""

import asyncio
import random
import resource
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from hamicommon.model import Object
from minicluster.client import ApiError
from soak.cluster import DEVICE_CONFIG, HOSTS, NODES, SHARING, SoakCluster, part_of, seeded
from testbed.waiting import eventually

PAUSE_SECONDS = (0.3, 7.0)
"""Between the begins of two faults, or of two groups of faults."""
AT_ONCE = (1, 1, 1, 2, 3)
"""How many begin together."""
CHOSEN = 0.5
"""The part of the kinds that one round has. What all kinds together hide, a few of them show."""
SHORT_SECONDS, LONG_SECONDS = (1.0, 8.0), (10.0, 40.0)
"""How long a fault lasts; a long one outlasts a Lease and a request."""
DOWN_SECONDS = (0.0, 6.0)
"""How long a part stays away after it was ended."""
OURS = "^(hami-|kube)"
"""The user agents whose requests fail. The harness itself is left alone."""
WRITES = "POST|PUT|PATCH|DELETE"
PATHS = ("", "/pods", "/binding", "/status", "/nodes", "/leases", "/events")
SERVICES = tuple(f"{part}-{host}" for part in ("scheduler", "kube-scheduler") for host in HOSTS)
ON_NODES = tuple(f"{part}-{node.name}" for part in ("plugin", "kubelet", "monitor") for node in NODES)
PROCESSES = ("webhook", "apiserver", *SERVICES, *SERVICES, *ON_NODES)
"""What is killed and stopped: the schedulers twice as likely as a part of a Node."""
ASKED = tuple(name for name in PROCESSES if not name.startswith("kubelet"))
"""What is asked to end. A kubelet of the embedded cluster would end its containers, too."""
CARDS = {gpu.uuid: node.name for node in NODES for gpu in node.gpus}
"""The Node of each card, by UUID."""
LEFT_FILES = 3
"""How many files a process can still open that has too few descriptors."""
HEALED_SECONDS = 120.0


@dataclass(frozen=True)
class Drawn:
    """One fault of a round."""

    at_seconds: float
    """After the round began."""
    kind: str
    victim: str
    """A process, a Node or a card; empty for those that hit all."""
    seconds: float
    detail: Object


def draw_round(seed: int, number: int, round_seconds: float) -> list[Drawn]:
    """Return the faults of a round, in the order of their begins."""
    draw = seeded(seed, f"faults of round {number}")
    kinds = [kind for kind in KINDS if draw.random() < CHOSEN] or list(KINDS)
    weights = [KINDS[kind].weight for kind in kinds]
    found: list[Drawn] = []
    at_seconds = 0.0
    while at_seconds < round_seconds:
        for name in draw.choices(kinds, weights, k=draw.choice(AT_ONCE)):
            kind = KINDS[name]
            victim = draw.choice(kind.victims) if kind.victims else ""
            seconds = draw.uniform(*draw.choice((SHORT_SECONDS, LONG_SECONDS)))
            found.append(Drawn(at_seconds, name, victim, seconds, kind.detail(draw)))
        at_seconds += draw.uniform(*PAUSE_SECONDS)
    return found


class Faults:
    """Lets drawn faults happen to a cluster."""

    def __init__(self, cluster: SoakCluster) -> None:
        self.counts: Counter[str] = Counter()
        """How often each kind happened."""
        self.log: list[str] = []
        """One line for each."""
        self._cluster = cluster

    async def run(self, drawn: Sequence[Drawn], round_seconds: float) -> None:
        """Let the faults of a round happen, and end them all."""
        is_over = asyncio.Event()
        begin = asyncio.get_running_loop().time()
        async with asyncio.TaskGroup() as group:
            for before, fault in pairwise([None, *drawn]):
                assert fault is not None
                await asyncio.sleep(fault.at_seconds - (before.at_seconds if before else 0.0))
                self.counts[fault.kind] += 1
                seconds = asyncio.get_running_loop().time() - begin
                self.log.append(f"{seconds:6.1f} s  {fault.kind} {fault.victim} {fault.seconds:.1f} s {fault.detail}")
                group.create_task(self._happen(fault, is_over))
            await asyncio.sleep(max(0.0, begin + round_seconds - asyncio.get_running_loop().time()))
            is_over.set()
        await eventually(self._heal, "the API server takes back its faults", HEALED_SECONDS)

    async def _happen(self, fault: Drawn, is_over: asyncio.Event) -> None:
        with suppress(ApiError):  # the API server is away: another fault
            async with KINDS[fault.kind].happen(self._cluster, fault):
                with suppress(TimeoutError):
                    async with asyncio.timeout(fault.seconds):
                        await is_over.wait()

    async def _heal(self) -> bool:
        """Take back what a fault could not, because the API server was away."""
        api = self._cluster.api
        await api.request("DELETE", "/minicluster/faults")
        await api.request("DELETE", "/minicluster/watches/lag")
        for node in self._cluster.nodes:
            await api.patch(f"/api/v1/nodes/{node.name}", {"spec": {"unschedulable": None}})
        return True


# --- the kinds -------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def _ended(cluster: SoakCluster, fault: Drawn) -> AsyncIterator[None]:
    cluster.held.add(fault.victim)
    cluster.end(fault.victim, signal.Signals[fault.detail["signal"]])
    try:
        await asyncio.sleep(fault.detail["down_seconds"])
    finally:
        cluster.held.discard(fault.victim)
    yield


@asynccontextmanager
async def _upgraded(cluster: SoakCluster, fault: Drawn) -> AsyncIterator[None]:
    """Ask all processes of a part to end at once, as an upgrade does at worst. The keeper starts them again."""
    for name in cluster.processes:
        if part_of(name) == fault.victim:
            cluster.end(name, signal.SIGTERM)
    yield


@asynccontextmanager
async def _stopped(cluster: SoakCluster, fault: Drawn) -> AsyncIterator[None]:
    popen = cluster.processes[fault.victim].popen
    assert popen is not None
    popen.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        popen.send_signal(signal.SIGCONT)


@asynccontextmanager
async def _both_stopped(cluster: SoakCluster, fault: Drawn) -> AsyncIterator[None]:
    """Stop both processes of a replica, as a machine that stands still does."""
    found = [cluster.processes[f"{part}-{fault.victim}"].popen for part in ("scheduler", "kube-scheduler")]
    for popen in found:
        if popen is not None:
            popen.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for popen in found:
            if popen is not None:
                popen.send_signal(signal.SIGCONT)


@asynccontextmanager
async def _failing_requests(cluster: SoakCluster, fault: Drawn) -> AsyncIterator[None]:
    await cluster.api.create("/minicluster/faults", {"agent": OURS, **fault.detail})
    yield


@asynccontextmanager
async def _late_watches(cluster: SoakCluster, fault: Drawn) -> AsyncIterator[None]:
    await cluster.api.create("/minicluster/watches/lag", fault.detail)
    try:
        yield
    finally:
        await cluster.api.create("/minicluster/watches/lag", {**fault.detail, "seconds": 0.0})


@asynccontextmanager
async def _dropped_watches(cluster: SoakCluster, fault: Drawn) -> AsyncIterator[None]:
    if fault.detail["how"] == "gone":
        await cluster.api.request("POST", "/minicluster/compact")
    await cluster.api.create("/minicluster/watches/drop", fault.detail)
    yield


@asynccontextmanager
async def _lost_card(cluster: SoakCluster, fault: Drawn) -> AsyncIterator[None]:
    driver, uuid = cluster.driver(CARDS[fault.victim]), fault.victim
    driver.lose(uuid)
    try:
        yield
    finally:
        driver.bring_back(uuid)


@asynccontextmanager
async def _hung_driver(cluster: SoakCluster, fault: Drawn) -> AsyncIterator[None]:
    driver = cluster.driver(fault.victim)
    driver.hang()
    try:
        yield
    finally:
        driver.recover()


@asynccontextmanager
async def _other_config(cluster: SoakCluster, fault: Drawn) -> AsyncIterator[None]:
    cluster.configure(fault.detail["text"])
    try:
        yield
    finally:
        cluster.configure(DEVICE_CONFIG)


@asynccontextmanager
async def _replaced_plugin(cluster: SoakCluster, fault: Drawn) -> AsyncIterator[None]:
    """Kill a Node's plugin; the next one finds owners in another way."""
    process = cluster.processes[f"plugin-{fault.victim}"]
    process.argv = (*process.argv, f"--allocation={fault.detail['allocation']}")
    cluster.end(process.name, signal.SIGKILL)
    yield


@asynccontextmanager
async def _cordoned(cluster: SoakCluster, fault: Drawn) -> AsyncIterator[None]:
    path = f"/api/v1/nodes/{fault.victim}"
    await cluster.api.patch(path, {"spec": {"unschedulable": True}})
    try:
        yield
    finally:
        await cluster.api.patch(path, {"spec": {"unschedulable": None}})


@asynccontextmanager
async def _few_descriptors(cluster: SoakCluster, fault: Drawn) -> AsyncIterator[None]:
    """Let a process open next to no file."""
    process = cluster.processes[fault.victim]
    try:
        pid = process.pid
        usual = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        few = sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir()) + LEFT_FILES
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (few, usual[1]))
    except OSError:
        yield  # it has ended
        return
    try:
        yield
    finally:
        if process.is_running and process.pid == pid:
            with suppress(OSError):  # it ends just now
                resource.prlimit(pid, resource.RLIMIT_NOFILE, usual)


def _nothing(_: random.Random) -> Object:
    return {}


def _killed(draw: random.Random) -> Object:
    return {"signal": "SIGKILL", "down_seconds": draw.uniform(*DOWN_SECONDS)}


def _terminated(draw: random.Random) -> Object:
    return {"signal": "SIGTERM", "down_seconds": draw.uniform(*DOWN_SECONDS)}


def _some(draw: random.Random, **fault: Any) -> Object:
    return {"path": draw.choice(PATHS), "times": draw.choice((1, 3, 10, 40)), **fault}


def _refused(draw: random.Random) -> Object:
    status, reason = draw.choice(
        ((429, "TooManyRequests"), (500, "InternalError"), (503, "ServiceUnavailable"), (504, "Timeout"))
    )
    return _some(draw, status=status, reason=reason)


def _conflicting(draw: random.Random) -> Object:
    return _some(draw, method="PUT|PATCH", status=409, reason="Conflict")


def _late(draw: random.Random) -> Object:
    return _some(draw, method=WRITES, delay_seconds=draw.choice((1.0, 5.0, 12.0, 25.0)))


def _unanswered(draw: random.Random) -> Object:
    return _some(draw, method=WRITES, disconnect="after", delay_seconds=draw.choice((0.0, 0.0, 10.0)))


def _lost(draw: random.Random) -> Object:
    return _some(draw, disconnect="before")


def _lag(draw: random.Random) -> Object:
    return {"path": draw.choice(("/pods", "/nodes", "/leases", "")), "seconds": draw.choice((0.5, 2.0, 6.0))}


def _drop(draw: random.Random) -> Object:
    return {"path": draw.choice(("/pods", "/nodes", "/leases", "")), "how": draw.choice(("close", "abort", "gone"))}


def _config(draw: random.Random) -> Object:
    good = DEVICE_CONFIG.replace("deviceSplitCount: 10", f"deviceSplitCount: {draw.choice((8, 12))}")
    return {"text": draw.choice((good, good, "nvidia: [", "nvidia: {deviceSplitCount: many}"))}


def _allocation(draw: random.Random) -> Object:
    return {"allocation": draw.choice(("identity", "lock"))}


@dataclass(frozen=True)
class Kind:
    """One kind of fault."""

    weight: int
    """How likely it is beside the others."""
    happen: Callable[[SoakCluster, Drawn], AbstractAsyncContextManager[None]]
    """It lasts as long as its block."""
    victims: Sequence[str] = ()
    detail: Callable[[random.Random], Object] = _nothing


NAMES = tuple(node.name for node in NODES)
KINDS: dict[str, Kind] = {
    "SIGKILL": Kind(8, _ended, PROCESSES, _killed),
    "SIGTERM": Kind(4, _ended, ASKED, _terminated),
    "SIGSTOP": Kind(6, _stopped, PROCESSES),
    "SIGSTOP of a replica": Kind(3, _both_stopped, HOSTS),
    "upgrade": Kind(2, _upgraded, ("plugin", "monitor", "scheduler", "kube-scheduler")),
    "requests refused": Kind(3, _failing_requests, (), _refused),
    "requests in conflict": Kind(2, _failing_requests, (), _conflicting),
    "requests late": Kind(4, _failing_requests, (), _late),
    "requests carried out, not answered": Kind(4, _failing_requests, (), _unanswered),
    "requests lost": Kind(2, _failing_requests, (), _lost),
    "watches late": Kind(4, _late_watches, (), _lag),
    "watches dropped": Kind(2, _dropped_watches, (), _drop),
    "card lost": Kind(2, _lost_card, tuple(CARDS)),
    "driver hung": Kind(1, _hung_driver, NAMES),
    "device config changed": Kind(2, _other_config, (), _config),
    "plugin replaced": Kind(2, _replaced_plugin, SHARING, _allocation),
    "Node cordoned": Kind(2, _cordoned, NAMES),
    "too few descriptors": Kind(2, _few_descriptors, ASKED),
}
"""By name."""
