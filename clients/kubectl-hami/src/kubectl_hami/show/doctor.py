"""
The table of `doctor`.
"""

from collections.abc import Sequence
from typing import Final

from rich.table import Table
from rich.text import Text

from kubectl_hami.show.table import safe, table
from kubectl_hami.values.diagnosis import Check, Health

_STYLES: Final = {
    Health.GOOD.value: "green",
    Health.UNKNOWN.value: "dim",
    Health.DOUBTFUL.value: "yellow",
    Health.BAD.value: "red",
}


def doctor_table(found: Sequence[Check]) -> Table:
    """Return a row for each check, with its mend."""
    rows = [
        (one.name, Text(one.health, style=_STYLES[one.health]), Text(safe(one.found)), Text(safe(one.fix)))
        for one in found
    ]
    return table(("CHECK", "VERDICT", "~FOUND", "~FIX"), rows)
