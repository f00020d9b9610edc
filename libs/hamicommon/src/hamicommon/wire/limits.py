"""
How long a text a decoder takes, and how many items it may hold.

This is the only place that refuses a text for its size. Every decoder calls `check_size` first; the JSON reader counts
items as it reads them. A text that passes takes at most sixteen times its size in memory, and time in proportion to it.
"""

from typing import Final

from hamicommon.wire.errors import WHOLE_TEXT, DecodeError

MAX_CHARACTERS: Final = 1 << 20
"""Four times what Kubernetes allows all annotations of an object."""

_CHARACTERS_AN_ITEM: Final = 28
"""An item takes up to 400 bytes. Items that peers write are longer: a UUID alone has about 40 characters."""
_MIN_ITEMS: Final = 1000
"""Allowed in any text, however short."""


def max_items(text: str) -> int:
    """Return how many devices, containers, list items or map entries *text* may hold."""
    return max(_MIN_ITEMS, len(text) // _CHARACTERS_AN_ITEM)


def check_size(text: str, separators: str = "") -> None:
    """
    Refuse *text* when it is too long, or has one of *separators* too often.

    Raises: DecodeError
    """
    if len(text) > MAX_CHARACTERS:
        raise DecodeError(WHOLE_TEXT, f"has {len(text)} characters, more than {MAX_CHARACTERS}")
    for separator in separators:
        count = text.count(separator)
        if count > max_items(text):
            raise DecodeError(
                WHOLE_TEXT, f"has {count} {separator!r}, more than {max_items(text)} in {len(text)} characters"
            )
