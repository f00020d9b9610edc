"""
Let every two versions of every two parts that talk meet, and judge every version of every object.

    tox -e skew                                                   the whole matrix, in as few runs as it takes
    tox -e skew -- --pair scheduler=0.1.0,device-plugin=tree      one pair, beside parts of this tree
    tox -e skew -- --list                                         the runs that would be

The result is in `build/skew/result.json`. A run with problems leaves history, logs and faults in `build/skew/run-…`.
"""

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from harness.cluster import ROOT
from harness.screen import Screen
from skew.cluster import installed
from skew.hami import FORMS, Tested, tested
from skew.matrix import CLIENT, Pair, chosen, pairs, plan
from skew.run import FOLDER, Outcome, happen

SHOWN = 5
"""How many problems of a run are printed."""
RESULT = FOLDER / "result.json"


@dataclass(frozen=True)
class Row:
    """What became of a pair."""

    one: str
    other: str
    through: str
    runs: int
    """In how many runs it met."""
    pods: int
    faults: int
    outcome: str


def main() -> int:
    """Let the runs happen, print tables, and return 1 if something was found that is not declared, or was not met."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip().splitlines()[0])
    parser.add_argument("--minutes", type=float, default=0.5, help="of faults in each run, 0.5 by default")
    parser.add_argument("--seed", type=int, default=1, help="of the plan, the load and the faults, 1 by default")
    parser.add_argument("--pair", action="append", metavar="PART=VERSION,PART=VERSION", help="this pair alone")
    parser.add_argument("--first", type=int, default=1, help="the number of the run to begin with, 1 by default")
    parser.add_argument("--list", action="store_true", help="print the runs and end")
    options = parser.parse_args()
    versions, screen = installed(), Screen.of_stdout(is_recorded=False)
    every = pairs(versions)
    try:
        wanted = [pair for each in options.pair for pair in chosen(each, every)] if options.pair else every
    except ValueError as error:
        parser.error(str(error))
    runs = list(plan(wanted, versions, options.seed))
    known = ", ".join(f"{part} {' '.join(each)}" for part, each in versions.items())
    print(f"{len(wanted)} pairs in {len(runs)} runs of {known}")
    if options.list:
        for number, run in enumerate(runs, start=1):
            print(f"{number:3}  {run}")
        return 0
    began, outcomes = time.monotonic(), []
    for number, run in enumerate(runs[options.first - 1 :], start=options.first):
        print(f"run {number} of {len(runs)}: {run}", flush=True)
        outcome = asyncio.run(happen(run, options.seed + number, options.minutes, screen.note, versions[CLIENT]))
        outcomes.append(outcome)
        _tell(outcome)
        rows = [_row(pair, outcomes) for pair in wanted]
        _write(rows, outcomes, [])
    forms = [] if options.pair else [tested(form) for form in FORMS]
    _write(rows, outcomes, forms)
    _show(rows, forms, screen)
    bad = [outcome for outcome in outcomes if outcome.problems]
    unmet = [row for row in rows if not row.runs]
    print(
        f"\n{len(wanted) - len(unmet)} of {len(wanted)} pairs met in {len(outcomes)} runs, "
        f"{sum(each.pods for each in outcomes)} Pods, {sum(each.faults.total() for each in outcomes)} faults, "
        f"{sum(each.events for each in outcomes)} events judged: {len(bad)} runs with problems, "
        f"{sum(sum(each.known.values()) for each in outcomes)} declared ones, "
        f"in {(time.monotonic() - began) / 60:.1f} minutes"
    )
    return 1 if bad or unmet or any(form.failed for form in forms) else 0


def _tell(outcome: Outcome) -> None:
    """Print what became of a run."""
    print(
        f"    {outcome.pods} Pods, {outcome.ran} ran, {outcome.faults.total()} faults, {outcome.events} events judged, "
        f"{len(outcome.calms)} calms, {len(outcome.problems)} problems, in {outcome.seconds:.0f} s"
    )
    for reason, times in outcome.known.items():
        print(f"    {times} times {reason}")
    for problem in outcome.problems[:SHOWN]:
        print(f"    {problem}")
    if outcome.folder is not None:
        print(f"    see {outcome.folder.relative_to(ROOT)}", flush=True)


def _show(rows: Sequence[Row], forms: Sequence[Tested], screen: Screen) -> None:
    """Print a row for each pair, and one for each of HAMi's forms."""
    screen.heading("Pairs")
    screen.table(
        ("one", "other", ">runs", ">Pods", ">faults", "outcome"),
        ((row.one, row.other, str(row.runs), str(row.pods), str(row.faults), row.outcome) for row in rows),
    )
    if forms:
        screen.heading("HAMi's forms")
        screen.table(
            ("form", ">vectors", "versions of HAMi", ">tests", "outcome"),
            (
                (
                    each.name,
                    str(each.cases),
                    ", ".join(each.versions),
                    str(each.passed),
                    ", ".join(each.failed) or "good",
                )
                for each in forms
            ),
        )


def _row(pair: Pair, outcomes: Sequence[Outcome]) -> Row:
    """Return what became of a pair. One that met in a run without problems has none itself."""
    met = [outcome for outcome in outcomes if outcome.run.meets(pair)]
    if not met:
        verdict = "not met"
    elif all(outcome.problems for outcome in met):
        verdict = "PROBLEMS"
    else:
        verdict = "; ".join(["good", *sorted({reason for outcome in met for reason in outcome.known})])
    return Row(
        f"{pair.contract.one.name} {pair.one}",
        f"{pair.contract.other.name} {pair.other}",
        pair.contract.through,
        len(met),
        sum(outcome.pods for outcome in met),
        sum(outcome.faults.total() for outcome in met),
        verdict,
    )


def _write(rows: Sequence[Row], outcomes: Sequence[Outcome], forms: Sequence[Tested]) -> None:
    runs = [{**vars(each), "run": asdict(each.run), "folder": str(each.folder or "")} for each in outcomes]
    found = {"pairs": [*map(asdict, rows)], "runs": runs, "forms": [*map(asdict, forms)]}
    FOLDER.mkdir(parents=True, exist_ok=True)
    RESULT.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
