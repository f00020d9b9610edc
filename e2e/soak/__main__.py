"""
Soak a cluster: load and faults drawn from a seed, and every version judged.

    .venv/bin/python -m soak --minutes 20 --seed 7
    .venv/bin/python -m soak --minutes 20 --cluster real
    .venv/bin/python -m soak --planted

A failed soak leaves history, logs and faults in `build/soak/<seed>`.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import Iterator, Mapping

from harness.cluster import ROOT
from harness.screen import Screen
from soak import embedded, real
from soak.campaign import FOLDER, Outcome, Running, Tell, soak
from soak.planted import DEFECTS
from soak.usage import SERVICES
from testbed.campaigns import record

CLUSTERS: Mapping[str, Running] = {"embedded": embedded.running, "real": real.running}
PLANTED_MINUTES = 1.0
SHOWN = 10
"""How many problems are printed."""


def main() -> int:
    """Soak, print tables, and return 1 if something was found that should not be, or the other way round."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip().splitlines()[0])
    parser.add_argument("--minutes", type=float, default=20.0, help="how long, 20 by default")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of the load and of the faults")
    parser.add_argument("--cluster", choices=list(CLUSTERS), default="embedded")
    parser.add_argument("--planted", action="store_true", help="plant defects and look for them instead")
    options = parser.parse_args()
    screen = Screen.of_stdout(is_recorded=False)
    FOLDER.mkdir(parents=True, exist_ok=True)
    if options.planted:
        return _plant(options.seed, screen)
    outcome = asyncio.run(soak(CLUSTERS[options.cluster], options.seed, options.minutes, _teller(screen)))
    _show(outcome, screen)
    _record(outcome, "soak" if options.cluster == "embedded" else "soak-real")
    return 1 if outcome.problems else 0


def _teller(screen: Screen) -> Tell:
    """Return what shows progress; in a pipe, the calms alone."""
    return lambda text: screen.progress(text, lasts=text.startswith("calm") and ":" in text)


def _show(outcome: Outcome, screen: Screen) -> None:
    screen.progress("")
    screen.heading("Pods and faults")
    kinds = [(f"Pods: {kind}", count) for kind, count in outcome.pods.most_common()]
    excused = outcome.excused.most_common()
    faults = [(f"fault: {kind}", count) for kind, count in outcome.faults.most_common()]
    exits = [(f"ended by itself: {how}", count) for how, count in outcome.exits.most_common()]
    rows = [*kinds, *excused, *faults, *exits]
    screen.table(("", ">number"), ((name, str(count)) for name, count in rows))
    if outcome.usage:
        screen.heading("First calm and end")
        screen.table(("", ">first", ">last"), _measured(outcome))
    print(
        f"\nseed {outcome.seed}: {outcome.pods.total()} Pods, {outcome.ran} ran, {outcome.faults.total()} faults, "
        f"{len(outcome.calms)} calms, {outcome.versions} events judged, {outcome.gaps} gaps, "
        f"{len(outcome.problems)} problems, in {outcome.minutes:.1f} minutes"
    )
    for problem in outcome.problems[:SHOWN]:
        print(f"    {problem}")
    if outcome.folder is not None:
        place = outcome.folder.relative_to(ROOT)
        print(f"judge it again, in e2e: .venv/bin/python -m harness.history ../{place}/history.jsonl")
        print(f"the same Pods and faults: tox -e soak -- --seed {outcome.seed}")


def _measured(outcome: Outcome) -> Iterator[tuple[str, str, str]]:
    first, last = outcome.calms[0], outcome.calms[-1]
    for part in (*SERVICES, *sorted(outcome.usage.keys() - set(SERVICES))):
        before, after = first.usage[part], outcome.usage[part]
        yield f"{part}: memory, MiB", f"{before.memory_mib:.0f}", f"{after.memory_mib:.0f}"
        yield f"{part}: descriptors", str(before.descriptors), str(after.descriptors)
        yield f"{part}: threads", str(before.threads), str(after.threads)
    yield "writes of the services per Pod", f"{first.writes_per_pod:.1f}", f"{last.writes_per_pod:.1f}"
    yield "filter: 99 % within, ms", f"{1000 * first.filter_p99_seconds:g}", f"{1000 * last.filter_p99_seconds:g}"
    yield "seconds until nothing was owed", f"{first.seconds:.0f}", f"{last.seconds:.0f}"


def _record(outcome: Outcome, campaign: str) -> None:
    amounts = {
        "Pods": outcome.pods.total(),
        "faults": outcome.faults.total(),
        "calms": len(outcome.calms),
        "events judged": outcome.versions,
    }
    record(campaign, outcome.seed, outcome.minutes, amounts, outcome.problems)


def _plant(seed: int, screen: Screen) -> int:
    """Plant all defects, each in another service, and look for the signs of each."""
    outcome = asyncio.run(soak(embedded.running, seed, PLANTED_MINUTES, _teller(screen), DEFECTS))
    missed = 0
    for name, defect in DEFECTS.items():
        found = next((each for each in outcome.problems if each.startswith(defect.signs)), None)
        missed += found is None
        print(
            f"{name:<40} {f'found: {found}' if found else f'NOT FOUND among {len(outcome.problems)} problems'}",
            flush=True,
        )
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
