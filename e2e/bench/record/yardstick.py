"""
The speed of the processors during a run: the duration of a fixed piece of work, measured again and again.

The processors of a virtual machine may lose a third of their speed for seconds when its neighbours are busy. So rates
are compared at equal speed. Neighbours: `load.rig` runs it beside a load, `report.tables` compares.
"""

import statistics
import threading
import time
from typing import Self

_STEPS = 20_000
"""Takes one or two milliseconds: much less than a time slice, and much more than reading a clock."""
_PAUSE_SECONDS = 0.1


class Yardstick:
    """Measures the work during a block, in a thread."""

    def __init__(self) -> None:
        """Start with the block."""
        self._samples_ms: list[float] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    @property
    def work_ms(self) -> float:
        """The average duration of the work, in processor time."""
        return statistics.fmean(self._samples_ms)

    def _sample(self) -> None:
        while not self._ended.is_set():
            self._samples_ms.append(_work_seconds() * 1000)
            self._ended.wait(_PAUSE_SECONDS)


def _work_seconds() -> float:
    began, found = time.thread_time(), dict[int, int]()
    for step in range(_STEPS):
        found[step & 1023] = step * 3
    return time.thread_time() - began
