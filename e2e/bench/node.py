"""
Measure what the device plugin costs a Node: starts of many Pods at once, and a minute in which nothing happens.

`python e2e/bench/node.py` prints a table, with `--json` the figures. `--write FILE` replaces the table of a page.
The plugin gets Pods that are bound already, as its watch shows them. The device manager of the embedded cluster's
kubelet calls Allocate for one container after another, as a kubelet does, and then PreStartContainer for all at once,
which is harder than a kubelet. The API server is stopped during the second half of the starts. Then the same kubelet
starts as many Pods of a plugin that does nothing, which shows what the kubelet and gRPC cost. The plugin's own metrics
say how long the same calls took without them.
"""

import asyncio
import os
import re
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import aiohttp

from bench.load import empty_plugin
from bench.load.service import apart
from bench.record.measurement import percentiles
from bench.record.usage import Usage, processor_seconds
from bench.report.command import parser, progress, tell
from bench.report.tables import machine, table
from hamicommon.model import Object
from hamicommon.runtime.kubelet_api._proto import podresources_v1_pb2 as resources_api
from hamicommon.wire import keys
from minicluster.client import ApiError, Client
from minicluster.kubelet.devices.manager import DeviceManager
from minicluster.kubelet.devices.pluginclients import PluginClient
from minicluster.kubelet.devices.podresources import PodResourcesServer
from testbed.driver.hardware import FakeNode
from testbed.ports import free_port
from testbed.processes import Process, Supervisor
from testbed.waiting import eventually

P = ParamSpec("P")
T = TypeVar("T")

ROOT = Path(__file__).resolve().parents[2]
NATIVE = ROOT / "build/native"
BIN = Path(sys.executable).parent
RESOURCE = "nvidia.com/gpu"
NODE = FakeNode.of("node", "NVIDIA H100 80GB HBM3", 81559, 8)
DEVICE_CONFIG = f"nvidia:\n  resourceCountName: {RESOURCE}\n  deviceSplitCount: 10\n"
READY_SECONDS = 60.0
SETTLED_SECONDS = 5.0
"""After it, the marks of the Pods are written, and the plugin is idle."""
MEMORY = "/dev/shm"
"""Holds the CDI directory, which is in memory on a host: `/var/run/cdi`."""
START = "PreStartContainer"
STOPPED = "PreStartContainer, API server stopped"
EMPTY = "PreStartContainer of a plugin that does nothing"
OWN_METRIC = re.compile(r'hami_device_plugin_pre_start_seconds_(count|sum|bucket{le="0.05"}) (\S+)')


@dataclass(frozen=True, slots=True)
class Starts:
    """What the starts of many Pods at once took."""

    allocations: list[float]
    """Seconds that each Allocate took."""
    starts: list[float]
    """Seconds that each PreStartContainer took."""
    cpu_ms: dict[str, float]
    """Processor time of one PreStartContainer, by process."""


@dataclass(frozen=True, slots=True)
class Own:
    """What the plugin's metrics say of its calls of PreStartContainer, without kubelet and gRPC."""

    calls: int
    mean_ms: float
    within_50_ms: int


@dataclass(frozen=True, slots=True)
class Found:
    """What one plugin did and cost."""

    pods: int
    ms: dict[str, dict[str, float]]
    """By call, the time from the kubelet's call to the answer, by percentile."""
    cpu_ms: dict[str, dict[str, float]]
    """By call, its processor time, by process."""
    own: Own
    idle_seconds: float
    idle_cpu_percent: float
    """Of one processor."""
    idle_writes: int
    """Changes of objects in the API server."""
    memory_mib: int


def main() -> None:
    """Measure, and print."""
    arguments = parser(__doc__)
    arguments.add_argument("--pods", type=int, default=40, help="Pods that start at once")
    arguments.add_argument("--idle", type=float, default=60.0, help="seconds without work")
    given = arguments.parse_args()
    found = asyncio.run(measure(given.pods, given.idle))
    tell(given, "node", asdict(found), page(found))


