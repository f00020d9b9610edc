"""
Write metric families as the text of a scrape, byte for byte as prometheus_client does and several times as fast.

prometheus_client sorts, checks and escapes the labels of each sample. Here one template serves all samples of a family,
because they have the same labels and hardly a value needs an escape. A family that does not fit is left to
prometheus_client: it has unusual names, timestamps, exemplars, native histograms, or values to escape.
Neighbours: `http` answers the scrape.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache, partial
from operator import itemgetter
from typing import Any

from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.exposition import ALLOWUTF8, UNDERSCORES
from prometheus_client.openmetrics.exposition import generate_latest as generate_open_metrics
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

_EOF = b"# EOF\n"
_NAME = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*")
"""Names that every form writes as they are."""
_SUFFIXES = ("", "_total", "_bucket", "_count", "_sum", "_info")
"""Endings of the samples' names that both formats keep in their place."""

_NO_MORE = [None, None, None]
"""A sample without timestamp, exemplar and native histogram."""
number: Callable[[float], str] = floatToGoString

Encode = Callable[[Collector], bytes]
Line = tuple[str, Callable[[Mapping[str, str]], tuple[str, ...]], int]
"""The template of a line, the values of its labels in its order, and its number of quotes."""


class _One(Collector):
    """One family."""

    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> Iterable[Metric]:
        return (self._family,)


def encoder(accept: str) -> tuple[Callable[[Iterable[Metric]], bytes], str]:
    """Return the function that writes families in the form that the header *accept* asks for, and its content type."""
    encode, content_type = choose_encoder(accept)
    escaping = encode.keywords.get("escaping") if isinstance(encode, partial) else UNDERSCORES
    is_simple = escaping in (UNDERSCORES, ALLOWUTF8)
    is_open = isinstance(encode, partial) and encode.func is generate_open_metrics
    end = _EOF if is_open else b""

    def write(families: Iterable[Metric]) -> bytes:
        return b"".join(_family(family, encode, is_simple=is_simple).removesuffix(end) for family in families) + end

    return write, content_type


def _family(family: Metric, encode: Encode, *, is_simple: bool) -> bytes:
    lines = _lines(family) if is_simple else None
    if lines is None:
        return encode(_One(family))
    head = Metric(family.name, family.documentation, family.type, family.unit)
    return encode(_One(head)).removesuffix(_EOF) + lines.encode()


def _lines(family: Metric) -> str | None:
    """Return the lines of all samples of *family*; None if one of them does not fit."""
    lines = []
    names = {family.name + suffix for suffix in _SUFFIXES}
    for name, labels, value, *more in family.samples:
        line = _line(name, *labels) if name in names else None
        if line is None or value is None or more != _NO_MORE:
            return None
        template, values, quotes = line
        text = template % (*values(labels), number(value))
        if text.count('"') != quotes or text.count("\n") != 1 or "\\" in text:
            return None
        lines.append(text)
    return "".join(lines)


@lru_cache(maxsize=4096)
def _line(name: str, *labels: str) -> Line | None:
    """Return how to write a sample *name* with *labels*; None if prometheus_client must."""
    if not all(map(_NAME.fullmatch, (name, *labels))):
        return None
    if not labels:
        return f"{name} %s\n", _nothing, 0
    inside = ",".join(f'{label}="%s"' for label in sorted(labels))
    return f"{name}{{{inside}}} %s\n", _values(sorted(labels)), 2 * len(labels)


def _nothing(_labels: Mapping[str, str]) -> tuple[str, ...]:
    return ()


def _values(labels: list[str]) -> Any:
    if len(labels) == 1:
        [only] = labels
        return lambda given: (given[only],)
    return itemgetter(*labels)
