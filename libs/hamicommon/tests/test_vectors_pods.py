"""
Texts that HAMi wrote for Pods, and how it read them: `vectors/pod-devices`, `mig-allocations`, `mig-suffix`.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from hamicommon.model import MigAllocation, MigPlacement, PodShares, Share
from hamicommon.wire.errors import DecodeError, EncodeError
from hamicommon.wire.mig import decode_mig_allocations, decode_mig_suffix, encode_mig_allocations
from hamicommon.wire.pod_devices import decode_pod_devices, encode_pod_devices
from hamicommon.wire.version import WireVersion

VECTORS = Path(__file__).parents[1] / "vectors"


def cases(path: str) -> list[Any]:
    """Return the cases of a file, each under its name."""
    return [pytest.param(case, id=case["case"]) for case in json.loads((VECTORS / path).read_text("utf-8"))]


def a_pod(containers: list[list[dict[str, Any]]]) -> PodShares:
    """Return the shares that HAMi's words describe; its placeholders without UUID are no shares."""
    return tuple(
        tuple(Share(one["uuid"], one["type"], one["mem"], one["cores"]) for one in container if one["uuid"])
        for container in containers
    )


def assert_read_as(answer: dict[str, Any], text: str) -> None:
    """Check that *text* is refused where *answer* is an error, and yields its shares where not."""
    if "error" in answer:
        with pytest.raises(DecodeError):
            decode_pod_devices(text)
    else:
        assert a_pod(answer["value"]) == decode_pod_devices(text)


@pytest.mark.parametrize("case", cases("pod-devices/odd.json"))
def test_odd_grant_is_read_as_hami_reads_it(case: dict[str, Any]) -> None:
    """Malformed amounts are refused, anything else yields one entry per part."""
    assert_read_as(case["decoded_by_v2.10.0"], case["text"])


@pytest.mark.parametrize("case", cases("pod-devices/written.json"))
def test_grant_is_read_and_written_as_every_version_does(case: dict[str, Any]) -> None:
    """All versions write one text for the same grant; so do we, for each of them."""
    shares = a_pod(case["containers"])
    names = [name for container in shares for share in container for name in (share.uuid, share.type)]
    for written in case["texts"]:
        assert_read_as(written["decoded_by_v2.10.0"], written["text"])
        for writer in written["written_by"]:
            version = WireVersion.parse(writer)
            if any(separator in name for name in names for separator in ",:;"):
                with pytest.raises(EncodeError):
                    encode_pod_devices(shares, version)
            else:
                assert written["text"] == encode_pod_devices(shares, version)


def an_allocation(written: dict[str, Any]) -> MigAllocation:
    """Return the allocation that HAMi's JSON *written* describes."""
    return MigAllocation(
        written.get("containerIndex", 0),
        written.get("deviceIndex", 0),
        written["gpuUUID"],
        written["profile"],
        MigPlacement(written["placement"]["start"], written["placement"]["size"]),
        written.get("migUUID") or None,
        written.get("gpuInstanceID"),
        written.get("computeInstanceID"),
    )


@pytest.mark.parametrize("case", cases("mig-allocations/texts.json"))
def test_mig_allocations_are_read_as_hami_reads_them(case: dict[str, Any]) -> None:
    """One bad entry refuses the list; what is accepted survives writing and reading."""
    if "error" in case["parsed"]:
        with pytest.raises(DecodeError):
            decode_mig_allocations(case["text"])
    else:
        expected = tuple(map(an_allocation, case["parsed"]["value"] or ()))
        assert expected == decode_mig_allocations(case["text"])
        assert expected == decode_mig_allocations(encode_mig_allocations(expected))


@pytest.mark.parametrize("case", cases("mig-suffix/texts.json"))
def test_mig_suffix_is_read_as_hami_reads_it(case: dict[str, Any]) -> None:
    """Where HAMi refuses a UUID without any bracket, it has no suffix; every other refusal is ours too."""
    uuid = case["text"]
    if "value" in case["parsed"]:
        expected = tuple(case["parsed"]["value"])
        assert (uuid[: uuid.index("[")], expected) == decode_mig_suffix(uuid)
    elif "[" in uuid or "]" in uuid:
        with pytest.raises(DecodeError):
            decode_mig_suffix(uuid)
    else:
        assert (uuid, None) == decode_mig_suffix(uuid)
