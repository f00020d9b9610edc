"""
Simulate leader changes until enough have passed, and say what was found.

    tox -e simulation -- --changes 100000        stories with other seeds, on all processors; Ctrl-C ends it early
    tox -e simulation -- --planted               whether each planted defect is found
    tox -e simulation -- --seed 17 --stories 1   one story again, with its history
"""

import argparse
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import suppress
from itertools import count, islice

import structlog

from harness.cluster import ROOT
from simulation.planted import DEFECTS
from simulation.story import Outcome, simulate
from testbed.campaigns import record

ROUNDS = 3
FOLDER = ROOT / "build/simulation"
PLANTED_STORIES = 300
WIDTH = 200
"""Of a planted defect's line."""
SHOWN = 3
"""How many problems of a story are printed."""


def main() -> int:
    """Simulate, print a table, and return 1 if something was found that should not be, or the other way round."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip().splitlines()[0])
    parser.add_argument("--changes", type=int, default=300, help="leader changes to simulate, 300 by default")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of the first story; the next have the next")
    parser.add_argument("--stories", type=int, help="simulate so many stories instead")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "--planted", action="store_true", help=f"look for each planted defect, in {PLANTED_STORIES} stories at most"
    )
    options = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":
        # The order of sets would differ from run to run, and so would the story of a seed.
        again = [sys.executable, "-m", "simulation", *sys.argv[1:]]
        os.execve(sys.executable, again, {**os.environ, "PYTHONHASHSEED": "0"})
    return _plant(options) if options.planted else _campaign(options)


def _begin() -> None:
    """Log little, and leave signals to the process that counts stories."""
    for end in (signal.SIGINT, signal.SIGTERM):
        signal.signal(end, signal.SIG_IGN)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))


def _story(seed: int, defect: str | None = None) -> Outcome:
    """Return the outcome without its history, which is written if there are problems that nobody planted."""
    if defect is not None:
        _, plant = DEFECTS[defect]
        with plant():
            outcome = simulate(seed, ROUNDS)
    else:
        outcome = simulate(seed, ROUNDS)
        if outcome.problems:
            outcome.write(FOLDER / f"{seed}.jsonl")
    outcome.events = []
    return outcome


def _campaign(options: argparse.Namespace) -> int:
    """Simulate until the wanted number is reached, or until SIGINT or SIGTERM."""
    for end in (signal.SIGINT, signal.SIGTERM):
        # A shell lets what it starts in the background ignore SIGINT.
        signal.signal(end, signal.default_int_handler)
    began, changes, bound, faults, stories = time.monotonic(), 0, 0, Counter[str](), 0
    problems: list[str] = []
    for outcome in _until_interrupted(_outcomes(options)):
        stories += 1
        changes += outcome.leader_changes
        bound += outcome.bound
        faults += outcome.faults
        if outcome.problems:
            problems.append(f"seed {outcome.seed}: {outcome.problems[0]}")
            _show(outcome)
        if sys.stderr.isatty():
            print(
                f"\r{changes} leader changes in {stories} stories, {len(problems)} with problems",
                end="",
                file=sys.stderr,
            )
        if options.stories is None and changes >= options.changes:
            break
    if sys.stderr.isatty():
        print(file=sys.stderr)
    seconds = time.monotonic() - began
    for name, number in faults.most_common():
        print(f"{number:>9}  {name}")
    print(
        f"{changes} leader changes, {bound} Pods bound, {faults.total()} faults in {stories} stories "
        f"from seed {options.seed} on: {len(problems)} with problems, in {seconds:.0f} s"
    )
    amounts = {"leader changes": changes, "stories": stories, "Pods bound": bound, "faults": faults.total()}
    record("simulation", options.seed, seconds / 60, amounts, problems)
    return 1 if problems else 0


def _until_interrupted(outcomes: Iterator[Outcome]) -> Iterator[Outcome]:
    """Yield *outcomes* until a signal: what has passed until then counts."""
    with suppress(KeyboardInterrupt):
        yield from outcomes


def _outcomes(options: argparse.Namespace, defect: str | None = None) -> Iterator[Outcome]:
    """Yield what becomes of each story, as they end."""
    seeds = (
        count(options.seed) if options.stories is None else iter(range(options.seed, options.seed + options.stories))
    )
    with ProcessPoolExecutor(options.processes, initializer=_begin) as pool:
        running = {pool.submit(_story, seed, defect) for seed in islice(seeds, options.processes)}
        while running:
            done = next(as_completed(running))
            running.remove(done)
            running |= {pool.submit(_story, seed, defect) for seed in islice(seeds, 1)}
            yield done.result()


def _show(outcome: Outcome) -> None:
    history = (FOLDER / f"{outcome.seed}.jsonl").relative_to(ROOT)
    print(f"seed {outcome.seed}: {len(outcome.problems)} problems, {history}")
    for problem in outcome.problems[:SHOWN]:
        print(f"    {problem}")


def _plant(options: argparse.Namespace) -> int:
    """Plant one defect after another, each in stories of its own."""
    missed = 0
    for name, (rules, _) in DEFECTS.items():
        found = None
        for tried, outcome in enumerate(_outcomes(options, name), start=1):
            found = outcome if outcome.breaks(rules) else None
            if found is not None or tried == PLANTED_STORIES:
                break
        missed += found is None
        where = f"found in story {tried}, seed {found.seed}: {found.problems[0]}" if found else f"NOT FOUND in {tried}"
        print(f"{name:<50} {where[:WIDTH]}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
