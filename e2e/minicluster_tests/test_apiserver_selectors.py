"""
Label and field selectors select the right objects.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minicluster.selection import SelectorError, field_selector, label_selector, label_selector_object

LABELS = {"tier": "a", "gpu": "on", "slots": "8", "nvidia.com/gpu.present": "true"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tier=a", True),
        ("tier==b", False),
        ("tier!=b", True),
        ("missing!=b", True),
        ("tier in (a, b)", True),
        ("tier notin (a,b)", False),
        ("missing notin (a)", True),
        ("gpu", True),
        ("!gpu", False),
        ("! missing", True),
        ("slots>7", True),
        ("slots > 8", False),
        ("slots<9,tier in (a),!missing", True),
        ("tier>1", False),
        ("nvidia.com/gpu.present=true", True),
        ("missing=", False),
    ],
)
def test_label_selector_text_selects(text: str, expected: bool) -> None:
    """
    All operators, alone and combined.
    """
    selects = label_selector(text)

    assert selects is not None
    assert expected is selects(LABELS)


@pytest.mark.parametrize("text", ["a in b", "a in (b", "=b", "a>x", "a b", "(a)"])
def test_invalid_label_selector_is_rejected(text: str) -> None:
    """
    A selector that cannot be parsed must not select everything.
    """
    with pytest.raises(SelectorError):
        label_selector(text)


def test_empty_selectors_select_everything() -> None:
    """
    No text means no requirement.
    """
    assert None is label_selector("")
    assert None is field_selector("", ())
    assert label_selector_object({})({})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("spec.nodeName=n1", True),
        ("spec.nodeName!=n1", False),
        ("spec.nodeName==n1,status.phase!=Failed", True),
        ("status.phase=", True),
        ("spec.nodeName=", False),
    ],
)
def test_field_selector_compares_and_takes_absent_fields_as_empty(text: str, expected: bool) -> None:
    """
    Clients find unbound Pods with `spec.nodeName=`.
    """
    selects = field_selector(text, ("spec.nodeName", "status.phase"))

    assert selects is not None
    assert expected is selects({"spec.nodeName": "n1", "status.phase": ""})


def test_field_selector_on_an_unsupported_field_is_rejected() -> None:
    """
    Only some fields are selectable, and an empty list would be wrong.
    """
    with pytest.raises(SelectorError, match=r"field label not supported: spec\.hostname"):
        field_selector("spec.hostname=x", ("spec.nodeName",))


KEYS = st.sampled_from(["a", "b", "c"])
VALUES = st.sampled_from(["x", "y", "1"])


@pytest.mark.property
@given(
    st.dictionaries(KEYS, VALUES),
    KEYS,
    st.lists(VALUES, min_size=1, max_size=3),
    st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist"]),
)
def test_text_and_object_of_a_requirement_agree(
    labels: dict[str, str], key: str, values: list[str], operator: str
) -> None:
    """
    The selector of a list and that of a webhook have the same meaning.
    """
    listed = f"({','.join(values)})"
    text = {"In": f"{key} in {listed}", "NotIn": f"{key} notin {listed}", "Exists": key, "DoesNotExist": f"!{key}"}
    requirement = {"key": key, "operator": operator, "values": values}

    selects = label_selector(text[operator])
    assert selects is not None
    assert label_selector_object({"matchExpressions": [requirement]})(labels) is selects(labels)


@pytest.mark.property
@given(st.dictionaries(KEYS, VALUES), KEYS, st.lists(VALUES, min_size=1, max_size=3))
def test_every_operator_is_the_negation_of_its_opposite(labels: dict[str, str], key: str, values: list[str]) -> None:
    """
    Every label set matches exactly one of In and NotIn, and one of Exists and DoesNotExist.
    """
    pairs = [(f"{key} in ({','.join(values)})", f"{key} notin ({','.join(values)})"), (key, f"!{key}")]
    for text, opposite in pairs:
        selects, rejects = label_selector(text), label_selector(opposite)
        assert selects is not None
        assert rejects is not None
        assert selects(labels) is not rejects(labels)
