"""
The limits file of a container: limits, or DecodeError; what was read can be written, and is read as the same.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from fuzz.targets.forms import VECTORS, cases
from hamicommon.wire.errors import DecodeError
from hamicommon.wire.limits_file import decode_limits_file, encode_limits_file

INPUTS: Final = 60_000
IS_JSON: Final = False


def check(data: bytes) -> None:
    """Read a file, write it and read it again."""
    with suppress(DecodeError):
        file = decode_limits_file(data)
        assert file == decode_limits_file(encode_limits_file(file))


def seeds() -> Iterator[bytes]:
    """Return the files of the vectors."""
    yield from (case["text"].encode() for case in cases(VECTORS / "limits-file/files.json"))
