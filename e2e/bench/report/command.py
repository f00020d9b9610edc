"""
What the commands of all benchmarks have in common: how figures are asked for, where they go, and what is told before.

Neighbours: `tables` makes pages of figures.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from bench.report.tables import replaced


def parser(description: str | None) -> argparse.ArgumentParser:
    """Return a parser of `--json` and `--write`, to which a benchmark adds its own."""
    found = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("--json", action="store_true", help="print figures, not tables")
    found.add_argument("--write", type=Path, metavar="FILE", help="page to put the tables into")
    return found


def tell(given: argparse.Namespace, script: str, figures: Any, tables: str) -> None:
    """Print *figures* or *tables*, as *given* says, and put *tables* between the marks of *script*."""
    print(json.dumps(figures, indent=2) if given.json else tables)
    if given.write:
        given.write.write_text(replaced(given.write.read_text(), tables, script))


def progress(text: str) -> None:
    """Tell on stderr how far a long measurement is, and how busy the machine."""
    print(f"{time.strftime('%H:%M:%S')}  load {os.getloadavg()[0]:4.1f}  {text}", file=sys.stderr, flush=True)
