"""
Locks, weights, lists, booleans and policies as HAMi reads them.
"""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from hamicommon.wire.device_lists import on_both, on_either, type_allowed, uuid_allowed
from hamicommon.wire.errors import DecodeError
from hamicommon.wire.go.strconv import parse_bool
from hamicommon.wire.node_lock import decode_node_lock, encode_node_lock
from hamicommon.wire.policies import DEVICE_POLICIES, decode_device_policies, decode_scoring_weights

VECTORS = Path(__file__).parents[1] / "vectors"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def cases(path: str) -> list[Any]:
    """Return the cases of a file, each under its name."""
    return [pytest.param(case, id=case["case"]) for case in json.loads((VECTORS / path).read_text("utf-8"))]


@pytest.mark.parametrize("case", cases("node-lock/texts.json"))
def test_lock_is_read_as_hami_reads_it(case: dict[str, Any]) -> None:
    """A lock yields its time and owner; what we write for it reads the same."""
    if "error" in case["parsed"]:
        with pytest.raises(DecodeError):
            decode_node_lock(case["text"])
    else:
        lock = decode_node_lock(case["text"])
        unix = -lock.time.age(EPOCH) // timedelta(seconds=1)
        assert case["parsed"]["value"] == {"unix": unix, "namespace": lock.namespace or "", "name": lock.pod or ""}
        assert lock == decode_node_lock(encode_node_lock(lock))


@pytest.mark.parametrize("case", cases("scoring-weights/texts.json"))
def test_scoring_weights_are_read_as_hami_reads_them(case: dict[str, Any]) -> None:
    """Three weights, each once, in any order; anything else is refused."""
    if "error" in case["parsed"]:
        with pytest.raises(DecodeError):
            decode_scoring_weights(case["text"])
    else:
        weights = decode_scoring_weights(case["text"])
        assert case["parsed"]["value"] == {"slot": weights.slot, "core": weights.core, "memory": weights.memory}


@pytest.mark.parametrize("case", cases("device-lists/lists.json"))
def test_list_allows_what_hami_allows(case: dict[str, Any]) -> None:
    """UUIDs match exactly, models by a part of their name, in any case."""
    allowed = uuid_allowed if case["kind"] == "uuid" else type_allowed
    assert case["allowed"] is allowed(case["use"], case["nouse"], case["device"])


@pytest.mark.parametrize("case", cases("policies/texts.json"))
def test_truth_value_and_policy_list_mean_what_they_mean_to_hami(case: dict[str, Any]) -> None:
    """An unreadable truth value counts as false; unknown policies count as none."""
    if case["kind"] == "numa-bind":
        assert case["parsed"]["value"] is bool(parse_bool(case["text"]))
    else:
        named = decode_device_policies(case["text"])
        assert case["parsed"]["value"] == {policy: policy in named for policy in DEVICE_POLICIES}


@pytest.mark.parametrize(
    ("one", "other", "both", "either"),
    [
        (None, None, None, None),
        (None, "GPU-a", "GPU-a", "GPU-a"),
        ("GPU-a", None, "GPU-a", "GPU-a"),
        ("GPU-a", " ", "GPU-a", "GPU-a, "),
        ("GPU-a,GPU-b", "GPU-b,GPU-c", "GPU-b", "GPU-a,GPU-b,GPU-b,GPU-c"),
        ("GPU-a", "GPU-b", ",", "GPU-a,GPU-b"),
    ],
)
def test_two_lists_are_joined(one: str | None, other: str | None, both: str | None, either: str | None) -> None:
    """A list without effect changes nothing. Lists without a common device allow none."""
    assert (both, either) == (on_both(one, other), on_either(one, other))
