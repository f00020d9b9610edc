"""
Walking separated text without splitting all of it at once.

`str.split` makes one object per separator before anything is checked; a text of a million separators would cost
seventy times its size.
"""

from collections.abc import Iterator


def pieces(text: str, separator: str, start: int = 0, stop: int | None = None) -> Iterator[str]:
    """
    Yield what `text[start:stop].split(separator)` would list, one piece at a time.

    >>> list(pieces("a;;b;", ";"))
    ['a', '', 'b', '']
    """
    stop = len(text) if stop is None else stop
    while (end := text.find(separator, start, stop)) >= 0:
        yield text[start:end]
        start = end + 1
    yield text[start:stop]
