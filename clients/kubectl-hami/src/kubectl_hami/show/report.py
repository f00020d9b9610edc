"""
The scheduler's reports, in its own words.
"""

from collections.abc import Sequence
from typing import Any

from rich.console import Console

from hamicommon.explanation import page
from kubectl_hami.show.form import written

_PAPER_COLUMNS = 120
"""The width of output that goes to no terminal, as the scheduler's own command has it."""


def report_text(
    reports: Sequence[dict[str, Any]], form: str, console: Console, *, is_whole: bool, is_list: bool
) -> str:
    """Return *reports* as `text`, `json` or `yaml`; with *is_list* one report is still a list."""
    if form != "text":
        return written(list(reports) if is_list else reports[0], form)
    columns = console.width if console.is_terminal else _PAPER_COLUMNS
    is_coloured = console.is_terminal and not console.no_color
    return "\n".join(page(report, columns=columns, is_coloured=is_coloured, is_whole=is_whole) for report in reports)
