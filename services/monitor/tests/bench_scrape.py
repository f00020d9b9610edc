"""
Measure one scrape of a full Node over HTTP: 8 devices, 80 containers. And one look of its watchdog, at its dearest: no
process of a container has the library or is in its region.

Prints JSON. Run it at the root: `.venv/bin/python -m services.monitor.tests.bench_scrape`. The same run measures the
parts of a scrape and two baselines: an answer without content (`/livez`), and reading every region as a whole.
"""

import asyncio
import json
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from typing import Any
from uuid import UUID

import aiohttp
from prometheus_client import CollectorRegistry

from hami_monitor.adapters.kube import Events, Node, Pods
from hami_monitor.adapters.nvml import Driver
from hami_monitor.adapters.processes import Processes
from hami_monitor.config import Config
from hami_monitor.decide.accounts.book import Book, advance
from hami_monitor.decide.accounts.price import Offer
from hami_monitor.decide.host import DeviceProcess, HostDevice
from hami_monitor.metrics.account_families import AccountStatus
from hami_monitor.metrics.collector import MonitorCollector
from hami_monitor.serve.monitor import Monitor
from hamicommon.pod.control_groups import ContainerGroup
from hamicommon.runtime.api.kube import Kube
from hamicommon.runtime.program import garbage, logs
from hamicommon.runtime.serving import http
from hamicommon.wire.region.codec import decode_region
from hamicommon.wire.region.records import DeviceRecords

from .region_files import Process, a_region

DEVICES, CONTAINERS, ROUNDS = 8, 80, 100
NODE = "gpu-node-17.example"
OPEN_METRICS = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
"""What Prometheus asks for."""


def a_device(index: int) -> HostDevice:
    """Return a device with a reading of every sensor."""
    known: dict[str, Any] = {"index": index, "uuid": device_uuid(index), "name": "NVIDIA H100 80GB HBM3"}
    readings = [field.name for field in fields(HostDevice) if field.default is None]
    return HostDevice(**(known | dict.fromkeys(readings, 12345 + index)))


def device_uuid(index: int) -> str:
    """Return a UUID as long as a driver's."""
    return f"GPU-{UUID(int=index * 2**96 + 12345)}"


