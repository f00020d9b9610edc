"""
The tables in SECURITY.md have the drills.
"""

from pathlib import Path

from drills import table
from drills.table import PAGE, TABLES, replaced


def test_page_has_a_row_with_the_promises_of_each_drill() -> None:
    """And no other row. `PYTHONPATH=e2e .venv/bin/python -m drills.table` writes them."""
    page = PAGE.read_text()

    assert replaced(page) == page


def test_each_test_of_this_folder_is_a_drill() -> None:
    """Without a row in the table, nobody would know what it promises."""
    files = {path.stem for path in Path(table.__file__).parent.glob("test_*.py")}

    assert {f"test_{name}" for one in TABLES for name in one.modules} == files - {"test_table"}
    assert [] == [test.__name__ for one in TABLES for test in one.tests() if not hasattr(test, "drill")]
