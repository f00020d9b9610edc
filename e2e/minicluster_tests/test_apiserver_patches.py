"""
The three patch forms do what their specifications say.
"""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minicluster.apiserver.api.patches import PatchError, json_patch, merge, strategic

PLAIN = st.none() | st.booleans() | st.integers(-3, 3) | st.text("ab", max_size=2)
KEYS = st.text("abc", min_size=1, max_size=2)
JSON = st.recursive(PLAIN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3))
OBJECTS = st.dictionaries(KEYS, JSON, max_size=4)


def without_nulls(found: Any) -> Any:
    """Return *found* without null members, which no merge patch can produce."""
    if not isinstance(found, dict):
        return found
    return {key: without_nulls(value) for key, value in found.items() if value is not None}


def difference(old: Any, new: Any) -> Any:
    """Return a merge patch that makes *new* of *old*."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    removed = {key: None for key in old if key not in new}
    return removed | {key: difference(old.get(key), value) for key, value in new.items() if old.get(key) != value}


RFC_7396 = [
    ({"a": "b"}, {"a": "c"}, {"a": "c"}),
    ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
    ({"a": "b"}, {"a": None}, {}),
    ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
    ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
    ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
    ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
    ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
    (["a", "b"], ["c", "d"], ["c", "d"]),
    ({"a": "b"}, ["c"], ["c"]),
    ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
    ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
    ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
]


@pytest.mark.parametrize(("target", "patch", "expected"), RFC_7396)
def test_merge_patch_agrees_with_the_examples_of_rfc_7396(target: Any, patch: Any, expected: Any) -> None:
    """
    The examples are in appendix A of the RFC.
    """
    assert expected == merge(target, patch)


@pytest.mark.property
@given(OBJECTS, OBJECTS)
def test_merge_patch_of_a_difference_yields_the_new_object(old: Any, new: Any) -> None:
    """
    The difference of two objects without null values, as a patch, changes one into the other.
    """
    old, new = without_nulls(old), without_nulls(new)

    assert without_nulls(new) == without_nulls(merge(old, difference(old, new)))


@pytest.mark.property
@given(OBJECTS, OBJECTS)
def test_patching_twice_is_patching_once(target: Any, patch: Any) -> None:
    """
    Merge patches and directive-free strategic patches are idempotent.
    """
    once = merge(target, patch)

    assert once == merge(once, patch)
    assert strategic(strategic(target, patch), patch) == strategic(target, patch)


@pytest.mark.property
@given(OBJECTS, OBJECTS)
def test_patches_do_not_change_their_target(target: Any, patch: Any) -> None:
    """
    A patch makes a new object, because the stored one is shared.
    """
    before = repr(target)

    merge(target, patch)
    strategic(target, patch)
    json_patch(target, [{"op": "add", "path": f"/{key}", "value": value} for key, value in patch.items()])

    assert before == repr(target)


RFC_6902 = [
    ("add member", {"foo": "bar"}, [{"op": "add", "path": "/baz", "value": "qux"}], {"baz": "qux", "foo": "bar"}),
    ("add element", {"a": [1, 3]}, [{"op": "add", "path": "/a/1", "value": 2}], {"a": [1, 2, 3]}),
    ("append", {"a": [1]}, [{"op": "add", "path": "/a/-", "value": 2}], {"a": [1, 2]}),
    ("remove element", {"a": [1, 2, 3]}, [{"op": "remove", "path": "/a/1"}], {"a": [1, 3]}),
    ("replace", {"a": 1}, [{"op": "replace", "path": "/a", "value": 2}], {"a": 2}),
    ("replace element", {"a": [1, 2]}, [{"op": "replace", "path": "/a/0", "value": 3}], {"a": [3, 2]}),
    ("move", {"a": {"b": 1}, "c": {}}, [{"op": "move", "from": "/a/b", "path": "/c/d"}], {"a": {}, "c": {"d": 1}}),
    ("copy", {"a": {"b": 1}}, [{"op": "copy", "from": "/a", "path": "/c"}], {"a": {"b": 1}, "c": {"b": 1}}),
    ("test", {"a~/b": 1}, [{"op": "test", "path": "/a~0~1b", "value": 1}], {"a~/b": 1}),
    ("whole", {"a": 1}, [{"op": "add", "path": "", "value": {"b": 2}}], {"b": 2}),
]


@pytest.mark.parametrize(
    ("target", "patch", "expected"), [row[1:] for row in RFC_6902], ids=[row[0] for row in RFC_6902]
)
def test_json_patch_agrees_with_rfc_6902(target: Any, patch: Any, expected: Any) -> None:
    """
    Every operation, with escaped and empty pointers.
    """
    assert expected == json_patch(target, patch)


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "remove", "path": "/b"},
        {"op": "replace", "path": "/b/c", "value": 1},
        {"op": "replace", "path": "/l/2", "value": 1},
        {"op": "add", "path": "/b/c", "value": 1},
        {"op": "add", "path": "/l/3", "value": 1},
        {"op": "add", "path": "/l/01", "value": 1},
        {"op": "test", "path": "/a", "value": True},
        {"op": "move", "from": "/o", "path": "/o/p"},
        {"op": "add", "path": "a", "value": 1},
        {"op": "add", "path": "/a"},
        {"op": "frob", "path": "/a"},
        {"path": 1},
    ],
)
def test_json_patch_that_does_not_fit_is_an_error(operation: Any) -> None:
    """
    Missing paths, invalid indices and unknown operations fail.
    """
    with pytest.raises(PatchError):
        json_patch({"a": 1, "l": [1, 2], "o": {}}, [operation])


def test_strategic_patch_merges_containers_by_name_and_env_by_name() -> None:
    """
    Only one variable of one container changes.
    """
    pod = {"spec": {"containers": [{"name": "a", "env": [{"name": "X", "value": "1"}]}, {"name": "b", "image": "i"}]}}
    patch = {"spec": {"containers": [{"name": "a", "env": [{"name": "Y", "value": "2"}]}]}}

    env = [{"name": "X", "value": "1"}, {"name": "Y", "value": "2"}]
    expected = {"spec": {"containers": [{"name": "a", "env": env}, {"name": "b", "image": "i"}]}}
    assert expected == strategic(pod, patch)


def test_strategic_patch_replaces_tolerations_and_taints_as_a_whole() -> None:
    """
    These lists have no merge key in the API.
    """
    found = {"tolerations": [{"key": "a"}], "taints": [{"key": "a"}]}
    patch = {"tolerations": [{"key": "b"}], "taints": [{"key": "b"}]}

    assert patch == strategic(found, patch)


def test_strategic_patch_merges_conditions_by_type_and_owners_by_uid() -> None:
    """
    A writer of one condition does not remove those of others.
    """
    found = {"conditions": [{"type": "Ready", "status": "False"}], "ownerReferences": [{"uid": "1", "name": "a"}]}
    patch = {
        "conditions": [{"type": "Ready", "status": "True"}, {"type": "X", "status": "True"}],
        "ownerReferences": [{"uid": "2", "name": "b"}],
    }

    expected = {
        "conditions": patch["conditions"],
        "ownerReferences": [*found["ownerReferences"], {"uid": "2", "name": "b"}],
    }
    assert expected == strategic(found, patch)


@pytest.mark.parametrize(
    ("patch", "expected"),
    [
        ({"env": [{"name": "a", "$patch": "delete"}]}, {"env": [{"name": "b"}], "finalizers": ["x", "y"]}),
        ({"env": [{"$patch": "replace"}, {"name": "c"}]}, {"env": [{"name": "c"}], "finalizers": ["x", "y"]}),
        ({"$patch": "replace", "k": 1}, {"k": 1}),
        ({"$patch": "delete"}, {}),
        ({"$deleteFromPrimitiveList/finalizers": ["x"]}, {"env": [{"name": "a"}, {"name": "b"}], "finalizers": ["y"]}),
        ({"finalizers": ["z", "x"]}, {"env": [{"name": "a"}, {"name": "b"}], "finalizers": ["x", "y", "z"]}),
        (
            {"$setElementOrder/env": [{"name": "b"}, {"name": "a"}]},
            {"env": [{"name": "b"}, {"name": "a"}], "finalizers": ["x", "y"]},
        ),
        (
            {"$retainKeys": ["env"], "env": [{"name": "b", "value": "1"}]},
            {"env": [{"name": "a"}, {"name": "b", "value": "1"}]},
        ),
    ],
)
def test_strategic_patch_obeys_its_directives(patch: Any, expected: Any) -> None:
    """
    The directives are those of kubectl.
    """
    found = {"env": [{"name": "a"}, {"name": "b"}], "finalizers": ["x", "y"]}

    assert expected == strategic(found, patch)


@pytest.mark.parametrize("patch", [{"$patch": "frob"}, {"env": [{"value": "no name"}]}])
def test_invalid_strategic_patch_is_an_error(patch: Any) -> None:
    """
    An unknown directive and an item without its merge key cannot be applied.
    """
    with pytest.raises(PatchError):
        strategic({}, patch)
