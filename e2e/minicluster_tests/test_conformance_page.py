"""
The conformance page lists what the tests say.
"""

import re
from pathlib import Path

import pytest

from conformance import kinds
from conformance.page import PAGE, REQUIRED, IncompleteError, Run, cell, page, sections
from controlplane.nvidia import KINDS


def test_page_lists_exactly_the_behaviours_that_are_tested() -> None:
    """
    A command writes the page after the runs. It is out of date once a test is added, removed or reworded.
    """
    clusters = PAGE.read_text(encoding="utf-8").partition(kinds.TITLE)[0]
    listed = re.findall(r"^\| (.*?) \| ✓ \|.* \|$", clusters, re.MULTILINE)

    expected = [cell(behaviour) for section in sections() for behaviour in section.behaviours]
    assert expected == listed


def test_promise_that_failed_on_a_kind_is_not_on_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The message names the kind and the test. A run on the embedded cluster records nothing.
    """
    monkeypatch.setattr(kinds, "FOLDER", tmp_path)
    names = [promise.name.partition("::")[2] for promise in kinds.promises()]
    for kind in KINDS:
        for name in names:
            kinds.record(f"e2e/promises/shares/test_node_kinds.py::{name}[{kind}]@node-kinds", has_passed=True)
    assert "| plain |" in kinds.part()
    kinds.record(f"e2e/promises/shares/test_node_kinds.py::{names[0]}[plain]", has_passed=False)
    kinds.record(f"e2e/promises/shares/test_identity.py::{names[0]}", has_passed=False)

    with pytest.raises(IncompleteError, match=f"no valid result of:\nplain: .*::{names[0]}$"):
        kinds.part()


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
