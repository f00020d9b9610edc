"""
Write `docs/conformance.md` from the results of the last runs: `python -m conformance`.
"""

import sys

from conformance.page import PAGE, IncompleteError, page, results


def main() -> int:
    """Write the page. Returns 1 if a result is missing."""
    try:
        PAGE.write_text(page(results()), encoding="utf-8")
    except IncompleteError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{PAGE} written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