def a_pod(index: int) -> dict[str, Any]:
    """Return a Pod with names as long as a Deployment's."""
    name = f"inference-server-{index % 10}-7d4b9c6f5-{index:05x}"
    share = f"{device_uuid(index % DEVICES)},NVIDIA,8192,30:;"
    annotations = {"hami.io/vgpu-node": NODE, "hami.io/vgpu-devices-allocated": share}
    metadata = {"uid": str(UUID(int=index)), "namespace": "team-machine-learning", "name": name}
    spec = {"nodeName": NODE, "containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]}
    status = {
        "phase": "Running",
        "startTime": "2026-01-01T00:00:00Z",
        "containerStatuses": [{"name": "main", "containerID": f"containerd://{index}"}],
    }
    return {"metadata": metadata | {"annotations": annotations}, "spec": spec, "status": status}


@contextmanager
def processes_of_containers() -> Iterator[tuple[int, ...]]:
    """Yield the pid of a process of each container."""
    running = [subprocess.Popen(["sleep", "infinity"]) for _ in range(CONTAINERS)]
    try:
        yield tuple(process.pid for process in running)
    finally:
        for process in running:
            process.kill()
            process.wait()


def with_processes(pids: Sequence[int]) -> tuple[HostDevice, ...]:
    """Return the devices with the processes *pids* of all containers."""
    processes = [DeviceProcess(pid, (300 << 20) + 4096 * index, index % 30 / 2) for index, pid in enumerate(pids)]
    listed = [processes[index::DEVICES] for index in range(DEVICES)]
    return tuple(replace(a_device(index), processes=tuple(those)) for index, those in enumerate(listed))


def write_regions(hook_path: Path, processes: int) -> list[Path]:
    """Write the regions of all containers, each with one device, *processes* processes and numbers like no other's."""
    paths = []
    for index in range(CONTAINERS):
        directory = hook_path / "containers" / f"{UUID(int=index)}_main"
        directory.mkdir(parents=True)
        context, data = (300 << 20) + 4096 * index, (1 << 30) + 1_234_567 * index
        content = a_region(
            uuids=(device_uuid(index % DEVICES).encode(),),
            limits=(8 << 30,),
            processes=(Process({0: (context, 0, data, 0, context + data)}, {0: index % 30}),) * processes,
            last_kernel_time=int(time.time()) - index,
            records=(DeviceRecords((6 << 30) + data, 12345 + 67 * index, 678_900_000_000 + 12_345_678_901 * index),),
        )
        paths.append(directory / "region.cache")
        paths[-1].write_bytes(content)
    return paths


def a_book(pods: Pods) -> Book:
    """Return the book of an hour in which all *pods* have held their shares."""
    offers = {device_uuid(index): Offer("NVIDIA H100 80GB HBM3", 81559, 100) for index in range(DEVICES)}
    share_times, began = pods.share_times(), time.time() - 3600
    return advance(advance(Book(began), began, offers, share_times, {}), began + 3600, offers, share_times, {})


async def timed(work: Callable[[], Awaitable[Any]]) -> dict[str, float]:
    """
    Return the median and the 99th percentile of *work*, and the tenth and the median of its processor time, in ms.

    On a busy machine only the last two say something about the code, and other programs disturb the tenth least. They
    include the client's part.
    """
    times, processor = [], []
    for _ in range(ROUNDS):
        began, began_processor = time.perf_counter(), time.process_time()
        await work()
        times.append((time.perf_counter() - began) * 1000)
        processor.append((time.process_time() - began_processor) * 1000)
    shown = {
        "p50_ms": median(times),
        "p99_ms": quantiles(times, n=100)[-1],
        "p10_cpu_ms": quantiles(processor, n=10)[0],
        "p50_cpu_ms": median(processor),
    }
    return {name: round(value, 2) for name, value in shown.items()}


def write_kubeconfig(folder: Path) -> Path:
    """Write a kubeconfig whose API server nobody asks, and return its path."""
    path = folder / "kubeconfig"
    path.write_text(
        '{"clusters":[{"name":"c","cluster":{"server":"http://127.0.0.1:9"}}],"users":[{"name":"u","user":{}}],'
        '"contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}],"current-context":"c"}'
    )
    return path


async def measure(folder: Path, processes: int, pids: Sequence[int]) -> dict[str, Any]:
    """Measure a Node whose containers have *processes* processes each in their regions, and one of *pids* each."""
    groups = {pid: ContainerGroup(str(UUID(int=index)), str(index)) for index, pid in enumerate(pids)}
    paths = write_regions(folder, processes)
    async with await Kube.connect(str(write_kubeconfig(folder)), "bench") as kube:
        pods = Pods(kube, NODE)
        pods.replace([a_pod(index) for index in range(CONTAINERS)])
        node = Node(kube, NODE)
        node.seen = {"metadata": {"name": NODE}}
        config = Config(NODE, str(folder), resync_seconds=1e9)
        monitor = Monitor(config, pods, node, Driver(), Processes(groups.get), Events(kube))
        registry = CollectorRegistry(auto_describe=False)
        registry.register(MonitorCollector(monitor.observe, monitor.status))
        app = http.application("bench", "0", live=monitor.rounds.live, ready=monitor.rounds.ready, registry=registry)
        server = await http.serve(app, "127.0.0.1:0")
        monitor.driver.devices = with_processes(pids)
        await monitor.watchdog.look(monitor.driver.devices)
        await monitor.rounds.round()
        monitor.accounts.status = AccountStatus(NODE, a_book(pods))
        await garbage.keep_small(partial(asyncio.sleep, 0))
        async with aiohttp.ClientSession(f"http://127.0.0.1:{server.port}") as session:

            async def get(path: str, accept: str = "*/*") -> bytes:
                async with session.get(path, headers={"Accept": accept}) as answer:
                    return await answer.read()

            async def wire_bytes() -> int:
                async with session.get("/metrics") as answer:
                    return int(answer.headers["Content-Length"])

            async def observe() -> None:
                monitor.observe()

            async def read_whole_files() -> None:
                for path in paths:
                    decode_region(path.read_bytes())

            async def watch() -> None:
                await monitor.watchdog.look(monitor.driver.devices)

            result = {
                "processes_per_container": processes,
                "scrape": await timed(lambda: get("/metrics")),
                "scrape_open_metrics": await timed(lambda: get("/metrics", OPEN_METRICS)),
                "scrape_bytes": await wire_bytes(),
                "scrape_text_bytes": len(await get("/metrics")),
                "scrape_series": sum(not line.startswith(b"#") for line in (await get("/metrics")).splitlines()),
                "round": await timed(monitor.rounds.round),
                "reading_regions": await timed(observe),
                "watchdog": await timed(watch),
                "baseline_livez": await timed(lambda: get("/livez")),
                "baseline_whole_files": await timed(read_whole_files),
            }
        await server.close()
        monitor.close()
    return result


def main() -> None:
    """Measure a usual and a crowded Node."""
    logs.configure(verbosity=0)
    results = []
    for processes in (2, 16):
        with tempfile.TemporaryDirectory() as folder, processes_of_containers() as pids:
            results.append(asyncio.run(measure(Path(folder), processes, pids)))
    report = {"devices": DEVICES, "containers": CONTAINERS, "rounds": ROUNDS, "nodes": results}
    print(json.dumps(report, indent=1))  # noqa: T201


if __name__ == "__main__":
    main()
