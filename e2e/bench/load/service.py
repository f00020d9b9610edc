"""
A measured service: a process on one processor, which no other process of the benchmark uses.

Owns the process and its processor. Must never know what the benchmark requests.
"""

import asyncio
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import aiohttp

from testbed.processes import Process, Supervisor

READY_SECONDS = 120.0


@contextmanager
def apart(folder: Path, name: str, argv: Sequence[str], environment: Mapping[str, str]) -> Iterator[Process]:
    """Run *argv* on one processor, and this process on the others. The log is in *folder*."""
    supervisor, processors = Supervisor(folder), sorted(os.sched_getaffinity(0))
    process = supervisor.start(name, argv, environment)
    try:
        os.sched_setaffinity(process.pid, processors[:1])
        os.sched_setaffinity(0, processors[1:] or processors)
        yield process
    finally:
        os.sched_setaffinity(0, processors)
        supervisor.stop()


async def ready(session: aiohttp.ClientSession) -> None:
    """Wait until the service of *session* is ready."""
    async with asyncio.timeout(READY_SECONDS):
        while True:
            try:
                async with session.get("/readyz") as answer:
                    if 200 == answer.status:
                        return
            except aiohttp.ClientConnectorError:
                pass  # it does not listen yet
            await asyncio.sleep(0.05)
