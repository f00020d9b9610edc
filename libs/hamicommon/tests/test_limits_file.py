"""
The limits file: what the decoder accepts, and that it reads what the encoder writes.
"""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hamicommon.wire.errors import DecodeError, EncodeError
from hamicommon.wire.limits_file import (
    DEVICES_MAX,
    DeviceLimits,
    LimitsFile,
    decode_limits_file,
    encode_limits_file,
)

VECTORS = Path(__file__).parents[1] / "vectors/limits-file/files.json"
CASES = [pytest.param(case, id=case["case"]) for case in json.loads(VECTORS.read_text("utf-8"))]
NAMES = st.from_regex(r"[A-Z][A-Z0-9_]{0,30}", fullmatch=True)
FILES = st.builds(
    LimitsFile,
    st.dictionaries(
        st.uuids().map(lambda uuid: f"GPU-{uuid}"),
        st.builds(DeviceLimits, st.integers(0, 2**64 - 1), st.integers(1, 100)),
        max_size=DEVICES_MAX,
    ),
    st.dictionaries(NAMES, st.text(st.characters(exclude_characters="\n\0", codec="utf-8"), max_size=80), max_size=8),
)


@pytest.mark.parametrize("case", CASES)
def test_file_is_read_or_refused_as_a_whole(case: dict[str, Any]) -> None:
    """
    A device line has three fields, a variable has a name, and nothing else is a line.
    """
    content = case["text"].encode()
    if "error" in case:
        with pytest.raises(DecodeError):
            decode_limits_file(content)
    else:
        devices = {uuid: DeviceLimits(*limits) for uuid, limits in case["value"]["devices"].items()}
        assert LimitsFile(devices, case["value"]["environment"]) == decode_limits_file(content)


@pytest.mark.property
@given(FILES)
def test_reader_gets_what_was_written(file: LimitsFile) -> None:
    """
    Any devices and variables survive.
    """
    assert file == decode_limits_file(encode_limits_file(file))


@pytest.mark.property
@given(st.binary(max_size=300) | st.text(max_size=300).map(lambda text: f"hami-limits 1\n{text}\n".encode()))
def test_any_bytes_are_a_value_or_a_decode_error(content: bytes) -> None:
    """
    What is accepted can be written again.
    """
    with suppress(DecodeError):
        file = decode_limits_file(content)
        assert file == decode_limits_file(encode_limits_file(file))


@pytest.mark.parametrize(
    "file",
    [
        LimitsFile({"GPU 1": DeviceLimits(1, 1)}),
        LimitsFile({"GPU-1": DeviceLimits(1, 0)}),
        LimitsFile({}, {"A": "x\ny"}),
        LimitsFile({}, {"A=B": "x"}),
        LimitsFile({}, {"A": "x" * 9000}),
    ],
    ids=["uuid-with-a-space", "percent-0", "two-lines", "name-with-equals", "too-long"],
)
def test_what_a_reader_would_read_differently_is_not_written(file: LimitsFile) -> None:
    """
    The encoder refuses it.
    """
    with pytest.raises(EncodeError):
        encode_limits_file(file)


def test_value_that_would_be_read_as_another_line_is_refused() -> None:
    """A line break in a variable would add a line, here one that a reader accepts."""
    with pytest.raises(EncodeError, match="a reader would read differently"):
        encode_limits_file(LimitsFile({}, {"A": "1\nB=2"}))


def test_limits_are_written_a_device_a_line_and_then_the_variables() -> None:
    """The library reads the lines in this order."""
    file = LimitsFile({"GPU-a": DeviceLimits(1 << 30, 50)}, {"CUDA_OVERSUBSCRIBE": "true"})

    assert ["GPU-a 1073741824 50", "CUDA_OVERSUBSCRIBE=true"] == encode_limits_file(file).decode().splitlines()[1:]
