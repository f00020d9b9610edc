"""
JSON as Go's `encoding/json` reads it into typed values.

Keys match in any case. Unknown keys are skipped. Of two equal keys the last applies; objects, maps and lists are
merged. `null` keeps a scalar and empties a list or map. Invalid Unicode becomes U+FFFD. An integer field takes no
fraction, exponent or overflow.

Each format says which fields it has, as a `Kind`. A reader walks the text once, and never recurses over what it skips.
Source: https://pkg.go.dev/encoding/json#Unmarshal
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from json.decoder import JSONDecodeError, scanstring  # type: ignore[attr-defined]  # in C, since 2.6
from typing import Any, Final

from hamicommon.wire.errors import WHOLE_TEXT, DecodeError, quote
from hamicommon.wire.limits import check_size, max_items

Kind = Callable[["Reader", Any], Any]
"""
Reads one value: takes the reader and the previous value of the place (None: no value), returns the new value.

Go decodes into the previous value: `null` and repeated keys keep or extend it.
"""

_BLANKS: Final = frozenset(" \t\n\r")
_BLANK: Final = re.compile(r"[ \t\n\r]*")
_NUMBER_STARTS: Final = "-0123456789"
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_GO_NESTING: Final = 10000
"""Nesting at which `encoding/json` gives up."""
_KEPT_NESTING: Final = 64
"""Deepest nesting of a free-form value: more than any writer uses, and safe for recursion."""
_NAMED_NESTING: Final = 8
"""How many steps of the path to an error are named."""


class Reader:
    """A position in a JSON text, and how many items are left to its value."""

    __slots__ = ("at", "depth", "items_left", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.depth = 0
        self.items_left = max_items(text)

    def count_item(self) -> None:
        """Count an item of a list or an entry of a map that is kept."""
        self.items_left -= 1
        if self.items_left < 0:
            raise DecodeError(WHOLE_TEXT, f"has more than {max_items(self.text)} items in {len(self.text)} characters")

    def peek(self) -> str:
        """Skip blanks and return the next character, empty at the end."""
        character = self.text[self.at : self.at + 1]
        if character in _BLANKS:
            self.at = _BLANK.match(self.text, self.at).end()  # type: ignore[union-attr]  # matches everywhere
            return self.text[self.at : self.at + 1]
        return character

    def unexpected(self, wanted: str) -> DecodeError:
        """Return the error that the next character is not *wanted*."""
        found = self.text[self.at : self.at + 1]
        what = f"found {quote(found)}" if found else "the text ends"
        return DecodeError(f"character {self.at}", f"expected {wanted}, {what}")

    def take(self, character: str) -> bool:
        """Step over *character* if it is next."""
        if self.peek() != character:
            return False
        self.at += 1
        return True

    def expect(self, character: str, wanted: str) -> None:
        """Step over *character*, which must be next."""
        if not self.take(character):
            raise self.unexpected(wanted)

    def word(self, word: str) -> bool:
        """Step over the literal *word* if it is next."""
        if not self.text.startswith(word, self.at):
            return False
        self.at += len(word)
        return True

    def null(self) -> bool:
        """Step over `null` if it is next."""
        return self.peek() == "n" and self.word("null")

    def string(self) -> str:
        """Read a string, `"` being next."""
        try:
            text, end = scanstring(self.text, self.at + 1, True)
        except JSONDecodeError as error:
            raise DecodeError(f"character {error.pos}", f"bad string: {error.msg}") from None
        self.at = end
        return text if text.isascii() else _SURROGATE.sub("\ufffd", text)

    def key(self) -> str:
        """Read an object's key and the colon after it."""
        if self.peek() != '"':
            raise self.unexpected("a key in double quotes")
        name = self.string()
        self.expect(":", "':' after the key")
        return name

    def number(self) -> str:
        """Read a number and return its text."""
        found = _NUMBER.match(self.text, self.at)
        if not found:
            raise self.unexpected("a value")
        self.at = found.end()
        return found[0]

    def skip(self) -> None:
        """Check the syntax of the value that is next, and ignore it."""
        nesting = bytearray()
        while True:
            opened = self._skip_one(nesting)
            while not opened:
                if not nesting:
                    return
                opened = self._skip_next(nesting)

    def _skip_one(self, nesting: bytearray) -> bool:
        """Step over a scalar (False) or into a list or object that is not empty (True)."""
        character = self.peek()
        if character == '"':
            self.string()
        elif character in ("[", "{"):
            if self.depth + len(nesting) >= _GO_NESTING - 1:
                raise DecodeError(f"character {self.at}", f"nested deeper than {_GO_NESTING} levels")
            self.at += 1
            if self.take("]" if character == "[" else "}"):
                return False
            nesting.append(ord(character))
            if character == "{":
                self.key()
            return True
        elif not (self.word("true") or self.word("false") or self.word("null")):
            self.number()
        return False

    def _skip_next(self, nesting: bytearray) -> bool:
        """After an item: step to the next one (True) or out of its list or object (False)."""
        is_list = nesting[-1] == ord("[")
        if self.take(","):
            if not is_list:
                self.key()
            return True
        self.expect("]" if is_list else "}", "',' or the closing bracket")
        nesting.pop()
        return False


