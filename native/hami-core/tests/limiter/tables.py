"""
Tables of the pages in Markdown.
"""

from collections.abc import Iterable


def table(head: Iterable[str], body: Iterable[Iterable[str]]) -> str:
    """Return a table with a head."""
    lines = [list(head), *(list(row) for row in body)]
    lines.insert(1, ["---"] * len(lines[0]))
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"
