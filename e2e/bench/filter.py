"""
Measure what one decision of the scheduler costs, and what it costs over HTTP.

`python e2e/bench/filter.py --nodes 1000 --devices 8 --pods 4000` prints one JSON object: milliseconds per call at the
50th and 99th percentile. `accept` is a Pod that fits, `refuse` one that fits nowhere, `nothing` a body of the same size
that asks for no device: the price of HTTP and JSON alone, the baseline of the others.
"""

import argparse
import asyncio
import gc
import json
import resource
import statistics
import time
from datetime import UTC, datetime
from typing import Any

import aiohttp
from prometheus_client import CollectorRegistry

from hami_scheduler.cluster import Cluster
from hami_scheduler.extender import Clock, Extender, Settings
from hami_scheduler.filter import filter_nodes
from hami_scheduler.http import BODY_LIMIT_BYTES, add_routes
from hami_scheduler.request import PodRequest, Policies, read_request
from hami_scheduler.vendors import vendor_frames
from hamicommon.config import load_device_config
from hamicommon.runtime import logs
from hamicommon.runtime.http import application, serve

_CONFIG = """
nvidia:
  resourceCountName: nvidia.com/gpu
  resourceMemoryName: nvidia.com/gpumem
  resourceMemoryPercentageName: nvidia.com/gpumem-percentage
  resourceCoreName: nvidia.com/gpucores
  resourcePriorityName: nvidia.com/priority
"""


def main() -> None:
    """Measure and print."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--nodes", type=int, default=1000)
    arguments.add_argument("--devices", type=int, default=8)
    arguments.add_argument("--pods", type=int, default=4000)
    arguments.add_argument("--calls", type=int, default=500)
    found = arguments.parse_args()
    logs.configure(0)
    print(json.dumps(asyncio.run(measure(found.nodes, found.devices, found.pods, found.calls)), indent=2))


async def measure(node_count: int, device_count: int, pod_count: int, calls: int) -> dict[str, Any]:
    """Return the figures of a cluster of this size."""
    cluster, loaded = _cluster(node_count, device_count, pod_count)
    names = [_name(index) for index in range(node_count)]
    fits, refused = _pod("fits", 3000), _pod("refused", 10**6)
    nothing = _pod("nothing", 0)
    figures: dict[str, Any] = {
        "nodes": node_count,
        "devices": device_count,
        "pods": pod_count,
        "load_seconds": round(loaded, 3),
        "max_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }
    gc.freeze()
    for verdict, pod in (("accept", fits), ("refuse", refused)):
        request = read_request(pod, cluster.vendors, Policies())
        figures[f"decide_{verdict}_ms"] = _percentiles([_timed_decision(request, names, cluster) for _ in range(calls)])
    async with aiohttp.ClientSession() as session:
        server = await _serve(cluster)
        for verdict, pod in (("nothing", nothing), ("accept", fits), ("refuse", refused)):
            body = json.dumps({"Pod": pod, "Nodes": None, "NodeNames": names}).encode()
            url = f"http://127.0.0.1:{server.port}/filter"
            figures[f"http_{verdict}_ms"] = _percentiles([await _timed_call(session, url, body) for _ in range(calls)])
        await server.close()
    return figures


async def _serve(cluster: Cluster) -> Any:
    class Silent:
        def tell(self, *_arguments: Any, **_keywords: Any) -> None:
            """Write no Event."""

    silent: Any = Silent()
    locks: Any = None
    clock = Clock(lambda: datetime.now(UTC), time.monotonic)
    extender = Extender(cluster, silent, locks, clock, Settings(), lambda: None)
    app = application("bench", "0", registry=CollectorRegistry(), max_body_bytes=BODY_LIMIT_BYTES)
    add_routes(app, extender, lambda _verb, _seconds, _outcome: None)
    return await serve(app, "127.0.0.1:0")


def _timed_decision(request: PodRequest, names: list[str], cluster: Cluster) -> float:
    began = time.perf_counter()
    filter_nodes(request, names, cluster.snapshot)
    return time.perf_counter() - began


async def _timed_call(session: aiohttp.ClientSession, url: str, body: bytes) -> float:
    began = time.perf_counter()
    async with session.post(url, data=body, headers={"Content-Type": "application/json"}) as answer:
        await answer.read()
    return time.perf_counter() - began


def _percentiles(seconds: list[float]) -> dict[str, float]:
    cuts = statistics.quantiles(seconds, n=100)
    return {"p50": round(cuts[49] * 1000, 3), "p99": round(cuts[98] * 1000, 3)}


def _cluster(node_count: int, device_count: int, pod_count: int) -> tuple[Cluster, float]:
    """Return a cluster under load, and the seconds it took to read it."""
    nodes = [_node(index, device_count) for index in range(node_count)]
    pods = [_bound(index, node_count, device_count) for index in range(pod_count)]
    cluster = Cluster(vendor_frames(load_device_config(_CONFIG)), lambda _kind, _name, _problem: None)
    began = time.perf_counter()
    cluster.replace_nodes(nodes, datetime.now(UTC))
    cluster.replace_pods(pods, 0.0)
    return cluster, time.perf_counter() - began


def _name(index: int) -> str:
    return f"gpu-node-{index:05}"


def _node(index: int, device_count: int) -> dict[str, Any]:
    devices = [
        {
            "id": f"GPU-{index:05}-{device}",
            "index": device,
            "count": 10,
            "devmem": 81559,
            "devcore": 100,
            "type": "NVIDIA H100 80GB HBM3",
            "numa": device // 4,
            "mode": "hami-core",
            "health": True,
        }
        for device in range(device_count)
    ]
    return {
        "metadata": {
            "name": _name(index),
            "annotations": {"hami.io/node-nvidia-register": json.dumps(devices), "hami.io/node-allocation": "identity"},
        },
        "status": {"allocatable": {"nvidia.com/gpu": str(10 * device_count)}},
    }


def _bound(index: int, node_count: int, device_count: int) -> dict[str, Any]:
    pod = _pod(f"bound-{index}", 3000)
    node, device = index * 7919 % node_count, index % device_count
    pod["spec"]["nodeName"] = _name(node)
    pod["metadata"]["annotations"] = {
        "hami.io/vgpu-node": _name(node),
        "hami.io/vgpu-devices-allocated": f"GPU-{node:05}-{device},NVIDIA,3000,10:;",
    }
    return pod


def _pod(name: str, memory_mib: int) -> dict[str, Any]:
    limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": str(memory_mib), "nvidia.com/gpucores": "10"}
    return {
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}", "annotations": {}},
        "spec": {"containers": [{"name": "app", "resources": {"limits": limits if memory_mib else {}}}]},
        "status": {"phase": "Pending"},
    }


if __name__ == "__main__":
    main()