def decode(text: str, kind: Kind) -> Any:
    """
    Return the one value that *text* is.

    >>> decode('[{"Start": 3, "start": 4}]', array(whole_number(32)))
    Traceback (most recent call last):
    ...
    hamicommon.wire.errors.DecodeError: item 0: expected a number, found an object, at character 1

    Raises: DecodeError naming the item and field, or the character.
    """
    check_size(text)
    reader = Reader(text)
    value = kind(reader, None)
    if reader.peek():
        raise reader.unexpected("the end of the text")
    return value


def string(reader: Reader, old: str | None) -> str:
    """Read a string; `null` keeps the previous one."""
    if reader.null():
        return old or ""
    if reader.peek() != '"':
        raise _mismatch(reader, "a string")
    return reader.string()


def truth(reader: Reader, old: bool | None) -> bool:
    """Read a boolean; `null` keeps the previous one."""
    if reader.null():
        return bool(old)
    if reader.peek() and reader.word("true"):
        return True
    if reader.word("false"):
        return False
    raise _mismatch(reader, "true or false")


def whole_number(bits: int, *, signed: bool = True) -> Kind:
    """
    Return the kind of integers of *bits* bits; `null` keeps the previous one.

    >>> decode("-1", whole_number(32, signed=False))
    Traceback (most recent call last):
    ...
    hamicommon.wire.errors.DecodeError: character 0: '-1' is outside 0..4294967295
    """
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    longest = len(str(high)) + 1

    def read(reader: Reader, old: int | None) -> int:
        """Return the number that is next."""
        if reader.null():
            return old or 0
        character = reader.peek()
        if character not in _NUMBER_STARTS or not character:
            raise _mismatch(reader, "a number")
        start = reader.at
        text = reader.number()
        if not (text.isdigit() or text[1:].isdigit()):
            raise DecodeError(f"character {start}", f"{quote(text)} is not a whole number")
        # "-0" has a sign, and Go's unsigned fields take none.
        if len(text) > longest or not low <= int(text) <= high or (text == "-0" and not signed):
            raise DecodeError(f"character {start}", f"{quote(text)} is outside {low}..{high}")
        return int(text)

    return read


def optional(kind: Kind) -> Kind:
    """Return the kind that is None without a value, and for `null`."""

    def read(reader: Reader, _old: Any) -> Any:
        return None if reader.null() else kind(reader, None)

    return read


def array(item: Kind) -> Kind:
    """Return the kind of lists, read as tuples; `null` is empty, a repeated key reads into the previous items."""

    def read(reader: Reader, old: tuple[Any, ...] | None) -> tuple[Any, ...]:
        """Return the list that is next."""
        if reader.null():
            return ()
        if not reader.take("["):
            raise _mismatch(reader, "a list")
        if reader.take("]"):
            return ()
        items: list[Any] = []
        before = old or ()
        while True:
            reader.count_item()
            index = len(items)
            items.append(_nested(reader, item, before[index] if index < len(before) else None, f"item {index}"))
            if not reader.take(","):
                reader.expect("]", "',' or ']'")
                return tuple(items)

    return read


