"""
Add the results of campaigns to those that are kept, and write `docs/reliability.md` of all.

    .venv/bin/python -m reliability build/reliability/soak-7.json
"""

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

from reliability.page import KEPT, PAGE, kept, page
from testbed.campaigns import read


def main() -> int:
    """Write the results and the page."""
    parser = argparse.ArgumentParser(prog="python -m reliability", description=(__doc__ or "").strip().splitlines()[0])
    parser.add_argument("files", metavar="FILE", nargs="*", type=Path, help="what a campaign wrote")
    known = kept()
    new = [result for file in parser.parse_args().files if (result := read(file.read_text())) not in known]
    results = sorted([*known, *new], key=lambda result: (result.date, result.campaign))
    KEPT.write_text("".join(json.dumps(asdict(result)) + "\n" for result in results))
    PAGE.write_text(page(PAGE.read_text(), results))
    print(f"{len(new)} results added, {len(results)} in all: {PAGE}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
