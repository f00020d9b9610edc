"""
What the runs say about each pair of versions.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from harness.cluster import ROOT
from harness.screen import Screen
from skew.hami import Tested
from skew.matrix import Pair
from skew.run import Outcome

SHOWN = 5
"""How many problems of a run are printed."""


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


def tell(outcome: Outcome) -> None:
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


def show(rows: Sequence[Row], forms: Sequence[Tested], screen: Screen) -> None:
    """Print a row for each pair, and one for each of HAMi's forms."""
    screen.heading("Pairs")
    screen.table(
        ("one", "other", ">runs", ">Pods", ">faults", "outcome"),
        ((each.one, each.other, str(each.runs), str(each.pods), str(each.faults), each.outcome) for each in rows),
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


def row(pair: Pair, outcomes: Sequence[Outcome]) -> Row:
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
