"""
Measure the cost of kube-scheduler's calls: a scheduler process, with clusters of several sizes.

`python e2e/bench/filter.py` prints a table, with `--json` the figures. `--write FILE` replaces the table of a page.
Calls follow each other like kube-scheduler's, one at a time on one connection. Each call that fits is for another Pod.
`nothing` is a call of the same size for a Pod that requests no device: the cost of HTTP and JSON, for comparison.
The caller is minimal, because an HTTP client in Python would add time.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import aiohttp

from bench.load.caller import Caller, connected
from bench.load.frozen_api import FrozenApi, a_bound_pod, asking_pod, made_nodes, made_pods, node_name
from bench.load.service import apart, ready
from bench.record.measurement import percentiles
from bench.record.usage import Usage, peak_memory_mib
from bench.report.command import parser, tell
from bench.report.tables import machine, table
from hamicommon.model import Object
from testbed.ports import free_port
from testbed.processes import Process

ROOT = Path(__file__).resolve().parents[2]
DEVICE_CONFIG = ROOT / "libs/hamicommon/vectors/device-config/default.yaml"
SCHEDULER = Path(sys.executable).with_name("hami-scheduler")
SIZES = ((1000, 0), (1000, 5000), (5000, 25_000), (10_000, 50_000), (20_000, 100_000))
"""Nodes and bound Pods."""
FIRST_ASKED = 20
"""Calls for different Pods that fit on no Node, so that none is cached. They are slow, so there are fewer."""
SCRAPES = 5
CALLS_DURING_SCRAPE = 20
QUIET_SECONDS = 0.3
"""A scheduler that uses no processor for this time has processed all events."""


@dataclass(frozen=True, slots=True)
class Found:
    """The figures of one cluster."""

    nodes: int
    devices: int
    pods: int
    ready_seconds: float
    """From the start of the process to `/readyz`."""
    ready_cpu_seconds: float
    filter_ms: dict[str, dict[str, float]]
    """The latency for the caller, by kind of Pod and percentile."""
    filter_cpu_ms: dict[str, float]
    """Processor time of the scheduler for each call, by kind of Pod."""
    event_us: float
    """Processor time of the scheduler for each watch event."""
    scrape_ms: float
    """The slowest of several scrapes."""
    filter_while_scraped_ms: float
    """The slowest call that fits, while scrapes are answered."""
    peak_mib: int
    """The most resident memory until the end."""
    writes: int
    """Requests that would have changed an object, except Events."""


def main() -> None:
    """Measure, and print."""
    arguments = parser(__doc__)
    arguments.add_argument("--nodes", type=int, help="only one cluster of this size")
    arguments.add_argument("--pods", type=int, default=5000)
    arguments.add_argument("--devices", type=int, default=8)
    arguments.add_argument("--calls", type=int, default=1000, help="calls of each kind")
    arguments.add_argument("--events", type=int, default=6000)
    arguments.add_argument("--seed", type=int, default=1)
    given = arguments.parse_args()
    load = os.getloadavg()[0]
    sizes = ((given.nodes, given.pods),) if given.nodes else SIZES
    found = [asyncio.run(measure(nodes, pods, given)) for nodes, pods in sizes]
    tell(given, "filter", [asdict(each) for each in found], page(found, given.calls, load))


def page(found: Sequence[Found], calls: int, load: float) -> str:
    """Return the tables, with the circumstances."""
    names = [f"{each.nodes} × {each.devices}, {each.pods} Pods" for each in found]
    slow = [
        [f"{name}: {case}", *(f"{value:.2f}" for value in ms.values()), f"{each.filter_cpu_ms[case]:.2f}"]
        for name, each in zip(names, found, strict=True)
        for case, ms in each.filter_ms.items()
    ]
    rest = [
        [
            name,
            f"{each.ready_seconds:.1f}",
            f"{each.ready_cpu_seconds:.1f}",
            f"{each.event_us:.0f}",
            f"{each.scrape_ms:.0f}",
            f"{each.filter_while_scraped_ms:.1f}",
            str(each.peak_mib),
            str(each.writes),
        ]
        for name, each in zip(names, found, strict=True)
    ]
    circumstances = (
        f"{calls} calls of each kind, {FIRST_ASKED} where the Pod is new; {machine()}, one processor for the "
        f"scheduler; load average before the run {load:.1f}."
    )
    columns = (
        "*/filter beside it* is the slowest `/filter`, in ms, that was called while `/metrics` was answered. *peak "
        "MiB* is the most memory that the scheduler has had resident."
    )
    heads = ["", "ready s", "CPU s", "event µs", "/metrics ms", "/filter beside it", "peak MiB", "writes"]
    return "\n\n".join(
        (circumstances, table(["/filter", "p50 ms", "p95", "p99", "max", "CPU ms"], slow), columns, table(heads, rest))
    )


async def measure(node_count: int, pod_count: int, given: argparse.Namespace) -> Found:
    """Return the figures of one cluster."""
    pods = made_pods(pod_count, node_count, given.devices, given.seed)
    api = await FrozenApi.serving(nodes=made_nodes(node_count, given.devices), pods=pods)
    del pods
    names = [node_name(index) for index in range(node_count)]
    try:
        async with a_scheduler(api) as (process, session, caller, ready_seconds):
            ready_cpu_seconds = Usage.now({"scheduler": process.pid}).cpu_seconds["scheduler"]
            kinds: dict[str, list[Object]] = {
                "nothing": [asking_pod("nothing", 0)] * given.calls,
                "fits": [asking_pod(f"fits-{number}", 3000) for number in range(given.calls)],
                "fits nowhere, new": [asking_pod(f"huge-{number}", 10**6 + number) for number in range(FIRST_ASKED)],
                "fits nowhere, again": [asking_pod("again", 10**6)] * given.calls,
            }
            waits, cpu_ms = {}, {}
            for kind, asking in kinds.items():
                before = Usage.now({"scheduler": process.pid})
                waits[kind] = percentiles(await asked(caller, asking, names), 1000)
                used = Usage.now({"scheduler": process.pid}).since(before)["scheduler"]
                cpu_ms[kind] = round(used * 1000 / len(asking), 3)
            scrape_seconds, filter_seconds = await scraped(session, caller, names)
            event_us = await told(api, process, node_count, given.devices, given.events)
            return Found(
                node_count,
                given.devices,
                pod_count,
                round(ready_seconds, 2),
                round(ready_cpu_seconds, 2),
                waits,
                cpu_ms,
                event_us,
                round(scrape_seconds * 1000, 1),
                round(filter_seconds * 1000, 1),
                peak_memory_mib(process.pid),
                api.writes,
            )
    finally:
        await api.close()


@asynccontextmanager
async def a_scheduler(api: FrozenApi) -> AsyncIterator[tuple[Process, aiohttp.ClientSession, Caller, float]]:
    """Run a scheduler on one processor. Yields the process, its connections, and the seconds until it was ready."""
    with tempfile.TemporaryDirectory() as folder:
        api.write_kubeconfig(Path(folder) / "kubeconfig")
        port = free_port()
        flags = (f"--kubeconfig={folder}/kubeconfig", f"--device-config-file={DEVICE_CONFIG}")
        binds = (f"--http_bind=127.0.0.1:{port}", "--metrics-bind-address=127.0.0.1:0", "--explain-bind-address=")
        began = time.perf_counter()
        with apart(Path(folder), "scheduler", [str(SCHEDULER), *flags, *binds], {}) as process:
            connector = aiohttp.TCPConnector(limit=1)
            async with aiohttp.ClientSession(f"http://127.0.0.1:{port}", connector=connector) as session:
                await ready(session)
                ready_seconds = time.perf_counter() - began
                async with connected(port) as caller:
                    yield process, session, caller, ready_seconds


async def asked(caller: Caller, pods: Sequence[Object], names: list[str]) -> list[float]:
    """Return the duration of each call in seconds."""
    bodies = (json.dumps({"Pod": pod, "Nodes": None, "NodeNames": names}).encode() for pod in pods)
    return [await caller.post("/filter", body) for body in bodies]


async def told(api: FrozenApi, process: Process, node_count: int, device_count: int, count: int) -> float:
    """Return the processor time of an event in microseconds. A third each of Pods are bound, changed and deleted."""
    await quiet(process)
    before = Usage.now({"scheduler": process.pid})
    for number in range(count // 3):
        pod = a_bound_pod(10**6 + number, number % node_count, number % device_count)
        api.tell("pods", "ADDED", pod)
        api.tell("pods", "MODIFIED", {**pod, "status": {"phase": "Running", "podIP": "10.0.0.1"}})
        api.tell("pods", "DELETED", pod)
    await quiet(process)
    return round(Usage.now({"scheduler": process.pid}).since(before)["scheduler"] * 10**6 / count, 1)


async def quiet(process: Process) -> None:
    """Wait until the scheduler is idle. Its periodic work is shorter than a tick of the clock."""
    while True:
        before = Usage.now({"scheduler": process.pid})
        await asyncio.sleep(QUIET_SECONDS)
        if Usage.now({"scheduler": process.pid}).since(before)["scheduler"] < QUIET_SECONDS / 10:
            return


async def scraped(session: aiohttp.ClientSession, caller: Caller, names: list[str]) -> tuple[float, float]:
    """Return the seconds of the slowest scrape, and of the slowest filter that was called during one."""

    async def scrape() -> float:
        began = time.perf_counter()
        async with session.get("/metrics") as answer:
            await answer.read()
        return time.perf_counter() - began

    slowest_scrape = slowest_filter = 0.0
    for scrape_number in range(SCRAPES):
        pods = [asking_pod(f"scraped-{scrape_number}-{number}", 3000) for number in range(CALLS_DURING_SCRAPE)]
        scrape_seconds, filter_seconds = await asyncio.gather(scrape(), asked(caller, pods, names))
        slowest_scrape, slowest_filter = max(slowest_scrape, scrape_seconds), max(slowest_filter, *filter_seconds)
    return slowest_scrape, slowest_filter


if __name__ == "__main__":
    main()
