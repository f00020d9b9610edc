"""
JSON as Go reads it, `hamicommon.wire.go.json_reader`.

What it reads, Python's own parser reads as the same value; what it writes, it reads again. The first byte of an input
chooses the kind.
"""

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from fuzz.targets.forms import VECTORS, some, text_of
from hamicommon.wire.errors import DecodeError
from hamicommon.wire.go import json_reader as go
from hamicommon.wire.go.json_writer import compact
from hamicommon.wire.go.times import parse_rfc3339

INPUTS: Final = 20_000
IS_JSON: Final = False


@dataclass(frozen=True)
class _Row:
    name: str = ""
    count: int = 0
    is_on: bool = False
    rest: Any = None
    by_name: dict[str, Any] = field(default_factory=dict)
    rows: tuple[Any, ...] = ()


_ROW: Final[dict[str, tuple[str, go.Kind]]] = {
    "name": ("name", go.string),
    "count": ("count", go.whole_number(32)),
    "isOn": ("is_on", go.truth),
    "rest": ("rest", go.anything),
    "byName": ("by_name", go.mapping(go.whole_number(64, signed=False))),
    "ignored": ("", go.anything),
}
_ROWS: Final = go.struct(_Row(), {**_ROW, "rows": ("rows", go.array(go.struct(_Row(), _ROW)))})
_KINDS: Final = (go.anything, _ROWS, go.array(go.optional(go.whole_number(8))), go.mapping(_ROWS))


def check(data: bytes) -> None:
    """Read a text as one kind."""
    if not data:
        return
    kind, text = _KINDS[data[0] % len(_KINDS)], text_of(data[1:])
    with suppress(DecodeError):
        parse_rfc3339(text[:64], "time")
    try:
        value = go.decode(text, kind)
    except DecodeError:
        return
    python = json.loads(text, strict=True)
    if kind is go.anything:
        assert _as_go(python) == value, value
        assert value == go.decode(compact(value), go.anything), value


def seeds() -> Iterator[bytes]:
    """Return objects of each kind, and the JSON of annotations."""
    row = '{"name":"a\\u00e9\\ud83d\\ude00","count":-3,"isOn":true,"rest":[1.5e3,null,{"a":[]}],"byName":{"x":1}'
    yield b"\x01" + f'{row},"rows":[{row}}},null],"NAME":"b"}}'.encode()
    yield b"\x02[1,null,-128,127]"
    yield b'\x03{"a":{"count":1},"A":null}'
    yield b'\x00 {"a" : [ true , false , null , "\\n\\u2028" , 0 , -0 , 1e-7 ] } '
    for name in ("node-devices/written.json", "mig-allocations/texts.json", "pair-scores/texts.json"):
        for case in some(VECTORS / name, 5):
            texts = [case.get("text"), *(found["text"] for found in case.get("texts", ()))]
            yield from (b"\x00" + text.encode() for text in texts if text)


def _as_go(value: Any) -> Any:
    """Return *value* with U+FFFD in place of each half of a surrogate pair, as Go reads it."""
    if isinstance(value, str):
        return "".join("\ufffd" if "\ud800" <= character <= "\udfff" else character for character in value)
    if isinstance(value, list):
        return [_as_go(item) for item in value]
    return {_as_go(key): _as_go(item) for key, item in value.items()} if isinstance(value, dict) else value
