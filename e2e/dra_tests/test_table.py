"""
Every row of the table, measured.
"""

import pytest

from dra.extender import Answers
from dra.stage import Stage
from dra.table import HISTORIES, ROWS, Form, Kind, Row

pytestmark = [pytest.mark.real_only, pytest.mark.timeout(600)]

OUTCOMES = {Answers.ANY: Row.outcome, Answers.OURS: Row.today, Answers.NONE: Row.without_extender}


@pytest.mark.parametrize("history", HISTORIES)
async def test_pod_goes_where_the_table_says(stage: Stage, history: str) -> None:
    """With an extender that accepts every Node, with our scheduler, and while no extender answers."""
    rows = {row.form: row for row in ROWS if row.history == history}
    await stage.replay(history)

    for answers, outcome in OUTCOMES.items():
        expected = {(form, kind): outcome(rows[form], kind) for form in Form for kind in Kind}
        assert expected == await stage.measure(answers, expected), answers
