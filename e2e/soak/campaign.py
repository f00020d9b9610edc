"""
One soak: a calm first, then rounds of faults with a calm after each, and what was found.

Owns the order of things and the clock. Neighbours: `load`, `faults`, `calm`, `usage`.
"""

import asyncio
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from harness import evidence
from harness.cluster import ROOT
from harness.clusters.mixed import part_of
from harness.rest import safety_findings
from soak.calm import Calm, rest
from soak.cluster import SoakCluster
from soak.embedded import EmbeddedSoakCluster
from soak.faults import Faults, draw_round
from soak.load import Load
from soak.planted import Defect
from soak.usage import MORE_WRITES, P99_SECONDS, Usage, growths, measure
from testbed.waiting import NotInTimeError, eventually

FOLDER = ROOT / "build/soak"
ROUND_SECONDS = 60.0
"""How long things go wrong in a round."""
WARM_UP_SECONDS = 20.0
"""How long the load runs before the first calm, with which the others are compared."""
IDLE_SECONDS = 100.0
"""How long a connection may stay open that nobody uses."""
JUDGE_SECONDS = 5.0
"""How often the history is judged while things go wrong."""

Tell = Callable[[str], None]
"""Takes one line about what happens now."""


@dataclass
class Outcome:
    """What became of a soak."""

    seed: int
    minutes: float = 0.0
    """How long it took, the start included."""
    pods: Counter[str] = field(default_factory=Counter)
    ran: int = 0
    excused: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    exits: Counter[str] = field(default_factory=Counter)
    calms: list[Calm] = field(default_factory=list)
    usage: dict[str, Usage] = field(default_factory=dict)
    """At the end; empty if there was no calm to compare with."""
    versions: int = 0
    """How many events the judge replayed."""
    gaps: int = 0
    """How often versions were missing."""
    problems: list[str] = field(default_factory=list)
    folder: Path | None = None
    """History, logs and faults, if there are problems."""


Running = Callable[[Tell], AbstractAsyncContextManager[SoakCluster]]
"""Runs a cluster during a block, and tells its steps."""


async def soak(
    running: Running, seed: int, minutes: float, tell: Tell, defects: Mapping[str, Defect] | None = None
) -> Outcome:
    """Soak a cluster for *minutes*, and at least for one round, with *defects* in its services."""
    begin = time.monotonic()
    outcome = Outcome(seed)
    async with running(lambda step: tell(f"start: {step}")) as cluster:
        load, faults = Load(cluster, seed), Faults(cluster)
        try:
            await plant(cluster, defects or {})
            await load.prepare()
            async with cluster.kept(), asyncio.TaskGroup() as group:
                loading = group.create_task(load.run())
                await _rounds(cluster, load, faults, outcome, time.monotonic() + 60 * minutes, tell)
                loading.cancel()
                await _compare(cluster, outcome)
        except* NotInTimeError as late:
            outcome.problems += [f"not in time: {error}" for error in late.exceptions]
        finally:
            _collect(outcome, cluster, load, faults)
            outcome.minutes = (time.monotonic() - begin) / 60
            outcome.folder = keep(outcome.problems, str(seed), FOLDER, cluster, faults)
    return outcome


async def _rounds(cluster: SoakCluster, load: Load, faults: Faults, outcome: Outcome, until: float, tell: Tell) -> None:
    tell("warm-up")
    load.go_on()
    await asyncio.sleep(WARM_UP_SECONDS)
    await _calm(cluster, load, outcome, tell)
    number = 0
    while number == 0 or (not outcome.problems and time.monotonic() + ROUND_SECONDS < until):
        number += 1
        load.go_on()
        drawn = draw_round(cluster.site, outcome.seed, number, ROUND_SECONDS)
        faults.log.append(f"round {number}")
        tell(f"round {number}: {len(drawn)} faults in {ROUND_SECONDS:g} s")
        judging = asyncio.create_task(_judge(cluster, number, load, tell))
        try:
            await faults.run(drawn, ROUND_SECONDS)
        finally:
            judging.cancel()
            await asyncio.gather(judging, return_exceptions=True)
        await _calm(cluster, load, outcome, tell)


async def _judge(cluster: SoakCluster, number: int, load: Load, tell: Tell) -> None:
    """Judge the history now and then, so that what was found is shown."""
    while True:
        await asyncio.sleep(JUDGE_SECONDS)
        found = await safety_findings(cluster)
        tell(f"round {number}: {load.created.total()} Pods, {len(found)} rules broken")


async def _calm(cluster: SoakCluster, load: Load, outcome: Outcome, tell: Tell) -> None:
    load.pause()
    name = str(len(outcome.calms))
    tell(f"calm {name}")
    calm = await rest(cluster, name)
    outcome.calms.append(calm)
    outcome.problems = [*await safety_findings(cluster), *load.failures, *calm.problems]
    tell(f"calm {name}: at rest after {calm.seconds:.0f} s, {len(outcome.problems)} problems")


async def _compare(cluster: SoakCluster, outcome: Outcome) -> None:
    """Compare the last calm with the first. Connections that nobody uses any more have time to end before."""
    first, last = outcome.calms[0], outcome.calms[-1]
    if not first.usage or not last.usage:
        return

    async def is_flat() -> bool:
        outcome.usage = await measure(cluster)
        return not list(growths(first.usage, outcome.usage))

    with suppress(NotInTimeError):
        await eventually(is_flat, "connections end", IDLE_SECONDS)
    outcome.problems += growths(first.usage, outcome.usage)
    if last.writes_per_pod > first.writes_per_pod + MORE_WRITES:
        outcome.problems.append(f"grows: writes per Pod from {first.writes_per_pod} to {last.writes_per_pod}")
    if last.filter_p99_seconds > P99_SECONDS:
        outcome.problems.append(f"slow: 99 % of the answers to filter took up to {last.filter_p99_seconds:g} s")


def _collect(outcome: Outcome, cluster: SoakCluster, load: Load, faults: Faults) -> None:
    outcome.pods, outcome.ran, outcome.excused = load.created, load.ran, load.excused
    outcome.faults, outcome.exits = faults.counts, cluster.exits
    if cluster.recorder is not None:
        outcome.versions, outcome.gaps = cluster.recorder.judge.line, cluster.recorder.judge.gaps


def keep(problems: list[str], name: str, folder: Path, cluster: SoakCluster, faults: Faults) -> Path | None:
    """Keep what shows the *problems* of a cluster in *folder* under *name*. Return where, None without any."""
    history = cluster.recorder.file if cluster.recorder is not None else None
    if not problems:
        if history is not None:
            history.unlink(missing_ok=True)
        return None
    place = evidence.keep(cluster.folder, name, folder)
    (place / "problems.txt").write_text("\n".join([*problems, ""]))
    (place / "faults.txt").write_text("\n".join([*faults.log, ""]))
    if history is not None:
        shutil.move(history, place / "history.jsonl")
    return place


async def plant(cluster: SoakCluster, defects: Mapping[str, Defect]) -> None:
    """Let the keeper start the services of *defects* again with them."""
    for found in defects.values():
        assert isinstance(cluster, EmbeddedSoakCluster)
        change = f"{found.changed.__module__}:{found.changed.__name__}"
        for name, process in cluster.processes.items():
            if part_of(name) == found.part:
                usual = process.argv[1:] if process.argv[0] == sys.executable else process.argv
                process.argv = (sys.executable, "-m", "testbed.launch.changed", found.function, change, *usual)
                await cluster.end(name, signal.SIGKILL)
