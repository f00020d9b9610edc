"""
The page shows the table that is tested, and the table is complete.
"""

from dra.page import PAGE, with_table
from dra.table import HISTORIES, ROWS, Form


def test_page_has_the_table() -> None:
    """`python -m dra` writes it."""
    text = PAGE.read_text(encoding="utf-8")

    assert text == with_table(text)


def test_table_has_each_history_and_form_once() -> None:
    """A row that is missing would be a Pod that nobody measured."""
    assert [(history, form) for history in HISTORIES for form in Form] == [(row.history, row.form) for row in ROWS]
