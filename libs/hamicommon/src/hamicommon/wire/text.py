"""
Walking separated text without splitting all of it at once.

`str.split` makes one object per separator before anything is checked; a text of a million separators would cost
seventy times its size.
"""

from collections.abc import Iterator


def pieces(text: str, separator: str) -> Iterator[str]:
    """
    Yield what `text.split(separator)` would list, one piece at a time.

    >>> list(pieces("a;;b;", ";"))
    ['a', '', 'b', '']
    """
    start = 0
    while (end := text.find(separator, start)) >= 0:
        yield text[start:end]
        start = end + 1
    yield text[start:]
