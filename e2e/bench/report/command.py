"""
The common command line of the benchmarks: flags, output, progress.

Neighbours: `tables` makes the tables.
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
    """Return a parser with `--json` and `--write`, to which a benchmark adds its flags."""
    found = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("--json", action="store_true", help="print figures instead of tables")
    found.add_argument("--write", type=Path, metavar="FILE", help="page whose tables are replaced")
    return found


def tell(given: argparse.Namespace, script: str, figures: Any, tables: str) -> None:
    """Print *figures* or *tables*, and write *tables* between the marks of *script*, as the flags *given* say."""
    print(json.dumps(figures, indent=2) if given.json else tables)
    if given.write:
        given.write.write_text(replaced(given.write.read_text(), tables, f"e2e/bench/{script}.py"))


def progress(text: str) -> None:
    """Print the progress of a long measurement to stderr, with the load average."""
    print(f"{time.strftime('%H:%M:%S')}  load {os.getloadavg()[0]:4.1f}  {text}", file=sys.stderr, flush=True)
