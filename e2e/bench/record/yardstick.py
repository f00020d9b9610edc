"""
How fast the processors are meanwhile: one piece of work, timed again and again.

A virtual machine's processors may lose a third of their speed for seconds when its neighbours are busy, so rates are
compared as if all had been measured at the same speed. Neighbours: `rig` lays it beside a run, `tables` compares.
"""

import statistics
import threading
import time
from typing import Self

_STEPS = 20_000
"""A millisecond or two: short beside a time slice, long beside what a clock costs."""
_PAUSE_SECONDS = 0.1


class Yardstick:
    """Times the work for the length of a block, in a thread of its own."""

    def __init__(self) -> None:
        """Begin with the block."""
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
        """How long the work took on average, in processor time."""
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
