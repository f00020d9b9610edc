"""
Change JSON so that it stays JSON: a reader of objects is reached by few texts that differ from one in a byte.

Owns the changes: of a value, a key, a place, the number of items, the nesting. Text inside a value is changed as bytes,
by the caller's function. The same seed makes the same change.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any, Final

Mutate = Callable[[bytes, int], bytes]
"""Changes bytes, which may have so many afterwards."""

ODD_VALUES: Final[tuple[Any, ...]] = (
    *(None, True, False, 0, -1, 1, 100, 101, 2**31 - 1, 2**31, -(2**31) - 1, 2**63 - 1, 2**63, 2**64, 10**40),
    *(0.5, -0.0, 1e308, 1e-320, "", " ", "0", "-1", "1.5", "1e3", "16Gi", "99999999999999999999", "true", "null"),
    *(",", ";", ":", "a:b,c;", "/", "..", "../..", "\0", "\n", "\ud800", "\u0130", "é" * 100, "a" * 5000, "[" * 200),
    *([], {}, [[]], [None], [{}], {"": ""}, {"a": None}),
)
COUNTS: Final = (1, 1, 1, 2, 17, 300)
DEPTHS: Final = (1, 1, 2, 40, 300)
BYTES_SHARE: Final = 0.1
"""How many texts are changed as bytes, which a parser must survive."""
_GROWTH: Final = 64


class JsonMutator:
    """Changes texts with the keys and values of *examples*."""

    def __init__(self, examples: Sequence[bytes], mutate: Mutate) -> None:
        self._mutate = mutate
        values = [value for text in examples for value in _parts(_parsed(text))]
        keys = {key for value in values if isinstance(value, dict) for key in value}
        self._keys = sorted(keys) or ["a"]
        self._parts = [*ODD_VALUES, *values]

    def __call__(self, text: bytes, bytes_max: int, seed: int) -> bytes:
        """Return *text* with a few changes."""
        random = Random(seed)
        if random.random() < BYTES_SHARE:
            return self._mutate(text, bytes_max)
        try:
            value = json.loads(text)
            for _ in range(random.choice((1, 1, 2, 4))):
                value = self._changed(value, random)
            changed = json.dumps(value, separators=(",", ":")).encode()
        except (ValueError, RecursionError):
            return self._mutate(text, bytes_max)
        return changed if len(changed) <= bytes_max else self._mutate(text, bytes_max)

    def _changed(self, value: Any, random: Random) -> Any:
        """Return *value* with one change somewhere; it may be changed itself."""
        places = list(_places(value))
        if not places or random.random() < 0.02:
            return self._other(value, random)
        holder, key = random.choice(places)
        self._change(holder, key, random)
        return value

    def _change(self, holder: Any, key: Any, random: Random) -> None:
        kind = random.randrange(10)
        if kind <= 4:
            holder[key] = self._other(holder[key], random)
        elif kind == 5:
            del holder[key]
        elif kind == 6:
            for _ in range(random.choice(DEPTHS)):
                holder[key] = [holder[key]] if random.random() < 0.5 else {random.choice(self._keys): holder[key]}
        elif isinstance(holder, list):
            holder[key:key] = [self._some(random), *([holder[key]] * random.choice(COUNTS))]
        elif kind == 7:
            name = random.choice((key.upper(), key.lower(), key + " ", random.choice(self._keys)))
            holder[name] = holder.pop(key)
        else:
            for number in range(random.choice(COUNTS)):
                name = random.choice(self._keys)
                holder[f"{name}{number}" if name in holder else name] = self._some(random)

    def _other(self, value: Any, random: Random) -> Any:
        """Return another value, mostly of the same kind."""
        if random.random() < 0.3:
            return self._some(random)
        if isinstance(value, str):
            return self._mutate(value.encode(errors="replace"), len(value) + _GROWTH).decode(errors="replace")
        if isinstance(value, int | float):
            return random.choice((-value, value + 1, value - 1, value * 1024, str(value)))
        return self._some(random)

    def _some(self, random: Random) -> Any:
        """Return a copy of a value of the examples, or an odd one."""
        return json.loads(json.dumps(random.choice(self._parts if random.random() < 0.5 else ODD_VALUES)))


def _parsed(text: bytes) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _parts(value: Any) -> Iterator[Any]:
    """Yield every value in *value*."""
    yield value
    for holder, key in _places(value):
        yield holder[key]


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield where every value in *value* is: the list or object, and its index or key there."""
    left = [value]
    while left:
        holder = left.pop()
        keys = range(len(holder)) if isinstance(holder, list) else holder if isinstance(holder, dict) else ()
        for key in keys:
            yield holder, key
            left.append(holder[key])
