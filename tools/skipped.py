"""
Print which tests a run of all parts skipped, with the reasons.

    skipped.py FILE

Owns the last lines of `make test`. Neighbours: conftest.py writes FILE, a line for each skipped test.
"""

import json
import sys
from collections import Counter
from pathlib import Path


def report(lines: list[str]) -> str:
    """Return a paragraph for each reason, the most frequent first: how many tests of which files it skips."""
    skipped = Counter(tuple(json.loads(line)) for line in lines)
    reasons: Counter[str] = Counter()
    for (_, reason), count in skipped.items():
        reasons[reason] += count
    text = [f"skipped: {sum(reasons.values())} tests"]
    for reason, count in reasons.most_common():
        text.append(f"{count:5} {reason}")
        text += [
            f"      {file}: {skipped[file, reason]}" for file in sorted(file for file, why in skipped if why == reason)
        ]
    return "\n".join(text)


if __name__ == "__main__":
    file = Path(sys.argv[1])
    print(report(file.read_text(encoding="utf-8").splitlines() if file.exists() else []))
