"""
What happens when two changes of a container meet.
"""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hami_device_plugin.decide.allocate.cdi.edits import Edits, SpecError, decode_edits, encode_edits

NAMES = st.sampled_from(["a", "b", "c"])
PATHS = st.sampled_from(["/a", "/a/b", "/c", "/c/d/e"])
EDITS = st.builds(
    lambda env, nodes, mounts, hooks, gids: decode_edits(
        {
            "env": [f"{name}={value}" for name, value in env],
            "deviceNodes": [{"path": path, "major": major} for path, major in nodes],
            "mounts": [{"containerPath": path, "hostPath": host} for path, host in mounts],
            "hooks": [{"hookName": "createContainer", "path": path} for path in hooks],
            "additionalGids": gids,
        },
        "test",
    ),
    st.lists(st.tuples(NAMES, st.text(max_size=2))),
    st.lists(st.tuples(PATHS, st.integers(0, 3))),
    st.lists(st.tuples(PATHS, PATHS)),
    st.lists(PATHS),
    st.lists(st.integers(0, 3), unique=True),
)


@pytest.mark.property
@given(EDITS, EDITS, EDITS)
def test_joining_does_not_depend_on_grouping(first: Edits, second: Edits, third: Edits) -> None:
    """And edits that change nothing change nothing."""
    assert (first + second) + third == first + (second + third)
    assert encode_edits(first) == encode_edits(Edits() + first) == encode_edits(first + Edits() + first)


@pytest.mark.property
@given(EDITS, EDITS)
def test_later_edits_count_and_nothing_is_twice(first: Edits, second: Edits) -> None:
    """Every variable, path, hook and group of both is there, with the later value."""
    content = encode_edits(first + second)
    joined = decode_edits(content, "joined")

    assert (joined.env, joined.mounts) == ({**first.env, **second.env}, {**first.mounts, **second.mounts})
    assert joined.device_nodes == {**first.device_nodes, **second.device_nodes}
    assert {str(hook) for hook in joined.hooks} == {str(hook) for hook in (*first.hooks, *second.hooks)}
    assert set(joined.others["additionalGids"]) == {*first.others["additionalGids"], *second.others["additionalGids"]}
    for entries in content.values():
        assert len(entries) == len({str(entry) for entry in entries})


@pytest.mark.property
@given(EDITS, EDITS)
def test_parents_are_mounted_before_their_children(first: Edits, second: Edits) -> None:
    """Not every runtime sorts mounts."""
    paths = [mount["containerPath"] for mount in encode_edits(first + second).get("mounts", ())]

    assert not [
        (early, late)
        for index, early in enumerate(paths)
        for late in paths[index + 1 :]
        if early.startswith(f"{late}/")
    ]


def test_fields_of_later_versions_are_kept() -> None:
    """Lists are joined; of anything else the later counts."""
    first = {"netDevices": [{"hostInterfaceName": "a"}], "intelRdt": {"closID": "x"}}
    second = {"netDevices": [{"hostInterfaceName": "b"}], "intelRdt": {"closID": "y"}}

    assert {
        "netDevices": [{"hostInterfaceName": "a"}, {"hostInterfaceName": "b"}],
        "intelRdt": {"closID": "y"},
    } == encode_edits(decode_edits(first, "a") + decode_edits(second, "b"))


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ([], "device x is not an object"),
        ({"env": "A=b"}, "device x.env is not a list"),
        ({"env": ["A"]}, "device x.env: 'A' is not NAME=VALUE"),
        ({"env": [1]}, "device x.env: 1 is not NAME=VALUE"),
        ({"env": ["=b"]}, "device x.env: '=b' is not NAME=VALUE"),
        ({"deviceNodes": [{}]}, "device x.deviceNodes: {} has no path"),
        ({"mounts": ["/a"]}, "device x.mounts: '/a' has no containerPath"),
        ({"mounts": [{"containerPath": ""}]}, "device x.mounts: {'containerPath': ''} has no containerPath"),
        ({"hooks": [{"hookName": "prestart"}]}, "device x.hooks: {'hookName': 'prestart'} has no path"),
    ],
)
def test_edits_of_another_form_are_refused(content: Any, problem: str) -> None:
    """With the place, the entry and what is missing."""
    with pytest.raises(SpecError) as error:
        decode_edits(content, "device x")

    assert problem == str(error.value)