def struct(zero: Any, keys: Mapping[str, tuple[str, Kind]]) -> Kind:
    """
    Return the kind of objects with known keys, read as *zero*'s dataclass.

    *zero* is the value of `{}`. Each key has the attribute it sets and its kind; a value without attribute is checked
    and ignored. `null` keeps the previous value.
    """
    made = type(zero)
    blank = {field.name: getattr(zero, field.name) for field in fields(zero)}
    known = {name.lower(): (name, attribute, kind) for name, (attribute, kind) in keys.items()}

    def read(reader: Reader, old: Any) -> Any:
        """Return the object that is next."""
        before = zero if old is None else old
        if reader.null():
            return before
        values: dict[str, Any] = {}
        for name in _keys(reader):
            field = known.get(_folded(name))
            if field is None:
                reader.skip()
                continue
            shown, attribute, kind = field
            if not attribute:
                _nested(reader, kind, None, f"field {shown}")
                continue
            held = values[attribute] if attribute in values else getattr(before, attribute)
            values[attribute] = _nested(reader, kind, held, f"field {shown}")
        if not values:
            return before
        start = blank if old is None else {name: getattr(old, name) for name in blank}
        return made(**{**start, **values})

    return read


def mapping(kind: Kind) -> Kind:
    """Return the kind of objects with free keys; `null` is empty, a repeated key adds to the previous entries."""

    def read(reader: Reader, old: dict[str, Any] | None) -> dict[str, Any]:
        """Return the object that is next, every key of it."""
        if reader.null():
            return {}
        # Previous entries are from this text. To copy them for each repeated key would take quadratic time.
        entries = old or {}
        for name in _keys(reader):
            reader.count_item()
            entries[name] = _nested(reader, kind, None, f"key {quote(name)}")
        return entries

    return read


def anything(reader: Reader, _old: Any) -> Any:
    """Read any value as plain Python: None, bool, int, float, str, list, dict."""
    character = reader.peek()
    if character == '"':
        return string(reader, None)
    if character in ("[", "{"):
        if reader.depth >= _KEPT_NESTING:
            raise DecodeError(f"character {reader.at}", f"a free-form value nested deeper than {_KEPT_NESTING} levels")
        if character == "{":
            return mapping(anything)(reader, None)
        return list(array(anything)(reader, None))
    for word, value in (("true", True), ("false", False), ("null", None)):
        if reader.word(word):
            return value
    return _any_number(reader)


def _any_number(reader: Reader) -> int | float:
    """Read a number of any form that fits a 64-bit float, Go's type for it."""
    start = reader.at
    text = reader.number()
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise DecodeError(f"character {start}", f"{quote(text)} is beyond a 64-bit float")
    return int(text) if text.lstrip("-").isdigit() else value


def _keys(reader: Reader) -> Iterator[str]:
    """Yield the keys of the object that is next. The caller reads the value of each key before the next."""
    if not reader.take("{"):
        raise _mismatch(reader, "an object")
    if reader.take("}"):
        return
    while True:
        yield reader.key()
        if not reader.take(","):
            reader.expect("}", "',' or '}'")
            return


def _nested(reader: Reader, kind: Kind, old: Any, place: str) -> Any:
    """Read a value inside another one; an error names its path."""
    reader.depth += 1
    depth = reader.depth
    try:
        value = kind(reader, old)
    except DecodeError as error:
        if depth > _NAMED_NESTING or error.place == WHOLE_TEXT:
            raise
        if error.place.startswith(("item ", "field ", "key ")):
            raise DecodeError(f"{place}, {error.place}", error.reason) from None
        raise DecodeError(place, f"{error.reason}, at {error.place}") from None
    reader.depth = depth - 1
    return value


def _folded(name: str) -> str:
    """Return *name* as Go compares keys. Two characters beyond ASCII are other cases of ASCII letters."""
    if not name.isascii():
        name = name.replace("\u017f", "s").replace("\u212a", "k")
        if not name.isascii():
            return name
    return name.lower()


_FOUND: Final = {'"': "a string", "[": "a list", "{": "an object", "t": "true", "f": "false", "n": "null"}


def _mismatch(reader: Reader, wanted: str) -> DecodeError:
    """Return the error that a value of another type is next."""
    character = reader.peek()
    found = _FOUND.get(character) or ("a number" if character and character in _NUMBER_STARTS else "")
    if found:
        return DecodeError(f"character {reader.at}", f"expected {wanted}, found {found}")
    return reader.unexpected(wanted)
