"""
Measure what kube-scheduler's questions cost: a scheduler of its own process, and clusters of several sizes.

`python e2e/bench/filter.py` prints a table, with `--json` its figures; `--write FILE` replaces the table of that page.
Calls follow each other as kube-scheduler's do, one at a time on one connection, and each that fits is another Pod's.
`nothing` is a call of the same size for a Pod that asks for no device: the price of HTTP and JSON alone, what the
others stand to. The caller is bare, because an HTTP client in Python would add time of its own.
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

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import aiohttp

from bench.load.caller import Caller, connected
from bench.load.frozen_api import FrozenApi, Object, a_bound_pod, asking_pod, made_nodes, made_pods, node_name
from bench.load.service import apart, ready
from bench.record.measurement import percentiles
from bench.record.usage import Usage
from bench.report.command import parser, tell
from bench.report.tables import machine, table
from testbed.ports import free_port
from testbed.processes import Process

ROOT = Path(__file__).resolve().parents[2]
DEVICE_CONFIG = ROOT / "libs/hamicommon/vectors/device-config/default.yaml"
SCHEDULER = Path(sys.executable).with_name("hami-scheduler")
SIZES = ((1000, 0), (1000, 20_000), (5000, 0), (5000, 20_000))
"""Nodes and bound Pods."""
FIRST_ASKED = 20
"""Calls of different Pods that fit nowhere, none of which is remembered; they are slow, so fewer will do."""
SCRAPES = 5
QUIET_SECONDS = 0.3
"""A scheduler that used no processor for so long has taken in all it was told."""


@dataclass(frozen=True, slots=True)
class Found:
    """What one cluster costs."""

    nodes: int
    devices: int
    pods: int
    ready_seconds: float
    """From the start of the process to `/readyz`."""
    ready_cpu_seconds: float
    filter_ms: dict[str, dict[str, float]]
    """By kind of Pod and percentile, as the caller sees it."""
    filter_cpu_ms: dict[str, float]
    """By kind of Pod: of the scheduler's processor, each call."""
    event_us: float
    """Of the scheduler's processor, each event of a watch."""
    scrape_ms: float
    """The slowest of some."""
    memory_mib: int
    """After everything."""
    writes: int
    """Requests that would have changed an object; Events left out."""


def main() -> None:
    """Measure and print."""
    arguments = parser(__doc__)
    arguments.add_argument("--nodes", type=int, help="one cluster of this size only")
    arguments.add_argument("--pods", type=int, default=20_000)
    arguments.add_argument("--devices", type=int, default=8)
    arguments.add_argument("--calls", type=int, default=1000, help="of each kind")
    arguments.add_argument("--events", type=int, default=6000)
    arguments.add_argument("--seed", type=int, default=1)
    given = arguments.parse_args()
    load = os.getloadavg()[0]
    sizes = ((given.nodes, given.pods),) if given.nodes else SIZES
    found = [asyncio.run(measure(nodes, pods, given)) for nodes, pods in sizes]
    tell(given, "filter", [asdict(each) for each in found], page(found, given.calls, load))


def page(found: Sequence[Found], calls: int, load: float) -> str:
    """Return the tables, and under which circumstances they came about."""
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
            str(each.memory_mib),
            str(each.writes),
        ]
        for name, each in zip(names, found, strict=True)
    ]
    circumstances = (
        f"{calls} calls of each kind, {FIRST_ASKED} where the Pod is new; {machine()}, one processor the "
        f"scheduler's; load average before the run {load:.1f}."
    )
    heads = ["", "ready s", "CPU s", "event µs", "/metrics ms", "MiB", "writes"]
    return "\n\n".join(
        (circumstances, table(["/filter", "p50 ms", "p95", "p99", "max", "CPU ms"], slow), table(heads, rest))
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
                round(max([await scraped(session) for _ in range(SCRAPES)]) * 1000, 1),
                Usage.now({"scheduler": process.pid}).memory_mib["scheduler"],
                api.writes,
            )
    finally:
        await api.close()


@asynccontextmanager
async def a_scheduler(api: FrozenApi) -> AsyncIterator[tuple[Process, aiohttp.ClientSession, Caller, float]]:
    """Run a scheduler on a processor of its own; yield it, ways to it, and how long it took to be ready."""
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
    """Return the seconds each call took."""
    bodies = (json.dumps({"Pod": pod, "Nodes": None, "NodeNames": names}).encode() for pod in pods)
    return [await caller.post("/filter", body) for body in bodies]


async def told(api: FrozenApi, process: Process, node_count: int, device_count: int, count: int) -> float:
    """Return the microseconds of processor an event costs: Pods that are seen bound, change, and go, in equal parts."""
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
    """Wait until the scheduler does nothing; what it does every quarter of a second is below a tick of the clock."""
    while True:
        before = Usage.now({"scheduler": process.pid})
        await asyncio.sleep(QUIET_SECONDS)
        if Usage.now({"scheduler": process.pid}).since(before)["scheduler"] < QUIET_SECONDS / 10:
            return


async def scraped(session: aiohttp.ClientSession) -> float:
    """Return the seconds a scrape took."""
    began = time.perf_counter()
    async with session.get("/metrics") as answer:
        await answer.read()
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
