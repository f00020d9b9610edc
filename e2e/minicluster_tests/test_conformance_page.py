"""
The conformance page lists what the tests say.
"""

import re

import pytest

from conformance.page import PAGE, REQUIRED, IncompleteError, Run, cell, page, sections


def test_page_lists_exactly_the_behaviours_that_are_tested() -> None:
    """
    A command writes the page after the runs. It is out of date once a test is added, removed or reworded.
    """
    listed = re.findall(r"^\| (.*?) \| ✓ \|.* \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)

    expected = [cell(behaviour) for section in sections() for behaviour in section.behaviours]
    assert expected == listed


def test_every_behaviour_is_one_unique_sentence() -> None:
    """
    Each starts with a capital and ends with a full stop.
    """
    sentences = [behaviour.sentence for section in sections() for behaviour in section.behaviours]

    assert sorted(set(sentences)) == sorted(sentences)
    assert [] == [sentence for sentence in sentences if not sentence.endswith(".") or sentence[0].islower()]


@pytest.mark.parametrize("cluster", REQUIRED)
def test_page_is_not_written_while_a_behaviour_is_lacking(cluster: str) -> None:
    """
    The message names the run and the test.
    """
    held = {behaviour.name: behaviour.digest for section in sections() for behaviour in section.behaviours}
    found = dict.fromkeys(REQUIRED, Run(held, {})) | {"v1": Run({}, dict.fromkeys(held, "otherwise"))}
    assert "| ✓ | ✓ | otherwise |" in page(found)
    found[cluster] = Run({**held, "test_objects::test_events": "of another text"}, {})

    with pytest.raises(IncompleteError, match=f"no valid result of:\n{cluster}: test_objects::test_events"):
        page(found)
