"""
One simulation: a cluster, replicas of the scheduler, faults and calm in turn; and the judgement of every version.

The same seed gives the same story. Neighbour: `harness.history` has the judge.
"""

import asyncio
import gc
import random
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from harness.cluster import ROOT
from harness.history.events import DEVICE_CONFIG, NODE, POD, Change, Event, encode_event
from harness.history.findings import Finding, Rule
from harness.history.judge import Judge
from simulation.cluster import Cluster
from simulation.faults import Faults
from simulation.replica import BEGIN, Replica, Surroundings
from testbed.virtual.api import MemoryApi, Write
from testbed.virtual.config import UnchangingConfig
from testbed.virtual.loop import VirtualProcess, run_virtually

DEVICE_CONFIG_FILE = ROOT / "e2e/harness/clusters/device-config.yaml"
REPLICAS = 3
FAULT_SECONDS, CALM_SECONDS = 200.0, 100.0
"""How long things go wrong in a round, and how long the cluster may take after that until nothing is owed."""
KINDS = {"pods": POD, "nodes": NODE}
OWED = {Rule.LOCK, Rule.LOST}
"""The rules about what must happen some time. They are judged after each calm, when nothing has hindered it."""


@dataclass
class Outcome:
    """What became of one simulation."""

    seed: int
    leader_changes: int = 0
    bound: int = 0
    """How many Pods were bound."""
    faults: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    """What was found, first the rules that were broken at a version."""
    events: list[Event] = field(default_factory=list)
    """The history, up to the first broken rule if there is one."""

    def breaks(self, rules: Collection[Rule]) -> bool:
        """Return whether it was found that one of *rules* is broken."""
        return any(problem.partition(":")[0] in rules for problem in self.problems)

    def write(self, file: Path) -> None:
        """Write the history for `python -m harness.history`."""
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"".join(map(encode_event, self.events)))


def simulate(seed: int, rounds: int) -> Outcome:
    """
    Let *rounds* of faults pass, each with a calm after it, and judge every version.

    Hash randomisation must be off for the same story of a seed: PYTHONHASHSEED=0.
    """
    random.seed(seed)
    try:
        return run_virtually(_story(seed, rounds))
    finally:
        # A scheduler keeps what it has at its start out of garbage collections, for as long as its process lives.
        gc.unfreeze()


async def _story(seed: int, rounds: int) -> Outcome:
    outcome, draw, world = Outcome(seed), random.Random(seed), VirtualProcess("world")
    api = MemoryApi()
    cluster = Cluster(api, draw)
    devices = UnchangingConfig(str(DEVICE_CONFIG_FILE))
    surroundings = Surroundings(api, draw, world, devices, cluster.nodes)
    replicas = [Replica(number, surroundings) for number in range(REPLICAS)]
    faults = Faults(api, replicas, world, draw)
    await cluster.start()
    for replica in replicas:
        replica.start()
    calms = []
    for _ in range(rounds):
        going_wrong = world.start(faults.run())
        await asyncio.sleep(FAULT_SECONDS)
        going_wrong.cancel()
        await faults.heal()
        begin = asyncio.get_running_loop().time()
        await asyncio.sleep(CALM_SECONDS)
        calms.append(Calm(begin, api.version))
        outcome.problems += [*_drifts(replicas)]
    outcome.faults = faults.counts
    outcome.leader_changes = _leader_changes(api.journal)
    outcome.bound = len({write.item["metadata"]["uid"] for write in api.journal if _is_bound(write)})
    _judge(outcome, api.journal, calms)
    return outcome


@dataclass(frozen=True)
class Calm:
    """A time without faults."""

    begin: float
    """Virtual seconds."""
    version: int
    """The newest at its end."""


def _drifts(replicas: list[Replica]) -> Iterator[str]:
    """Yield how the leader's ledger differs from what the API server has, and that nobody leads."""
    leaders = [replica for replica in replicas if replica.extender.service.readiness.is_leader()]
    if len(leaders) != 1:
        yield f"{len(leaders)} replicas lead in the end"
    for leader in leaders:
        cluster = leader.extender.service.feed.cluster
        if drift := cluster.recount():
            yield f"the ledger of {leader.name} differs in {drift} numbers from its Pods"
        for grant in cluster.reservations.in_doubt():
            yield f"{leader.name} does not know in the end whether Pod {grant.namespace}/{grant.name} is bound"


def _leader_changes(journal: list[Write]) -> int:
    """Return how often the Lease has got another holder."""
    changes, holder = 0, ""
    for write in journal:
        if write.collection == "leases":
            found = write.item["spec"].get("holderIdentity") or ""
            changes += bool(found) and found != holder
            holder = found or holder
    return changes


def _is_bound(write: Write) -> bool:
    return write.collection == "pods" and bool(write.item["spec"].get("nodeName"))


def _judge(outcome: Outcome, journal: list[Write], calms: list[Calm]) -> None:
    """Replay *journal*, and add what it breaks to *outcome*."""
    judge, begin = Judge(), BEGIN.timestamp()
    findings: list[Finding] = []
    owed: list[str] = []
    ends = {calm.version: calm for calm in calms}
    outcome.events = [Event(Change.CONFIG, DEVICE_CONFIG, 0, begin, {"text": DEVICE_CONFIG_FILE.read_text()})]
    judge.take(outcome.events[0])
    for write in journal:
        if write.collection in KINDS:
            kind = KINDS[write.collection]
            outcome.events.append(Event(Change(write.change), kind, write.version, begin + write.at, write.item))
            findings += [found for found in judge.take(outcome.events[-1]) if found.rule not in OWED]
        if write.version in ends:
            owed += judge.debts(since=begin + ends[write.version].begin)
    outcome.problems = [*map(str, findings), *outcome.problems, *owed]
    if findings:
        outcome.events = outcome.events[: findings[0].line]
