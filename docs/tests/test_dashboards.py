"""The page for operators lists the panels of the dashboards."""

import json
import re
from pathlib import Path

import pytest

from .pages import DOCS, ROOT


@pytest.mark.parametrize("path", sorted((ROOT / "charts/hami/dashboards").glob("*.json")), ids=lambda path: path.stem)
def test_panels_of_a_dashboard_are_those_of_the_page(path: Path) -> None:
    """Each stands in the row of the question that it answers."""
    dashboard = json.loads(path.read_text())
    _, after = (DOCS / "operate.md").read_text().split(f"| In *{dashboard['title']}* | Panels |\n")
    rows = [row.split("|")[2] for row in after.split("\n\n")[0].splitlines()[1:]]
    listed = [title for row in rows for title in re.findall(r"\*([^*]+)\*", row)]

    assert sorted(panel["title"] for panel in dashboard["panels"]) == sorted(listed)
