"""
How much memory the value of a hostile text may take.

Owns the one bound all decoders share: a decoded value takes at most ten times its text. A text of a few characters
may cost more, as every Python object does, so the bound starts at a floor no attack can use.
"""

from typing import Final

from hamicommon.wire.errors import DecodeError

_FLOOR_BYTES: Final = 256 * 1024
_BYTES_PER_CHARACTER: Final = 9
"""Less than ten: a decoder's own temporaries come on top."""

WHOLE_TEXT: Final = "whole text"
"""The place an overdrawn budget names."""
POINTER_BYTES: Final = 18
"""What an item costs its list and the tuple made of it."""
_STRING_BYTES: Final = 49
_WIDE_STRING_BYTES: Final = 76


class Budget:
    """The bytes that the value of one text may still take."""

    __slots__ = ("_left", "_length")

    def __init__(self, length: int) -> None:
        self._length = length
        self._left = max(_FLOOR_BYTES, length * _BYTES_PER_CHARACTER)

    def spend(self, size: int) -> None:
        """
        Account for *size* bytes about to be taken.

        Raises: DecodeError when the text has used up what it may take.
        """
        self._left -= size
        if self._left < 0:
            raise DecodeError(
                WHOLE_TEXT, f"holds so many tiny values that its {self._length} characters would grow tenfold"
            )

    def spend_string(self, text: str) -> None:
        """Account for a string that the value keeps."""
        self.spend(_STRING_BYTES + len(text) if text.isascii() else _WIDE_STRING_BYTES + 4 * len(text))
