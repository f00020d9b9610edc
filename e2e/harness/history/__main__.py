"""
Judge a recorded history, such as the one that a failed test left in `build/failed`.

    .venv/bin/python -m harness.history FILE
"""

import argparse
import sys
from pathlib import Path

from harness.history.events import decode_events
from harness.history.judge import Judge


def main() -> int:
    """Print each finding, and return 1 if there are any."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip().splitlines()[0])
    parser.add_argument("file", type=Path, help="a file of harness.history.events")
    arguments = parser.parse_args()
    judge = Judge()
    with arguments.file.open("rb") as lines:
        found = [finding for event in decode_events(lines) for finding in judge.take(event)]
    for each in found:
        print(each)
    print(
        f"{judge.line} events, {judge.gaps} gaps, {len(found)} findings; in the end: {judge.debts() or 'nothing owed'}"
    )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
