"""
A value that was changed by others, with what it was shortly before.

A scheduler decides on what it knew a moment ago. So a grant is judged by what was offered at its version or within
the seconds before.
"""

from collections import deque
from typing import Generic, TypeVar

LAG_SECONDS = 10.0
"""How old the knowledge of a decision may be: a Binding can be that long on its way."""

T = TypeVar("T")


class Window(Generic[T]):
    """The values of the last LAG_SECONDS and the one before them."""

    def __init__(self, value: T, at: float) -> None:
        self._values: deque[tuple[float, T]] = deque([(at, value)])
        """Each with the time since when it holds."""

    def put(self, value: T, at: float) -> None:
        """Set the value from *at* on."""
        self._values.append((at, value))
        self._drop(at)

    def at(self, now: float) -> list[T]:
        """Return the values that held at any time within LAG_SECONDS before *now*, the present one last."""
        self._drop(now)
        return [value for _, value in self._values]

    @property
    def present(self) -> T:
        """The newest value."""
        return self._values[-1][1]

    def _drop(self, now: float) -> None:
        while len(self._values) > 1 and self._values[1][0] <= now - LAG_SECONDS:
            self._values.popleft()
