"""
The monitor as a process.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from inspect import isawaitable
from pathlib import Path
from typing import Any

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from testbed.waiting import NotInTimeError, eventually

PROGRAM = Path(sys.executable).with_name("hami-monitor")
NODE = "n1"
DEADLINE_SECONDS = 20.0

CONTAINER = """
import ctypes, sys

cuda = ctypes.CDLL("libcuda.so.1")
device, context, pointer = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
for call in (
    lambda: cuda.cuInit(0),
    lambda: cuda.cuDeviceGet(ctypes.byref(device), 0),
    lambda: cuda.cuCtxCreate_v2(ctypes.byref(context), 0, device),
    lambda: cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(100 << 20)),
):
    if (result := call()) != 0:
        sys.exit(f"CUDA error {result}")
sys.stdin.readline()
"""
"""A program that takes 100 MiB of its first device, and ends with its standard input."""

Labels = tuple[tuple[str, str], ...]
"""Label and value, sorted."""
Samples = dict[str, dict[Labels, float]]
"""Values by name and labels."""


class Service:
    """A running hami-monitor."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.logs: list[dict[str, Any]] = []
        self.port = 0
        self._reader = asyncio.create_task(self._read_logs())

    @classmethod
    def starter(cls, hook_path: Path, kubeconfig: Path) -> "Start":
        """Return the function that runs the monitor on NODE; it takes flags, and variables by name."""

        @asynccontextmanager
        async def start(*arguments: str, **environment: str) -> AsyncIterator[Service]:
            given = {
                "NODE_NAME": NODE,
                "HOOK_PATH": str(hook_path),
                "KUBECONFIG": str(kubeconfig),
                "LD_LIBRARY_PATH": "",
            }
            process = await asyncio.create_subprocess_exec(
                str(PROGRAM),
                "--metrics-bind-address=127.0.0.1:0",
                "--feedback-interval=100ms",
                *arguments,
                env=os.environ | given | environment,
                stderr=asyncio.subprocess.PIPE,
            )
            service = cls(process)
            try:
                await eventually(lambda: service.port)
                yield service
            finally:
                await service.stop(signal.SIGKILL)

        return start

    async def get(self, path: str) -> tuple[int, str]:
        """Return the status and the text of *path*."""
        async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{self.port}{path}") as answer:
            return answer.status, await answer.text()

    async def samples(self) -> Samples:
        """Return the samples of a scrape, without the label `zone`."""
        _, text = await self.get("/metrics")
        found: Samples = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                labels = tuple(sorted(pair for pair in sample.labels.items() if pair[0] != "zone"))
                found.setdefault(sample.name, {})[labels] = sample.value
        return found

    async def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal and return the exit code."""
        if self.process.returncode is None:
            self.process.send_signal(number)
        code = await self.process.wait()
        await self._reader
        return code

    async def _read_logs(self) -> None:
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            self.logs.append(json.loads(line))
            if self.logs[-1]["event"] == "Serving":
                self.port = self.logs[-1]["port"]


Start = Callable[..., AbstractAsyncContextManager[Service]]


async def eventually_equal(look: Callable[[], Any | Awaitable[Any]], expected: object) -> None:
    """Wait until *look*, plain or async, returns *expected*; fail with what it returned last."""
    found: object = None

    async def is_equal() -> bool:
        nonlocal found
        answer = look()
        found = await answer if isawaitable(answer) else answer
        return found == expected

    try:
        await eventually(is_equal, seconds=DEADLINE_SECONDS)
    except NotInTimeError:
        assert expected == found
        raise