def page(found: Found) -> str:
    """Return the tables, with the circumstances."""
    starts = table(
        [f"{found.pods} Pods at once", *(f"{name} ms" for name in next(iter(found.ms.values())))],
        [[call, *(f"{value:.1f}" for value in ms.values())] for call, ms in found.ms.items()],
    )
    cost = table(
        ["processor ms of one call", *next(iter(found.cpu_ms.values()))],
        [[call, *(f"{value:.2f}" for value in ms.values())] for call, ms in found.cpu_ms.items()],
    )
    own = table(
        ["measured by the plugin itself", "calls", "mean ms", "within 50 ms"],
        [["PreStartContainer", str(found.own.calls), f"{found.own.mean_ms:.1f}", str(found.own.within_50_ms)]],
    )
    idle = table(
        [f"{found.idle_seconds:.0f} s without work", ""],
        [
            ["processor", f"{found.idle_cpu_percent:.2f} %"],
            ["memory", f"{found.memory_mib} MiB"],
            ["writes to the API server", str(found.idle_writes)],
        ],
    )
    circumstances = f"{machine()}, one processor for the plugin, load average {os.getloadavg()[1]:.1f}."
    return f"{circumstances}\n\n{starts}\n\n{own}\n\n{cost}\n\n{idle}"


async def measure(pods: int, idle_seconds: float) -> Found:
    """Return the figures of one plugin on a Node with eight devices."""
    measured: dict[str, Starts] = {}
    with tempfile.TemporaryDirectory(prefix="node-") as folder:
        port = free_port()
        async with a_node(Path(folder), port) as (api, apiserver, kubelet, plugin):
            for call, stopped in ((START, None), (STOPPED, apiserver)):
                kubelet.pods = [await bound(api, f"p{len(measured)}-{index:02}", index) for index in range(pods)]
                await asyncio.sleep(SETTLED_SECONDS)  # the plugin's watch has all Pods
                measured[call] = await start_at_once(kubelet, plugin, stopped)
                progress(call)
                await asyncio.sleep(SETTLED_SECONDS)
            own = await measured_by_plugin(port)
            cpu_percent, writes, memory_mib = await idle(api, plugin, idle_seconds)
        async with an_empty_plugin(Path(folder), pods) as (kubelet, plugin):
            kubelet.pods = [a_pod(f"empty-{index:02}", empty_plugin.RESOURCE) for index in range(pods)]
            measured[EMPTY] = await start_at_once(kubelet, plugin, None)
    ms = {"Allocate": percentiles(measured[START].allocations, 1000)}
    ms |= {call: percentiles(found.starts, 1000) for call, found in measured.items()}
    cpu_ms = {call: found.cpu_ms for call, found in measured.items()}
    return Found(pods, ms, cpu_ms, own, idle_seconds, cpu_percent, writes, memory_mib)


async def measured_by_plugin(port: int) -> Own:
    """Return what the metrics at *port* of this machine say since the plugin's start."""
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/metrics") as answer:
        found = {name: float(value) for name, value in OWN_METRIC.findall(await answer.text())}
    calls = int(found["count"])
    return Own(calls, 1000 * found["sum"] / calls, int(found['bucket{le="0.05"}']))


async def idle(api: Client, plugin: Process, seconds: float) -> tuple[float, int, int]:
    """Return the percentage of a processor, the API writes and the MiB of *plugin* in *seconds* without work."""
    before, version = Usage.now({"plugin": plugin.pid}), await newest(api)
    await asyncio.sleep(seconds)
    after, writes = Usage.now({"plugin": plugin.pid}), await newest(api) - version
    return round(100 * after.since(before)["plugin"] / seconds, 2), writes, after.memory_mib["plugin"]


class Kubelet(DeviceManager):
    """A device manager that times the calls of its plugin, and the Pods it shows to PodResources."""

    def __init__(self, directory: Path) -> None:
        """Serve in *directory*."""
        super().__init__(directory, lambda: [pod["metadata"]["uid"] for pod in self.pods])
        self.is_settled = True
        self.pods: list[Object] = []
        self.shown: Resources
        self.allocations: list[float] = []
        self.starts: list[float] = []

    def plugin_connected(self, client: PluginClient) -> None:
        """Time the calls of *client*."""
        client.allocate = timed(client.allocate, self.allocations)  # type: ignore[method-assign]
        client.pre_start = timed(client.pre_start, self.starts)  # type: ignore[method-assign]
        super().plugin_connected(client)


