"""
Walking separated text without splitting all of it at once.

`str.split` makes one object per separator before anything is checked; a text of a million separators would cost
seventy times its size.
"""

from collections.abc import Iterator


def spans(text: str, separator: str) -> Iterator[tuple[int, int]]:
    """
    Yield where each part that `text.split(separator)` would list begins and ends.

    >>> list(spans("a;;b", ";"))
    [(0, 1), (2, 2), (3, 4)]
    """
    start = 0
    while (end := text.find(separator, start)) >= 0:
        yield start, end
        start = end + 1
    yield start, len(text)


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
