"""
Lives of the monitor's accounts, each of them killed at another line of code.

Run at the root: `.venv/bin/python -m services.monitor.tests.accounts_life FOLDER`. Prints JSON, one line for each life:
what it had shown when it was killed, and what the next life showed. The last life ends by itself.
"""

import asyncio
import json
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from types import FrameType
from typing import Any, cast

from hami_monitor.adapters import book_file
from hami_monitor.adapters.book_file import BookFile
from hami_monitor.adapters.kube import Node, Pods
from hami_monitor.config import Config
from hami_monitor.decide.observation import Observation
from hami_monitor.serve import accounts
from hami_monitor.serve.accounts import Accounts
from hamicommon.runtime.api.kube import Kube
from hamicommon.runtime.host import atomic_file
from hamicommon.runtime.program import logs

from .pod_server import a_pod

TRACED = {module.__file__ for module in (accounts, book_file, atomic_file)}
INVENTORY = '[{"id":"GPU-a","count":4,"devmem":1000,"devcore":100,"type":"T4","health":true}]'
NODE = {"metadata": {"name": "n1", "annotations": {"hami.io/node-nvidia-register": INVENTORY}}}
QUARTER = "GPU-a,NVIDIA,250,0:;"
BEGIN = 1_000_000.0
AFTER = BEGIN + 1000
"""When the next life looks."""


class OnePage:
    """An API server whose Pods never change."""

    def __init__(self, *pods: dict[str, Any]) -> None:
        self._pods = list(pods)

    async def pages(self, _path: str, **_query: str | int) -> AsyncIterator[tuple[list[dict[str, Any]], str]]:
        """Yield all Pods."""
        yield self._pods, "1"

    async def watch(self, _path: str, _seconds: int, **_query: str | int) -> AsyncIterator[Any]:
        """Yield nothing until cancelled."""
        await asyncio.Event().wait()
        yield


class Clock:
    """The Node's clock."""

    def __init__(self) -> None:
        self.now_seconds = BEGIN

    def __call__(self) -> float:
        return self.now_seconds


class Life:
    """The accounts of one process."""

    def __init__(self, folder: Path, *pods: str) -> None:
        self.clock = Clock()
        self.pods = Pods(cast(Kube, OnePage(*map(a_held_pod, pods))), "n1", self.clock)
        node = Node(cast(Kube, None), "n1")
        node.seen = NODE
        file, config = BookFile(str(folder)), Config("n1", str(folder))
        self.accounts = Accounts(file, self.pods, node, lambda: Observation("n1", 0.0), config, self.clock)

    async def save_at(self, seconds: float) -> dict[str, float]:
        """Save at *seconds* after BEGIN, and return what a scrape then shows."""
        self.clock.now_seconds = BEGIN + seconds + accounts.SETTLED_SECONDS
        await self.accounts.save()
        book = self.accounts.status.book
        assert book is not None
        device = book.devices["GPU-a"]
        sums = {key.pod: account.held_seconds for key, account in book.pods.items()}
        return sums | {"held": device.held_seconds, "idle": device.idle_seconds, "until": book.until_seconds - BEGIN}


def a_held_pod(uid: str) -> dict[str, Any]:
    """Return a Pod that has held a quarter of the device since BEGIN."""
    pod = a_pod(uid, granted=QUARTER)
    bound = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "1970-01-12T13:46:40Z"}
    return pod | {"status": {"phase": "Running", "conditions": [bound]}}


async def live(folder: Path, output: int) -> None:
    """Live 30 s with a Pod that stays and one that goes, and write to *output* what is shown."""
    life = Life(folder, "stays", "goes")
    following = asyncio.create_task(life.pods.run())
    await life.pods.synced.wait()
    for seconds in (0, 10, 20, 30):
        if seconds == 30:
            life.pods.delete(a_held_pod("goes"))
        shown = await life.save_at(seconds)
        os.write(output, (json.dumps(shown) + "\n").encode())
    following.cancel()
    life.accounts.close()


async def live_after(folder: Path) -> dict[str, float]:
    """Return what the next life shows, 1000 s after BEGIN."""
    life = Life(folder, "stays")
    following = asyncio.create_task(life.pods.run())
    await life.pods.synced.wait()
    shown = await life.save_at(AFTER - BEGIN)
    following.cancel()
    life.accounts.close()
    return shown


def die_at(line: int) -> None:
    """Kill this process before the traced line with the number *line* is run."""
    left = line

    def trace(frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal left
        if frame.f_code.co_filename not in TRACED:
            return None
        if event == "line":
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return trace

    threading.settrace(trace)
    sys.settrace(trace)


def killed(folder: Path, line: int) -> tuple[bool, list[dict[str, float]]]:
    """Live below *folder* until *line*; return whether that killed the life, and what it had shown."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        die_at(line)
        asyncio.run(live(folder, writer))
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as file:
        shown = [json.loads(text) for text in file]
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status):
        raise SystemExit(f"line {line}: the life failed with {os.WEXITSTATUS(status)}")
    return os.WIFSIGNALED(status), shown


def main() -> None:
    """Live and die, once for each line."""
    logs.configure(verbosity=0)
    line, is_killed = 0, True
    while is_killed:
        line += 1
        folder = Path(sys.argv[1]) / str(line)
        is_killed, shown = killed(folder, line)
        after = asyncio.run(live_after(folder))
        print(json.dumps({"line": line, "shown": shown, "after": after}))  # noqa: T201


if __name__ == "__main__":
    main()
