"""
A campaign: turn after turn, services die at a few points while Pods come and go, and then nothing may be owed.

Owns the order of things. Neighbours: `cluster` gives the orders, `load` what happens meanwhile, `leftovers` looks.
"""

import asyncio
import math
import random
import shutil
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from hamicommon.model import Object
from harness import evidence
from harness.cluster import ROOT
from harness.rest import debts, safety_findings
from killpoints.cluster import HOOK, LIBRARY, NODES, KillCluster
from killpoints.leftovers import leftovers
from killpoints.load import Load
from killpoints.planted import Defect
from killpoints.points import SHARED, Moment, Point, named
from minicluster.client import ApiError
from minicluster.kubelet.runtime.containers import kill_all
from testbed.folders import short_folder
from testbed.waiting import NotInTimeError, eventually

FOLDER = ROOT / "build/killpoints"
AT_ONCE = 4
"""How many services die in one turn."""
MEET_SECONDS = 30.0
"""How long a service may take until it comes to its point, once the Pods of the turn run."""
REST_SECONDS = 180.0
"""How long it may take until nothing is owed, on a busy machine too."""
NAMESPACE = "kills"

Tell = Callable[[str], None]
"""Takes one line about what happens now."""


@dataclass(frozen=True)
class Kill:
    """One kill that is wanted."""

    part: str
    point: Point
    number: int
    """Before which call it happens, or before which line."""
    victim: str

    def __str__(self) -> str:
        return named(self.part, self.point)


@dataclass
class Outcome:
    """What became of one point."""

    kills: int = 0
    """How many were wanted."""
    hits: int = 0
    """How often a process died there."""
    problems: list[str] = field(default_factory=list)
    """Of all turns in which a process died there, with those of the points of the same turns."""


@dataclass
class Result:
    """What became of a campaign."""

    seed: int
    points: dict[str, Outcome] = field(default_factory=dict)
    turns: int = 0
    versions: int = 0
    """How many events the judge replayed."""
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)
    """With logs and history, one for each cluster that had problems."""


def draw_kills(points: Iterable[tuple[str, Point]], seed: int, seeds: int) -> list[Kill]:
    """Return *seeds* kills for each point, shuffled by *seed*; a point that is met by chance has its line drawn."""
    draw = random.Random(f"{seed}/kills")
    found = [
        Kill(part, point, _number(point, draw), KillCluster.victim(part, point))
        for part, point in points
        for _ in range(seeds)
    ]
    draw.shuffle(found)
    return found


def _number(point: Point, draw: random.Random) -> int:
    """Early lines are as likely as all the many late ones."""
    return int(math.exp(draw.uniform(0.0, math.log(point.calls)))) if point.is_chance else draw.randint(1, point.calls)


