"""
The events of a JSON watch are the same for any chunks of the network.
"""

from itertools import pairwise
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hamicommon.runtime.api.api_errors import KubeError, Unreachable
from hamicommon.runtime.api.watch_stream import EVENT_BYTES, JsonLines

PATH = "/api/v1/nodes"

objects = st.dictionaries(st.text(max_size=5), st.text(max_size=20), max_size=4)
events = st.tuples(st.sampled_from(["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]), objects)


@given(st.lists(events, max_size=5), st.lists(st.integers(0, 2**16), max_size=8))
def test_events_are_those_that_were_told_however_the_stream_is_cut(
    told: list[tuple[str, dict[str, Any]]], places: list[int]
) -> None:
    """A chunk may end anywhere, also between two events."""
    stream = b"".join(orjson.dumps({"type": kind, "object": item}) + b"\n" for kind, item in told)
    bounds = sorted({0, len(stream), *(place % (len(stream) + 1) for place in places)})
    reader = JsonLines(PATH)

    assert told == [event for begin, end in pairwise(bounds) for event in reader.feed(stream[begin:end])]
    reader.end()


@pytest.mark.parametrize(
    "line", ["-", "7", "[]", '{"type":"ADDED"}', '{"type":"MOVED","object":{}}', '{"type":[],"object":{}}']
)
def test_line_that_is_no_event_is_an_error_that_quotes_it(line: str) -> None:
    """A proxy between the API server and us can answer in its place."""
    with pytest.raises(KubeError, match="NotAnEvent"):
        list(JsonLines(PATH).feed(f"{line}\n".encode()))


def test_line_longer_than_any_object_ends_the_watch() -> None:
    """Memory stays bounded, for any input."""
    reader = JsonLines(PATH)
    assert [] == list(reader.feed(b"x" * EVENT_BYTES))

    with pytest.raises(Unreachable, match="EventTooLong"):
        list(reader.feed(b"x"))
