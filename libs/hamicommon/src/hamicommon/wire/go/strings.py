"""
Separated and padded strings, as Go's `strings` splits and trims them.

Source: https://pkg.go.dev/strings
"""

from collections.abc import Iterator
from typing import Final

BLANKS: Final = (
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)
"""What `TrimSpace` removes. Python's `strip` also removes the separators U+001C to U+001F."""


def pieces(text: str, separator: str) -> Iterator[str]:
    """
    Yield what `text.split(separator)` lists, one piece at a time: a hostile text costs no memory.

    >>> list(pieces("a;;b;", ";"))
    ['a', '', 'b', '']
    """
    start = 0
    while (end := text.find(separator, start)) >= 0:
        yield text[start:end]
        start = end + 1
    yield text[start:]
