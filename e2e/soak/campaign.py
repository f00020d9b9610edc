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
from dataclasses import dataclass, field
from pathlib import Path

from harness import evidence
from harness.cluster import ROOT
from minicluster.kubelet.runtime.containers import kill_all
from soak.calm import Calm, rest, safety_findings
from soak.cluster import SoakCluster, part_of
from soak.faults import Faults, draw_round
from soak.load import Load, draw_plans
from soak.planted import Defect
from soak.usage import MORE_WRITES, P99_SECONDS, growths
from testbed.folders import short_folder
from testbed.waiting import NotInTimeError

FOLDER = ROOT / "build/soak"
ROUND_SECONDS = 60.0
"""How long things go wrong in a round."""
WARM_UP_SECONDS = 20.0
"""How long the load runs before the first calm, with which the others are compared."""
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
    rejected: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    exits: Counter[str] = field(default_factory=Counter)
    calms: list[Calm] = field(default_factory=list)
    versions: int = 0
    """How many events the judge replayed."""
    gaps: int = 0
    """How often versions were missing."""
    problems: list[str] = field(default_factory=list)
    folder: Path | None = None
    """History, logs and faults, if there are problems."""


async def soak(seed: int, minutes: float, tell: Tell, defects: Mapping[str, Defect] | None = None) -> Outcome:
    """Soak a cluster for *minutes*, and at least for one round, with *defects* in its services."""
    begin = time.monotonic()
    outcome, folder = Outcome(seed), short_folder()
    cluster = SoakCluster(folder)
    load, faults = Load(cluster, draw_plans(seed)), Faults(cluster)
    try:
        await cluster.start(lambda part: tell(f"start: {part}"))
        plant(cluster, defects or {})
        await load.prepare()
        async with cluster.kept(), asyncio.TaskGroup() as group:
            loading = group.create_task(load.run())
            await _rounds(cluster, load, faults, outcome, time.monotonic() + 60 * minutes, tell)
            loading.cancel()
        _compare(outcome)
    except* NotInTimeError as late:
        outcome.problems += [f"not in time: {error}" for error in late.exceptions]
    finally:
        _collect(outcome, cluster, load, faults)
        await cluster.stop()
        for node in cluster.nodes:
            kill_all(folder / node.name)
        outcome.minutes = (time.monotonic() - begin) / 60
        outcome.folder = keep(outcome.problems, str(seed), FOLDER, cluster, faults)
        shutil.rmtree(folder, ignore_errors=True)
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
        drawn = draw_round(outcome.seed, number, ROUND_SECONDS)
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


def _compare(outcome: Outcome) -> None:
    """Compare the last calm with the first."""
    first, last = outcome.calms[0], outcome.calms[-1]
    if not first.usage or not last.usage:
        return
    outcome.problems += growths(first.usage, last.usage)
    if last.writes_per_pod > first.writes_per_pod + MORE_WRITES:
        outcome.problems.append(f"grows: writes per Pod from {first.writes_per_pod} to {last.writes_per_pod}")
    if last.filter_p99_seconds > P99_SECONDS:
        outcome.problems.append(f"slow: 99 % of the answers to filter took up to {last.filter_p99_seconds:g} s")


def _collect(outcome: Outcome, cluster: SoakCluster, load: Load, faults: Faults) -> None:
    outcome.pods, outcome.ran, outcome.rejected = load.created, load.ran, load.rejected
    outcome.faults, outcome.exits = faults.counts, cluster.exits
    if cluster.recorder is not None:
        outcome.versions, outcome.gaps = cluster.recorder.judge.line, cluster.recorder.judge.gaps


def keep(problems: list[str], name: str, folder: Path, cluster: SoakCluster, faults: Faults) -> Path | None:
    """Keep what shows the *problems* of a stopped cluster in *folder* under *name*. Return where, None without any."""
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


def plant(cluster: SoakCluster, defects: Mapping[str, Defect]) -> None:
    """Let the keeper start the services of *defects* again with them."""
    for defect, found in defects.items():
        for name, process in cluster.processes.items():
            if part_of(name) == found.part:
                usual = process.argv[1:] if process.argv[0] == sys.executable else process.argv
                process.argv = (sys.executable, "-m", "soak.planted", defect, *usual)
                cluster.end(name, signal.SIGKILL)
