"""
Kill each service at each of its points, and judge what is left each time.

    tox -e killpoints -- --seeds 3
    tox -e killpoints -- --point "scheduler: the Binding is sent"
    tox -e killpoints -- --planted

Where something was wrong, logs and history are in a folder of `build/killpoints`.
"""

import argparse
import asyncio
import os
import sys
import time
from contextlib import suppress

from harness.clusters.mixed import MPS
from harness.screen import Screen
from killpoints.campaign import FOLDER, Campaign, Outcome, Result, Tell, draw_kills
from killpoints.planted import DEFECTS
from killpoints.points import CHANCE, all_points
from testbed.campaigns import record

SHOWN = 10
"""How many problems are printed."""


def main() -> int:
    """Run a campaign, print a table, and return 1 if something is wrong or a point was never met."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip().splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3, help="how often a process dies at each point, 3 by default")
    parser.add_argument("--chance", type=int, default=10, help="how often each part dies at any line, 10 by default")
    parser.add_argument(
        "--point", action="append", default=[], help="only points whose names begin so; may be repeated"
    )
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no turn after so long")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of the Pods, the calls and the lines")
    parser.add_argument("--planted", action="store_true", help="plant defects and look for them instead")
    options = parser.parse_args()
    screen = Screen.of_stdout(is_recorded=False)
    FOLDER.mkdir(parents=True, exist_ok=True)
    if options.planted:
        return _plant(options.seed, _teller(screen))
    wanted = tuple(options.point) or ("",)
    kills = [
        kill
        for points, count in ((all_points(), options.seeds), (CHANCE, options.chance))
        for kill in draw_kills(points, options.seed, count)
        if str(kill).startswith(wanted) and (os.geteuid() == 0 or kill.point.node != MPS.name)
    ]
    if os.geteuid() != 0:
        print(f"without root no driver's root can be mounted: points on {MPS.name} are left out")
    until = time.monotonic() + 60 * options.minutes
    campaign = Campaign(kills, options.seed, _teller(screen), until=until)
    with suppress(KeyboardInterrupt):  # what was found until then is shown
        asyncio.run(campaign.run())
    result = campaign.result
    _show(result, screen)
    problems = [*result.problems, *(f"never met: {name}" for name in _unmet(result))]
    amounts = {"kills": _hits(result), "points": len(result.points), "events judged": result.versions}
    record("killpoints", options.seed, result.seconds / 60, amounts, problems)
    return 1 if problems else 0


def _teller(screen: Screen) -> Tell:
    """Return what shows progress; in a pipe, the turns alone."""
    return lambda text: screen.progress(text, lasts=text.startswith("turn"))


def _unmet(result: Result) -> list[str]:
    """Return the points that were tried and never met. By chance, a line may be drawn that no process comes to."""
    return [name for name, outcome in result.points.items() if not outcome.hits]


def _hits(result: Result) -> int:
    return sum(outcome.hits for outcome in result.points.values())


def _show(result: Result, screen: Screen) -> None:
    screen.progress("")
    screen.heading("Kills")
    rows = sorted(result.points.items())
    screen.table(("point", ">wanted", ">killed", "wrong"), ((name, *_cells(outcome)) for name, outcome in rows))
    unmet = _unmet(result)
    print(
        f"\nseed {result.seed}: {len(result.points)} points, {_hits(result)} kills in {result.turns} turns, "
        f"{result.versions} events judged, {len(unmet)} points never met, {len(result.problems)} problems, "
        f"in {result.seconds / 60:.1f} minutes"
    )
    for name in unmet:
        print(f"    never met: {name}")
    for problem in result.problems[:SHOWN]:
        print(f"    {problem}")
    for folder in result.folders:
        print(f"judge it again, in e2e: .venv/bin/python -m harness.history ../{folder}/history.jsonl")


def _cells(outcome: Outcome) -> tuple[str, str, str]:
    return str(outcome.kills), str(outcome.hits), str(len(outcome.problems) or "")


def _plant(seed: int, tell: Tell) -> int:
    """Plant one defect after another, and kill its service where the defect shows."""
    missed = 0
    for name, defect in DEFECTS.items():
        points = [(part, point) for part, point in all_points() if (part, point.step) == (defect.part, defect.step)]
        result = asyncio.run(Campaign(draw_kills(points, seed, 1), seed, tell, defects=(defect,)).run())
        found = next((each for each in result.problems if defect.sign in each), None)
        missed += found is None
        print(f"{name:<30} {f'found: {found}' if found else f'NOT FOUND: {result.problems}'}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
