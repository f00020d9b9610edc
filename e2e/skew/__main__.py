"""
Let every two versions of every two parts that talk meet, and judge every version of every object.

    tox -e skew                                                   the whole matrix, in as few runs as it takes
    tox -e skew -- --pair scheduler=0.1.0,device-plugin=tree      one pair, beside parts of this tree
    tox -e skew -- --list                                         the runs that would be

A run with problems leaves history, logs and faults in `build/skew/run-…`.
"""

import argparse
import asyncio
import sys
import time

from harness.screen import Screen
from skew.cluster import installed
from skew.hami import FORMS, tested
from skew.matrix import CLIENT, chosen, pairs, plan
from skew.report import row, show, tell
from skew.run import happen
from testbed.campaigns import record


def main() -> int:
    """Let the runs happen, print tables, and return 1 if something was found that is not declared, or was not met."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip().splitlines()[0])
    parser.add_argument("--minutes", type=float, default=0.5, help="of faults in each run, 0.5 by default")
    parser.add_argument("--seed", type=int, default=0, help="of the plan, the load and the faults, 0 by default")
    parser.add_argument("--pair", action="append", metavar="PART=VERSION,PART=VERSION", help="this pair alone")
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
    for number, run in enumerate(runs, start=1):
        print(f"run {number} of {len(runs)}: {run}", flush=True)
        outcome = asyncio.run(happen(run, options.seed + number, options.minutes, screen.note, versions[CLIENT]))
        outcomes.append(outcome)
        tell(outcome)
    rows = [row(pair, outcomes) for pair in wanted]
    forms = [] if options.pair else [tested(form) for form in FORMS]
    show(rows, forms, screen)
    bad = [outcome for outcome in outcomes if outcome.problems]
    unmet = [each for each in rows if not each.runs]
    amounts = {
        "pairs": len(wanted) - len(unmet),
        "Pods": sum(each.pods for each in outcomes),
        "faults": sum(each.faults.total() for each in outcomes),
        "events judged": sum(each.events for each in outcomes),
    }
    minutes = (time.monotonic() - began) / 60
    print(
        f"\n{', '.join(f'{number} {name}' for name, number in amounts.items())}: {len(unmet)} pairs not met, "
        f"{len(bad)} of {len(outcomes)} runs with problems, {sum(sum(each.known.values()) for each in outcomes)} "
        f"declared ones, in {minutes:.1f} minutes"
    )
    problems = [f"{outcome.run}: {problem}" for outcome in bad for problem in outcome.problems]
    problems += [f"not met: {each.one}, {each.other}" for each in unmet]
    problems += [f"{form.name}: {failed}" for form in forms for failed in form.failed]
    record("skew", options.seed, minutes, amounts, problems)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
