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
from harness.clusters.mixed import DEVICE_CONFIG
from harness.clusters.release import HAMI
from minicluster.client import ApiError
from soak.cluster import REPLICATED, Site, SoakCluster, seeded, send
from soak.embedded import SHARING, EmbeddedSoakCluster
from soak.real import RealSoakCluster
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


def kinds_of(site: Site) -> list[str]:
    """Return the names of the kinds of faults that such a cluster can have."""
    return [name for name, kind in KINDS.items() if kind.only in {"", "real" if site.is_real else "embedded"}]


def draw_round(site: Site, seed: int, number: int, round_seconds: float) -> list[Drawn]:
    """Return the faults of a round, in the order of their begins."""
    draw = seeded(seed, f"faults of round {number}")
    possible = kinds_of(site)
    kinds = [kind for kind in possible if draw.random() < CHOSEN] or possible
    weights = [KINDS[kind].weight for kind in kinds]
    found: list[Drawn] = []
    at_seconds = 0.0
    while at_seconds < round_seconds:
        for name in draw.choices(kinds, weights, k=draw.choice(AT_ONCE)):
            kind = KINDS[name]
            victims = kind.victims(site)
            victim = draw.choice(victims) if victims else ""
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
        api, site = self._cluster.api, self._cluster.site
        if not site.is_real:
            await api.request("DELETE", "/minicluster/faults")
            await api.request("DELETE", "/minicluster/watches/lag")
        for node in site.names:
            await api.patch(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": None}})
        return True


# --- the kinds -------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def _ended(cluster: SoakCluster, fault: Drawn) -> AsyncIterator[None]:
    cluster.held.add(fault.victim)
    await cluster.end(fault.victim, signal.Signals[fault.detail["signal"]])
    try:
        await asyncio.sleep(fault.detail["down_seconds"])
    finally:
        cluster.held.discard(fault.victim)
    yield


@asynccontextmanager
async def _upgraded(cluster: SoakCluster, fault: Drawn) -> AsyncIterator[None]:
    await cluster.upgrade(fault.victim)
    yield


@asynccontextmanager
async def _stopped(cluster: SoakCluster, fault: Drawn) -> AsyncIterator[None]:
    """Stop a part, or both parts of a replica, as a machine that stands still does."""
    parts = [f"{part}-{fault.victim}" for part in REPLICATED] if fault.victim in cluster.site.hosts else [fault.victim]
    pids = [pid for part in parts for pid in await cluster.pids(part)]
    send(pids, signal.SIGSTOP)
    try:
        yield
    finally:
        send(pids, signal.SIGCONT)


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
    driver, uuid = cluster.driver(cluster.site.cards[fault.victim]), fault.victim
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
    assert isinstance(cluster, EmbeddedSoakCluster)
    cluster.configure(fault.detail["text"])
    try:
        yield
    finally:
        cluster.configure(DEVICE_CONFIG)


@asynccontextmanager
async def _replaced_plugin(cluster: SoakCluster, fault: Drawn) -> AsyncIterator[None]:
    """Kill a Node's plugin; the next one finds owners in another way."""
    assert isinstance(cluster, EmbeddedSoakCluster)
    process = cluster.processes[f"plugin-{fault.victim}"]
    process.argv = (*process.argv, f"--allocation={fault.detail['allocation']}")
    await cluster.end(process.name, signal.SIGKILL)
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
    changed: list[tuple[int, tuple[int, int]]] = []
    for pid in await cluster.pids(fault.victim):
        with suppress(OSError):  # it has ended
            usual = resource.prlimit(pid, resource.RLIMIT_NOFILE)
            few = sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir()) + LEFT_FILES
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (few, usual[1]))
            changed.append((pid, usual))
    try:
        yield
    finally:
        for pid, usual in changed:
            with suppress(OSError):
                resource.prlimit(pid, resource.RLIMIT_NOFILE, usual)


@asynccontextmanager
async def _deleted(cluster: SoakCluster, fault: Drawn) -> AsyncIterator[None]:
    """Delete the Pod of a service, by force or not; its controller makes another."""
    assert isinstance(cluster, RealSoakCluster)
    for name in await cluster.pods_of(fault.victim):
        await cluster.api.delete_if_exists(f"/api/v1/namespaces/{HAMI}/pods/{name}", fault.detail["grace_seconds"])
    yield


@asynccontextmanager
async def _rebooted(cluster: SoakCluster, fault: Drawn) -> AsyncIterator[None]:
    """Cut the power of a Node, and boot it again."""
    assert isinstance(cluster, RealSoakCluster)
    await cluster.reboot(fault.victim)
    yield


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


def _grace(draw: random.Random) -> Object:
    return {"grace_seconds": draw.choice((0, 1, 30))}


def _none(_: Site) -> Sequence[str]:
    return ()


def _askable(site: Site) -> Sequence[str]:
    """Return what can be asked to end. A kubelet of the embedded cluster would end its containers, too."""
    return [part for part in site.parts if not part.startswith("kubelet")]


def _of_pods(site: Site) -> Sequence[str]:
    return [part for part in _askable(site) if not part.startswith(("apiserver", "kube-scheduler"))]


@dataclass(frozen=True)
class Kind:
    """One kind of fault."""

    weight: int
    """How likely it is beside the others."""
    happen: Callable[[SoakCluster, Drawn], AbstractAsyncContextManager[None]]
    """It lasts as long as its block."""
    victims: Callable[[Site], Sequence[str]] = _none
    detail: Callable[[random.Random], Object] = _nothing
    only: str = ""
    """The cluster that has it, `embedded` or `real`; empty for both."""


KINDS: dict[str, Kind] = {
    "SIGKILL": Kind(8, _ended, lambda site: site.parts, _killed),
    "SIGTERM": Kind(4, _ended, _askable, _terminated),
    "SIGSTOP": Kind(6, _stopped, lambda site: site.parts),
    "SIGSTOP of a replica": Kind(3, _stopped, lambda site: site.hosts),
    "upgrade": Kind(2, _upgraded, lambda _: ("plugin", "monitor", "scheduler", "kube-scheduler")),
    "requests refused": Kind(3, _failing_requests, detail=_refused, only="embedded"),
    "requests in conflict": Kind(2, _failing_requests, detail=_conflicting, only="embedded"),
    "requests late": Kind(4, _failing_requests, detail=_late, only="embedded"),
    "requests carried out, not answered": Kind(4, _failing_requests, detail=_unanswered, only="embedded"),
    "requests lost": Kind(2, _failing_requests, detail=_lost, only="embedded"),
    "watches late": Kind(4, _late_watches, detail=_lag, only="embedded"),
    "watches dropped": Kind(2, _dropped_watches, detail=_drop, only="embedded"),
    "card lost": Kind(2, _lost_card, lambda site: tuple(site.cards)),
    "driver hung": Kind(1, _hung_driver, lambda site: site.names),
    "device config changed": Kind(2, _other_config, detail=_config, only="embedded"),
    "plugin replaced": Kind(2, _replaced_plugin, lambda _: SHARING, _allocation, only="embedded"),
    "Node cordoned": Kind(2, _cordoned, lambda site: site.names),
    "too few descriptors": Kind(2, _few_descriptors, _askable),
    "Pod of a service deleted": Kind(4, _deleted, _of_pods, _grace, only="real"),
    "Node rebooted": Kind(1, _rebooted, lambda site: site.names, only="real"),
}
"""By name."""
