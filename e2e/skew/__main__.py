"""
Let every two versions of every two parts that talk meet, and judge every version of every object.

    tox -e skew                                                   the whole matrix, in as few runs as it takes
    tox -e skew -- --pair scheduler=0.1.0,device-plugin=tree      one pair, beside parts of this tree
    tox -e skew -- --list                                         the runs that would be

The result is in `build/skew/result.json`. A run with problems leaves history, logs and faults in `build/skew/run-…`.
"""

import argparse
import asyncio
import sys
import time

from harness.screen import Screen
from skew.cluster import installed
from skew.hami import FORMS, tested
from skew.matrix import CLIENT, chosen, pairs, plan
from skew.report import row, show, tell, write
from skew.run import happen


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
        write(rows, outcomes, [])
    forms = [] if options.pair else [tested(form) for form in FORMS]
    write(rows, outcomes, forms)
    show(rows, forms, screen)
    bad = [outcome for outcome in outcomes if outcome.problems]
    unmet = [each for each in rows if not each.runs]
    print(
        f"\n{len(wanted) - len(unmet)} of {len(wanted)} pairs met in {len(outcomes)} runs, "
        f"{sum(each.pods for each in outcomes)} Pods, {sum(each.faults.total() for each in outcomes)} faults, "
        f"{sum(each.events for each in outcomes)} events judged: {len(bad)} runs with problems, "
        f"{sum(sum(each.known.values()) for each in outcomes)} declared ones, "
        f"in {(time.monotonic() - began) / 60:.1f} minutes"
    )
    return 1 if bad or unmet or any(form.failed for form in forms) else 0


if __name__ == "__main__":
    sys.exit(main())
