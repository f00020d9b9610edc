"""
The book as the content of a file: JSON of version 1.

A reader takes the whole content or nothing of it.
Neighbours: `hami_monitor.adapters.book_file` has the file.
"""

import math
from collections.abc import Mapping
from typing import Any

import orjson

from hami_monitor.decide.accounts.book import Book, DeviceAccount, NamespaceKey, PodKey, ShareAccount
from hamicommon.errors import HamiError

VERSION = 1


class BookError(HamiError):
    """The content is not a book."""


def encode_book(book: Book) -> bytes:
    """Return *book* as the content of a file."""
    return orjson.dumps(
        {
            "version": VERSION,
            "untilSeconds": book.until_seconds,
            "pods": _rows(book.pods),
            "namespaces": _rows(book.namespaces),
            "devices": [
                [uuid, one.type, one.held_seconds, one.idle_seconds, one.last_seconds]
                for uuid, one in book.devices.items()
            ],
        }
    )


def _rows(accounts: Mapping[Any, ShareAccount]) -> list[list[Any]]:
    return [[*key, one.held_seconds, one.used_seconds, one.last_seconds] for key, one in accounts.items()]


def decode_book(content: bytes) -> Book:
    """
    Return the book in *content*.

    Raises:
        BookError: *content* is not one of VERSION.
    """
    try:
        found = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise BookError(f"not JSON: {error}") from error
    version = found.get("version") if isinstance(found, Mapping) else None
    if version != VERSION:
        raise BookError(f"version {version!r}, expected {VERSION}")
    try:
        return _book(found)
    except (KeyError, TypeError, ValueError) as error:
        raise BookError(f"a field is missing or wrong: {error}") from error


def _book(found: Mapping[str, Any]) -> Book:
    pods = {
        PodKey(_text(namespace), _text(pod), _text(kind)): _account(*seconds)
        for namespace, pod, kind, *seconds in found["pods"]
    }
    namespaces = {
        NamespaceKey(_text(namespace), _text(kind)): _account(*seconds)
        for namespace, kind, *seconds in found["namespaces"]
    }
    devices = {
        _text(uuid): DeviceAccount(_text(kind), _seconds(held), _seconds(idle), _seconds(last))
        for uuid, kind, held, idle, last in found["devices"]
    }
    return Book(_seconds(found["untilSeconds"]), pods, namespaces, devices)


def _account(held: object, used: object, last: object) -> ShareAccount:
    return ShareAccount(_seconds(held), _seconds(used), _seconds(last))


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a text")
    return value


def _seconds(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise ValueError(f"{value!r} is not a number of seconds")
    return float(value)
