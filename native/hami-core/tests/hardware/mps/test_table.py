"""
The table of MPS in fake_driver/README.md and the tests of this folder belong together.
"""

import re
from pathlib import Path

from containers import HERE


def test_each_row_of_the_table_has_its_test() -> None:
    """
    In the file of its section, in the same order. Each test has its row.
    """
    table = (HERE / "fake_driver/README.md").read_text().partition("## MPS")[2].partition("\n## ")[0]
    sections = re.findall(
        r"^\| \*\*\w+\*\*.*\(\.\./hardware/mps/(test_\w+\.py)\) \|\n((?:\|.*\n)+?)(?=\| \*\*|\n)", table, re.M
    )
    named = {file: re.findall(r"\| `(test_\w+)` \|$", rows, re.M) for file, rows in sections}
    folder = Path(__file__).parent
    files = sorted(path for path in folder.glob("test_*.py") if path.name != Path(__file__).name)

    assert {path.name: re.findall(r"^def (test_\w+)", path.read_text(), re.M) for path in files} == named