class Campaign:
    """Kills, and the clusters on which they happen."""

    def __init__(
        self, kills: Sequence[Kill], seed: int, tell: Tell, *, defects: Sequence[Defect] = (), until: float = math.inf
    ) -> None:
        """Prepare *kills*, on services with *defects*. No turn begins after the monotonic time *until*."""
        self.rest_seconds = REST_SECONDS
        self.result = Result(seed)
        self._tell = tell
        self._defects = defects
        self._until = until
        needed = {SHARED, *(kill.point.node for kill in kills)}
        self._nodes = tuple(node for node in NODES if node.name in needed)
        self._queues: dict[str, deque[Kill]] = defaultdict(deque)
        for kill in kills:
            self._queues[kill.victim].append(kill)

    async def run(self) -> Result:
        """Carry out the kills. A cluster with problems is replaced, unless it has defects."""
        begin = time.monotonic()
        try:
            while self._goes_on():
                await self._run_cluster()
                if self._defects:
                    break
        finally:
            self.result.seconds = time.monotonic() - begin
        return self.result

    def _goes_on(self) -> bool:
        return any(self._queues.values()) and time.monotonic() < self._until

    async def _run_cluster(self) -> None:
        result, folder = self.result, short_folder()
        cluster, before = KillCluster(folder, self._nodes, self._defects), len(result.problems)
        try:
            await cluster.start(lambda part: self._tell(f"start: {part}"))
            await cluster.use_namespace(NAMESPACE)
            load = Load(cluster, result.seed + result.turns)
            await self._turn(cluster, load, ())
            while self._goes_on() and len(result.problems) == before:
                longest = sorted(filter(None, self._queues.values()), key=len, reverse=True)
                kills = [queue.popleft() for queue in longest[:AT_ONCE]]
                left = sum(map(len, self._queues.values()))
                self._tell(f"turn {result.turns}, {left} kills left: {'; '.join(map(str, kills))}")
                await self._turn(cluster, load, kills)
        except (ApiError, NotInTimeError) as error:
            result.problems.append(f"cluster: {error!r}")
        finally:
            if cluster.recorder is not None:
                result.versions += cluster.recorder.judge.line
            await cluster.stop()
            for node in self._nodes:
                kill_all(folder / node.name)
            _keep(cluster, result, has_problems=len(result.problems) > before)
            shutil.rmtree(folder, ignore_errors=True)

    async def _turn(self, cluster: KillCluster, load: Load, kills: Sequence[Kill]) -> None:
        """Let services die while Pods come and go, and judge what is left then."""
        result = self.result
        result.turns += 1
        begin = time.time()
        more = [cluster.doomed_pod(f"doomed-{result.turns}")] if any(kill.part == LIBRARY for kill in kills) else []
        for kill in kills:
            if kill.point.moment is Moment.LOAD:
                cluster.give(kill.victim, kill.point, kill.number)
        is_late = asyncio.Event()
        dying = asyncio.gather(*(_die(cluster, kill, is_late) for kill in kills))
        problems = await load.turn(*more)
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(dying), MEET_SECONDS)
        is_late.set()
        hits = await dying
        problems += await self._at_rest(cluster, begin)
        problems += [each for pod in more for each in await _failed(cluster, pod)]
        for kill, has_died in zip(kills, hits, strict=True):
            outcome = result.points.setdefault(str(kill), Outcome())
            outcome.kills += 1
            outcome.hits += has_died
            outcome.problems += problems
        result.problems += [f"turn {result.turns} ({'; '.join(map(str, kills))}): {each}" for each in problems]

    async def _at_rest(self, cluster: KillCluster, since: float) -> list[str]:
        """Return what is wrong once the cluster had time to come to rest."""
        problems = await debts(cluster, since, self.rest_seconds)

        async def is_clean() -> bool:
            return not await leftovers(cluster, cluster.mps)

        try:
            await eventually(is_clean, "nothing is left over", self.rest_seconds)
        except NotInTimeError:
            problems += [f"left over: {each}" for each in await leftovers(cluster, cluster.mps)]
        return [*await safety_findings(cluster), *problems]


async def _die(cluster: KillCluster, kill: Kill, is_late: asyncio.Event) -> bool:
    """Wait until a service dies at its point, or it *is_late*, and start it again. Return whether it died."""
    is_process = kill.part not in {HOOK, LIBRARY}
    if kill.point.moment is not Moment.LOAD:
        await cluster.kill(kill.victim)
        cluster.end_kept(kill.victim)
        cluster.give(kill.victim, kill.point, kill.number)
        cluster.processes[kill.victim].start()

    await eventually(lambda: cluster.has_died(kill.victim) or is_late.is_set(), f"{kill} is met", math.inf)
    has_died = cluster.has_died(kill.victim)
    if is_process and (has_died or kill.point.is_chance):  # counting lines is slow
        await cluster.kill(kill.victim)
    cluster.take_back(kill.victim)
    if is_process and not cluster.processes[kill.victim].is_running:
        await cluster.restart(kill.victim)
    return has_died


async def _failed(cluster: KillCluster, manifest: Object) -> list[str]:
    """Return how the program of a doomed Pod failed that runs after the killed one. It needs the memory of that one."""
    name = manifest["metadata"]["name"]
    [status] = (await cluster.pod(name))["status"]["containerStatuses"]
    return [f"{name}: {await cluster.log(name)}"] if status["restartCount"] else []


def _keep(cluster: KillCluster, result: Result, *, has_problems: bool) -> None:
    """Keep logs and history, if there were problems."""
    history = cluster.recorder.file if cluster.recorder is not None else None
    if has_problems:
        place = evidence.keep(cluster.folder, f"{result.seed}-{result.turns}", FOLDER)
        (place / "problems.txt").write_text("\n".join([*result.problems, ""]))
        result.folders.append(str(place.relative_to(ROOT)))
        if history is not None:
            shutil.move(history, place / "history.jsonl")
    elif history is not None:
        history.unlink(missing_ok=True)
