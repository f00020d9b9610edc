"""
JSON Patch: minimal, and right for any two documents.
"""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hami_webhook.decide.patch import diff

from .json_patch import applied


def canonical(document: Any) -> str:
    """Return one text for *document*; Python's `==` equates true and 1."""
    return json.dumps(document, sort_keys=True)


@pytest.mark.parametrize(
    ("before", "after", "patch"),
    [
        ({"a": 1}, {"a": 1}, []),
        ({}, {"a": {"b": 1}}, [{"op": "add", "path": "/a", "value": {"b": 1}}]),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 1}}, [{"op": "remove", "path": "/a/c"}]),
        ({"x/y~z": 1}, {"x/y~z": 2}, [{"op": "replace", "path": "/x~1y~0z", "value": 2}]),
        ([1, 2, 3], [1], [{"op": "remove", "path": "/2"}, {"op": "remove", "path": "/1"}]),
        ({"a": True}, {"a": 1}, [{"op": "replace", "path": "/a", "value": 1}]),
        ({"a": None}, {"a": {}}, [{"op": "replace", "path": "/a", "value": {}}]),
    ],
)
def test_a_patch_has_one_operation_a_change(before: Any, after: Any, patch: list[Any]) -> None:
    """Unchanged values have no operation."""
    assert patch == diff(before, after)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("ab/~", max_size=3), inner, max_size=4),
    max_leaves=15,
)


@pytest.mark.property
@given(JSON, JSON)
def test_the_patch_leads_from_one_document_to_the_other(before: Any, after: Any) -> None:
    """For any two documents."""
    patch = diff(before, after)

    assert canonical(after) == canonical(applied(before, patch))
    assert (canonical(before) == canonical(after)) == (patch == [])


def test_equal_values_that_are_two_objects_are_no_change() -> None:
    """Equal contents are no change."""
    assert [] == diff({"a": "x" * 2, "b": [1000]}, {"a": "".join(["x", "x"]), "b": [int("1000")]})
