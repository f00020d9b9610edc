"""
One run: a cluster with the versions before, an exchange to those after, faults, and the way back, all under load.

Owns the order of things. Neighbours: the soak's load, faults and calms, `client` asks every version of the client.
"""

import asyncio
import random
import shutil
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from harness import residents
from harness.cluster import ROOT
from harness.residents import Residents
from harness.rest import safety_findings
from minicluster.client import ApiError
from minicluster.kubelet.runtime.containers import kill_all
from skew.client import disagreements
from skew.cluster import SkewCluster, programs
from skew.known import KNOWN, Known
from skew.matrix import CLIENT, Run, Versions
from soak.calm import rest
from soak.campaign import Tell, keep
from soak.faults import Faults, draw_round
from soak.load import FREE, Load
from testbed.folders import short_folder
from testbed.waiting import NotInTimeError

FOLDER = ROOT / "build/skew"
WARM_UP_SECONDS = 5.0
RESIDENT = next(iter(residents.MODELS))


@dataclass
class Outcome:
    """What became of a run."""

    run: Run
    seed: int
    seconds: float = 0.0
    pods: int = 0
    """How many Pods were created."""
    ran: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    events: int = 0
    """How many events the judge replayed."""
    calms: list[str] = field(default_factory=list)
    """What each calm followed."""
    known: dict[str, int] = field(default_factory=dict)
    """How many problems are declared ones of releases in the run, by their reasons."""
    problems: list[str] = field(default_factory=list)
    """All others."""
    folder: Path | None = None
    """History, logs and faults, if there are problems."""


class Skew:
    """A run that is under way."""

    def __init__(self, run: Run, seed: int, tell: Tell, clients: Iterable[str], folder: Path) -> None:
        self.outcome = Outcome(run, seed)
        self.cluster = SkewCluster(folder, run.before)
        self.load = Load(self.cluster, seed)
        self.faults = Faults(self.cluster)
        self._tell = tell
        self._clients = {version: programs(CLIENT, version) / "kubectl-hami" for version in clients}

    async def happen(self, faults_seconds: float) -> None:
        """Start, exchange, let faults happen, roll back, and judge after each, until there is a problem."""
        run, cluster = self.outcome.run, self.cluster
        await cluster.start(lambda part: self._tell(f"start: {part}"))
        await self.load.prepare()
        cluster.namespace = FREE
        before = await residents.settle(cluster, cluster.start_seconds)
        order = random.Random(self.outcome.seed).sample(list(run.after), len(run.after))
        async with cluster.kept(), asyncio.TaskGroup() as group:
            loading = group.create_task(self.load.run())
            steps = {
                "exchange": partial(self._exchange, order, run.after),
                "faults": partial(self._faults, faults_seconds),
                "way back": partial(self._exchange, order[::-1], run.before),
            }
            for name, step in steps.items():
                self.load.go_on()
                await asyncio.sleep(WARM_UP_SECONDS)
                await step()
                await self._calm(name, before)
                if self.outcome.problems:
                    break
            loading.cancel()

    async def _exchange(self, order: Iterable[str], versions: Versions) -> None:
        for name in order:
            if self.cluster.versions[name] != versions[name]:
                self._tell(f"{name}: {self.cluster.versions[name]} → {versions[name]}")
                await self.cluster.exchange(name, versions[name])

    async def _faults(self, seconds: float) -> None:
        drawn = draw_round(self.cluster.site, self.outcome.seed, 1, seconds)
        self._tell(f"{len(drawn)} faults in {seconds:g} s")
        await self.faults.run(drawn, seconds)

    async def _calm(self, after: str, before: Residents) -> None:
        self.load.pause()
        self._tell(f"calm after {after}")
        calm = await rest(self.cluster, str(len(self.outcome.calms)))
        self.outcome.calms.append(after)
        found = [*await safety_findings(self.cluster), *self.load.failures, *calm.problems]
        self.cluster.namespace = FREE
        if not calm.problems:
            now = await residents.running(self.cluster)
            if now != before:
                found.append(f"residents: they were {before}, and are {now}")
            found += await disagreements(self.cluster, self._clients, (FREE, RESIDENT))
        self.blame(f"after {after}: {each}" for each in found)

    def blame(self, found: Iterable[str]) -> None:
        """Note what was found, a declared problem of a release under its reason."""
        blamed = [(each, declared(each, self.outcome.run)) for each in found]
        self.outcome.problems = [each for each, known in blamed if known is None]
        self.outcome.known |= Counter(str(known) for _, known in blamed if known is not None)

    async def end(self) -> None:
        """Stop the cluster, and keep what shows the problems."""
        outcome, cluster = self.outcome, self.cluster
        outcome.pods, outcome.ran, outcome.faults = self.load.created.total(), self.load.ran, self.faults.counts
        if cluster.recorder is not None:
            outcome.events = cluster.recorder.judge.line
        await cluster.stop()
        for node in cluster.nodes:
            kill_all(cluster.folder / node.name)
        outcome.folder = keep(outcome.problems, f"run-{outcome.seed}", FOLDER, cluster, self.faults)


async def happen(run: Run, seed: int, minutes: float, tell: Tell, clients: Iterable[str]) -> Outcome:
    """Let a run happen with *minutes* of faults, and return what became of it."""
    begin, folder = time.monotonic(), short_folder()
    skew = Skew(run, seed, tell, clients, folder)
    try:
        await skew.happen(60 * minutes)
    except* (NotInTimeError, ApiError) as late:
        skew.blame(f"not in time: {error}" for error in late.exceptions)
    finally:
        await skew.end()
        shutil.rmtree(folder, ignore_errors=True)
        skew.outcome.seconds = time.monotonic() - begin
    return skew.outcome


def declared(problem: str, run: Run) -> Known | None:
    """Return what is declared about *problem*, None if nothing is or the release is not in the run."""
    return next(
        (
            known
            for known in KNOWN
            if run.has(known.part, known.version) and any(sign in problem for sign in known.signs)
        ),
        None,
    )
