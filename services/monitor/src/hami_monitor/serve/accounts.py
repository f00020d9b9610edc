"""
Keep the book of device time: who has held and used how much, and what was idle.

A scrape shows the book that is in the file, never a later one. So a process that is killed at any instruction has shown
nothing that the next one does not read, and no counter ever goes back. What was held follows from the Pods' moments,
so the next process adds the time in between. What was used is measured, so time without a monitor has no use.
Neighbours: `hami_monitor.decide.accounts` adds up, `hami_monitor.adapters.book_file` has the file.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace

import structlog

from hami_monitor.adapters.book_file import BookFile
from hami_monitor.adapters.kube import Node, Pods
from hami_monitor.config import Config
from hami_monitor.decide.accounts.book import Book, PodKey, advance, used_parts
from hami_monitor.decide.accounts.book_text import BookError, decode_book, encode_book
from hami_monitor.decide.accounts.price import Offers, offers_of
from hami_monitor.decide.observation import Observation, shown_devices
from hami_monitor.metrics.account_families import AccountStatus
from hamicommon.errors import HamiError
from hamicommon.vendors.nvidia import REGISTER_KEY
from hamicommon.wire.node_devices import decode_node_devices

SETTLED_SECONDS = 2.0
"""A book ends this long ago: later moments may still be unknown, because a watch takes time."""
SILENT_SECONDS = 90.0
"""After so long without a word of the API server a book ends at its last word. It sends a bookmark each minute."""
ROUNDS_EACH_SAVE = 3
"""The book is saved every so many rounds, and after each round in which a Pod has come or gone."""
BACK_SECONDS = 300.0
"""A clock that is this far behind the book was wrong before; counting goes on from now."""
GAP_SECONDS = 7 * 86400.0
"""A longer pause is not counted: the clock was wrong, or the Node was not in use."""

logger = structlog.get_logger()


class Accounts:
    """The book of one Node."""

    def __init__(
        self,
        file: BookFile,
        pods: Pods,
        node: Node,
        observe: Callable[[], Observation],
        config: Config,
        now_seconds: Callable[[], float] = time.time,
    ) -> None:
        """Keep the book in *file*, once `run` is awaited; *observe* returns what is used now."""
        self._file = file
        self._pods = pods
        self._node = node
        self._observe = observe
        self._round_seconds = config.round_seconds
        self._now_seconds = now_seconds
        self.status = AccountStatus(config.node_name)
        """What a scrape shows; without a book until the first one is in the file."""
        self._book: Book | None = None
        self._used: defaultdict[PodKey, float] = defaultdict(float)
        """Seconds of use that the book does not have yet."""
        self._sampled: float | None = None
        self._offers: Offers = {}
        self._problems: dict[str, str] = {}

    async def run(self) -> None:
        """Measure each round, and save the book every few rounds and at the end, until cancelled."""
        rounds = 0
        try:
            while True:
                self._measure()
                rounds += 1
                if rounds % ROUNDS_EACH_SAVE == 0 or self._pods.has_changed or self._book is None:
                    self._pods.has_changed = False
                    await self.save()
                await asyncio.sleep(self._round_seconds)
        finally:
            await self.save()

    async def save(self) -> None:
        """Advance the book as far as everything is known, write it, and show it."""
        if not self._pods.synced.is_set() or not self._node.seen or not await self._has_file():
            return
        until_seconds = self._known_until()
        begun = self._begun(until_seconds)
        used, share_times = dict(self._used), self._pods.share_times()
        book = advance(begun, until_seconds, self._read_offers(), share_times, used)
        try:
            await asyncio.to_thread(self._file.write, encode_book(book))
        except OSError as error:
            self._report("file", f"{self._file.path}: {error.strerror}")
            self.status = replace(self.status, failed_saves=self.status.failed_saves + 1)
            return
        self._report("file", "")
        self._book = book
        self._used.clear()
        self._pods.forget_departed(book.until_seconds)
        self.status = replace(self.status, book=book)

    def close(self) -> None:
        """Let another process have the file."""
        self._file.close()

    def _measure(self) -> None:
        """Add what Pods have used since the last round, as far as they use it now."""
        now = self._now_seconds()
        before, self._sampled = self._sampled, now
        if before is None or not self._offers:
            return
        seconds = min(max(now - before, 0.0), 3 * self._round_seconds)
        for pod, part in used_parts(shown_devices(self._observe()), self._offers).items():
            self._used[pod] += part * seconds

    async def _has_file(self) -> bool:
        """Return whether the file is this process's; read it the first time."""
        if self._book is not None:
            return True
        try:
            content = await asyncio.to_thread(self._file.read)
            self._book = None if content is None else self._decoded(content)
        except OSError as error:
            problem = "another monitor has it" if isinstance(error, BlockingIOError) else error.strerror
            self._report("file", f"{self._file.path}: {problem}")
            return False
        return True

    def _decoded(self, content: bytes) -> Book | None:
        """Return the book in *content*; if there is none, keep the file aside."""
        try:
            return decode_book(content)
        except BookError as error:
            aside = str(self._file.set_aside())
            logger.error("Device time is counted from zero, its file is unreadable", file=aside, error=str(error))
        return None

    def _known_until(self) -> float:
        age_seconds = self._pods.age_seconds()
        return self._now_seconds() - (SETTLED_SECONDS if age_seconds < SILENT_SECONDS else age_seconds)

    def _begun(self, until_seconds: float) -> Book:
        """Return the book to advance: an empty one at the first start, and one without a pause that is not counted."""
        if self._book is None:
            return Book(until_seconds)
        pause_seconds = until_seconds - self._book.until_seconds
        is_counted = -BACK_SECONDS < pause_seconds < GAP_SECONDS
        self._report("clock", "" if is_counted else f"{pause_seconds:.0f} s since the last save are not counted")
        return self._book if is_counted else replace(self._book, until_seconds=until_seconds)

    def _read_offers(self) -> Offers:
        annotations = (self._node.seen.get("metadata") or {}).get("annotations") or {}
        try:
            self._offers = offers_of(decode_node_devices(annotations.get(REGISTER_KEY) or "[]"))
            self._report("inventory", "")
        except HamiError as error:
            self._report("inventory", f"annotation {REGISTER_KEY}: {error}")
        return self._offers

    def _report(self, what: str, problem: str) -> None:
        if problem and problem != self._problems.get(what):
            logger.warning("Device time is not counted as it should be", what=what, error=problem)
        self._problems[what] = problem
