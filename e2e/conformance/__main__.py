"""
Write `docs/conformance.md` from the results of the last runs: `python -m conformance`.

Each of its two parts is written if its results are complete, and otherwise kept as it is.
"""

import sys

from conformance import kinds
from conformance.page import PAGE, IncompleteError, page, results


def main() -> int:
    """Write the parts. Returns 1 if a result is missing."""
    clusters, mark, nodes = PAGE.read_text(encoding="utf-8").partition(kinds.TITLE)
    nodes = mark + nodes
    missing = []
    try:
        clusters = page(results())
    except IncompleteError as error:
        missing.append(error)
    try:
        nodes = kinds.part()
    except IncompleteError as error:
        missing.append(error)
    PAGE.write_text(f"{clusters.rstrip()}\n\n{nodes}", encoding="utf-8")
    for lack in missing:
        print(lack, file=sys.stderr)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