class Resources(PodResourcesServer):
    """
    PodResources that builds its answer once after a change, so that this process is not what is measured.

    A kubelet needs less than a millisecond for it.
    """

    answer: resources_api.ListPodResourcesResponse | None = None

    async def List(  # noqa: N802
        self, request: resources_api.ListPodResourcesRequest, context: object
    ) -> resources_api.ListPodResourcesResponse:
        """Return all Pods, as they were at the first call since `answer` was cleared."""
        if self.answer is None:
            self.answer = await super().List(request, context)
        return self.answer


def timed(call: Callable[P, Awaitable[T]], times: list[float]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Return *call* with its duration appended to *times*."""

    async def measured(*arguments: P.args, **keywords: P.kwargs) -> T:
        began = time.perf_counter()
        answer = await call(*arguments, **keywords)
        times.append(time.perf_counter() - began)
        return answer

    return measured


async def start_at_once(kubelet: Kubelet, plugin: Process, stopped: Process | None) -> Starts:
    """Start the Pods of *kubelet* with the devices of *plugin*, while the process *stopped* stands still."""
    kubelet.allocations.clear()
    kubelet.starts.clear()
    if stopped is not None:
        os.kill(stopped.pid, signal.SIGSTOP)
    try:
        for pod in kubelet.pods:
            await kubelet.allocate(pod)
        kubelet.shown.answer = None
        began = {"plugin": processor_seconds(plugin.pid), "kubelet": time.process_time()}
        await asyncio.gather(*(kubelet.prepare(pod, pod["spec"]["containers"][0]) for pod in kubelet.pods))
        ended = {"plugin": processor_seconds(plugin.pid), "kubelet": time.process_time()}
    finally:
        if stopped is not None:
            os.kill(stopped.pid, signal.SIGCONT)
    cpu_ms = {process: 1000 * (ended[process] - began[process]) / len(kubelet.pods) for process in ended}
    return Starts(list(kubelet.allocations), list(kubelet.starts), cpu_ms)


async def bound(api: Client, name: str, index: int) -> Object:
    """Create a Pod that is bound and granted a share of one device, and return it."""
    grant = f"{NODE.gpus[index % len(NODE.gpus)].uuid},NVIDIA,3000,10:;"
    pod = a_pod(name, RESOURCE)
    pod["metadata"]["annotations"] = {
        keys.BIND_PHASE: keys.BIND_PHASE_ALLOCATING,
        "hami.io/vgpu-devices-to-allocate": grant,
        "hami.io/vgpu-devices-allocated": grant,
    }
    created: Object = await api.create("/api/v1/namespaces/default/pods", pod)
    return created


def a_pod(name: str, resource: str) -> Object:
    """Return a bound Pod with one device of *resource*."""
    container = {"name": "main", "image": "none", "resources": {"limits": {resource: "1"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": name},
        "spec": {"nodeName": NODE.name, "containers": [container]},
    }


async def newest(api: Client) -> int:
    """Return the newest resource version, which every write of any object raises."""
    return int((await api.list("/api/v1/pods"))[1])


@asynccontextmanager
async def a_node(folder: Path, port: int) -> AsyncIterator[tuple[Client, Process, Kubelet, Process]]:
    """
    Run an API server, a kubelet's device manager and the plugin of one Node; the devices are registered.

    The plugin serves its metrics at *port* of this machine.
    """
    supervisor = Supervisor(folder)
    kubeconfig = folder / "kubeconfig"
    arguments = (f"--listen=127.0.0.1:{free_port()}", f"--kubeconfig={kubeconfig}", f"--data={folder / 'data'}")
    apiserver = supervisor.start("apiserver", [str(BIN / "python"), "-m", "minicluster", "apiserver", *arguments])
    kubelet = Kubelet(folder / "device-plugins")
    kubelet.shown = resources = Resources(folder / "pod-resources", kubelet, lambda: kubelet.pods)
    try:
        await eventually(soon(kubeconfig.exists), "the API server is up", READY_SECONDS)
        async with Client.from_kubeconfig(kubeconfig, "bench") as api:
            await eventually(reachable(api), "the API server answers", READY_SECONDS)
            await api.create("/api/v1/nodes", node())
            await kubelet.start()
            await resources.start()
            with (
                tempfile.TemporaryDirectory(dir=MEMORY) as cdi,
                apart(
                    folder, "plugin", plugin_arguments(folder, Path(cdi), port), plugin_environment(folder)
                ) as plugin,
            ):
                await eventually(
                    soon(lambda: len(kubelet.healthy_devices().get(RESOURCE, ())) == 80),
                    "the plugin has registered",
                    READY_SECONDS,
                )
                yield api, apiserver, kubelet, plugin
    finally:
        await resources.close()
        await kubelet.close()
        supervisor.stop()


@asynccontextmanager
async def an_empty_plugin(folder: Path, devices: int) -> AsyncIterator[tuple[Kubelet, Process]]:
    """Run a kubelet's device manager with a plugin that does nothing; the devices are registered."""
    kubelet = Kubelet(folder / "empty")
    kubelet.shown = Resources(folder / "unused", kubelet, lambda: ())
    arguments = (f"--directory={kubelet.directory}", f"--devices={devices}")
    await kubelet.start()
    try:
        with apart(folder, "empty", [str(BIN / "python"), "-m", empty_plugin.__name__, *arguments], {}) as plugin:
            is_registered = soon(lambda: len(kubelet.healthy_devices().get(empty_plugin.RESOURCE, ())) == devices)
            await eventually(is_registered, "the empty plugin has registered", READY_SECONDS)
            yield kubelet, plugin
    finally:
        await kubelet.close()


def soon(holds: Callable[[], bool]) -> Callable[[], Awaitable[bool]]:
    """Return *holds* as a coroutine function."""

    async def checked() -> bool:
        return holds()

    return checked


def reachable(api: Client) -> Callable[[], Awaitable[bool]]:
    """Return a check that *api* answers."""

    async def checked() -> bool:
        try:
            await api.list("/api/v1/nodes")
        except ApiError:
            return False
        return True

    return checked


def node() -> Object:
    """Return the Node, whose runtime has CDI."""
    versions = {"containerRuntimeVersion": "containerd://2.1.8", "kubeletVersion": "v1.34.4"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": NODE.name},
        "status": {"nodeInfo": versions},
    }


def plugin_arguments(folder: Path, cdi: Path, port: int) -> list[str]:
    """Return the plugin's command line: its files are below *folder*, its specs in *cdi*."""
    config = folder / "device-config.yaml"
    config.write_text(DEVICE_CONFIG)
    return [
        str(BIN / "hami-device-plugin"),
        f"--kubeconfig={folder / 'kubeconfig'}",
        f"--config-file={config}",
        f"--node-config-file={folder / 'none.json'}",
        f"--kubelet-socket={folder / 'device-plugins/kubelet.sock'}",
        f"--pod-resources-socket={folder / 'pod-resources/kubelet.sock'}",
        f"--cdi-root={cdi}",
        "--cdi-generator=",
        f"--library={NATIVE / 'libvgpu.so'}",
        f"--metrics-bind-address=127.0.0.1:{port}",
    ]


def plugin_environment(folder: Path) -> dict[str, str]:
    """Return what the plugin is told beside its flags; the fake driver has the Node's devices."""
    NODE.write_hardware(folder / "hardware")
    return {
        "LD_LIBRARY_PATH": str(NATIVE / "fake_driver"),
        "FAKE_DRIVER_DIR": str(folder / "hardware"),
        "NODE_NAME": NODE.name,
        "HOOK_PATH": str(folder / "hook"),
        "HOME": "/nonexistent",
    }


if __name__ == "__main__":
    main()
