"""
The table as Markdown, in docs/dra-nodes.md.

Owns the place of the table on the page. The page's other sentences are written by hand.
"""

from pathlib import Path

from bench.report.tables import replaced, table
from dra.table import ROWS, Kind

PAGE = Path(__file__).resolve().parents[2] / "docs/dra-nodes.md"
COMMAND = "python -m dra"
"""What the mark of the page names."""


def with_table(text: str) -> str:
    """Return the page *text* with the table of today. Raises: ValueError if a mark is missing."""
    head = ["DeviceClasses", "Pod", *(f"*{kind}* Node" for kind in Kind)]
    rows = [[row.history, row.form.value, *(row.outcome(kind) for kind in Kind)] for row in ROWS]
    return replaced(text, table(head, rows, texts=len(head)), COMMAND)
