"""
Write metric families as the text of a scrape, byte for byte as prometheus_client does and several times as fast.

prometheus_client sorts, checks and escapes the labels of each sample. Here the names of labels are checked once, and
labels that several samples share, as one dictionary, are written once. A family that does not fit is left to
prometheus_client: it has unusual names, timestamps, exemplars, native histograms, or values to escape.
The text comes in parts, so that other work may go first between two of them.
Neighbours: `http` answers the scrape, `samples` keeps samples so that they are written at little cost.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache, partial

from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.exposition import ALLOWUTF8, UNDERSCORES
from prometheus_client.openmetrics.exposition import generate_latest as generate_open_metrics
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from hamicommon.runtime.serving.samples import Entry, Samples

_EOF = b"# EOF\n"
_NAME = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*")
"""Names that every form writes as they are."""
_SUFFIXES = ("", "_total", "_bucket", "_count", "_sum", "_info")
"""Endings of the samples' names that both formats keep in their place."""
_NO_MORE = [None, None, None]
"""A sample without timestamp, exemplar and native histogram."""

_LINES_AT_ONCE = 100
"""Lines between two pauses, a tenth of a millisecond."""
_PLAIN_BELOW = 1e6
"""Numbers from 0 up to here have no exponent in Go's form, and are written as Python does."""
_number: Callable[[float], str] = lru_cache(maxsize=4096)(floatToGoString)
"""Go's form of a number. Amounts of memory are the same in several families, and for many scrapes."""

Encode = Callable[[Collector], bytes]


class _One(Collector):
    """One family."""

    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> Iterable[Metric]:
        return (self._family,)


def encoder(accept: str) -> tuple[Callable[[Iterable[Metric]], Iterator[bytes]], str]:
    """
    Return the function that writes families in the form that the header *accept* asks for, and its content type.

    It yields the text in parts, and nothing where it pauses in the middle of a long one.
    """
    encode, content_type = _chosen(accept)
    escaping = encode.keywords.get("escaping") if isinstance(encode, partial) else UNDERSCORES
    is_simple = escaping in (UNDERSCORES, ALLOWUTF8)
    is_open = isinstance(encode, partial) and encode.func is generate_open_metrics
    end = _EOF if is_open else b""

    def write(families: Iterable[Metric]) -> Iterator[bytes]:
        # They are kept while this runs, so no two dictionaries of labels have the same identity.
        kept = tuple(families)
        texts: dict[int, str | None] = {}
        for family in kept:
            for part in _family(family, encode, texts) if is_simple else (encode(_One(family)),):
                yield part.removesuffix(end)
        yield end

    return write, content_type


def _family(family: Metric, encode: Encode, texts: dict[int, str | None]) -> Iterator[bytes]:
    """Yield the text of *family*, and nothing after each part of the work."""
    chunks: list[bytes] = []
    for lines in _lines(family, texts):
        if lines is None:
            yield encode(_One(family))
            return
        chunks.append(lines.encode())
        yield b""
    yield _head(encode, family.name, family.documentation, family.type, family.unit)
    yield from chunks


_chosen = lru_cache(maxsize=16)(choose_encoder)
"""The same encoder for each scrape of a client, so that `_head` knows it again."""


@lru_cache(maxsize=1024)
def _head(encode: Encode, name: str, documentation: str, kind: str, unit: str) -> bytes:
    """Return the lines before a family's samples."""
    return encode(_One(Metric(name, documentation, kind, unit))).removesuffix(_EOF)


def _lines(family: Metric, texts: dict[int, str | None]) -> Iterator[str | None]:
    """
    Yield the lines of the samples of *family*, some at a time; None if one of them does not fit.

    *texts* has what was written of labels, by the identity of their dictionary.
    """
    entries = _entries(family)
    if entries is None:
        yield None
        return
    lines = []
    for name, labels, value in entries:
        key = id(labels)
        text = texts[key] if key in texts else texts.setdefault(key, _text(labels))
        if text is None:
            yield None
            return
        number = repr(float(value)) if 0 <= value < _PLAIN_BELOW else _number(value)
        lines.append(f"{name}{text} {number}\n")
        if len(lines) == _LINES_AT_ONCE:
            yield "".join(lines)
            lines.clear()
    yield "".join(lines)


def _entries(family: Metric) -> Iterable[Entry] | None:
    """Return name, labels and value of each sample; None if a sample has more, or a name that does not fit."""
    names = {family.name + suffix for suffix in _SUFFIXES} if _NAME.fullmatch(family.name) else ()
    samples = family.samples
    if isinstance(samples, Samples):
        return samples.entries if samples.name in names else None
    if all(name in names and value is not None and more == _NO_MORE for name, _, value, *more in samples):
        return [sample[:3] for sample in samples]
    return None


def _text(labels: dict[str, str]) -> str | None:
    """Return *labels* as in a line; None if prometheus_client must write them."""
    template = _template(*labels)
    if template is None:
        return None
    text = template % labels
    is_plain = text.count('"') == 2 * len(labels) and "\\" not in text and "\n" not in text
    return text if is_plain else None


@lru_cache(maxsize=1024)
def _template(*names: str) -> str | None:
    """Return how to write labels with these *names* in order; None if prometheus_client must."""
    if not all(map(_NAME.fullmatch, names)):
        return None
    return "{" + ",".join(f'{name}="%({name})s"' for name in sorted(names)) + "}" if names else ""
