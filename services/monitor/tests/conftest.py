"""Region files and a Pod API for the tests: real bytes in real files, a real server on a real socket."""

import asyncio
import json
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from aiohttp import web

from hamicommon.wire.region import LAYOUT_V1_2, MAGIC, UUID_BYTES, Layout

SEMAPHORE = struct.pack("<IIi", 1, 0, 128)
"""A free process-shared semaphore, as glibc initialises it."""


@dataclass
class Process:
    """One process slot: amounts per device as (context, module, data, offset, total), and device time in percent."""

    memory: dict[int, tuple[int, int, int, int, int]] = field(default_factory=dict)
    utilization: dict[int, int] = field(default_factory=dict)
    status: int = 1


def region_bytes(
    layout: Layout = LAYOUT_V1_2,
    *,
    uuids: tuple[bytes, ...] = (b"GPU-a",),
    device_count: int | None = None,
    limits: tuple[int, ...] = (),
    processes: tuple[Process, ...] = (),
    priority: int = 1,
    utilization_switch: int = 1,
    recent_kernel: int = 2,
    last_kernel_time: int = 0,
) -> bytearray:
    """Return a region file as a library of *layout* leaves it."""
    data = bytearray(layout.region_size + 1)

    def put(offset: int | None, kind: str, *values: int) -> None:
        if offset is not None:
            struct.pack_into("<" + kind, data, offset, *values)

    put(0, "i", MAGIC)
    put(layout.major_version, "I", 1)
    put(layout.minor_version, "I", 2 if layout is LAYOUT_V1_2 else 1)
    for semaphore in (layout.sem, layout.sem_postinit):
        if semaphore is not None:
            data[semaphore : semaphore + len(SEMAPHORE)] = SEMAPHORE
    put(layout.device_count, "Q", len(uuids) if device_count is None else device_count)
    for index, uuid in enumerate(uuids):
        start = layout.uuids + index * UUID_BYTES
        data[start : start + len(uuid)] = uuid
    put(layout.limit, f"{len(limits)}Q", *limits)
    for index, process in enumerate(processes):
        slot = layout.procs + index * layout.slot_size
        put(slot, "ii", 100 + index, 1000 + index)
        put(slot + layout.slot_status, "i", process.status)
        for device, amounts in process.memory.items():
            put(slot + layout.slot_used + device * layout.memory_size, "5Q", *amounts)
        for device, percent in process.utilization.items():
            if layout.slot_device_util is not None:
                put(slot + layout.slot_device_util + device * layout.util_size + 16, "Q", percent)
    put(layout.proc_num, "i", len(processes))
    put(layout.utilization_switch, "i", utilization_switch)
    put(layout.recent_kernel, "i", recent_kernel)
    put(layout.priority, "i", priority)
    put(layout.last_kernel_time, "Q", last_kernel_time)
    return data


@dataclass
class HookPath:
    """A HOOK_PATH folder with container directories as the device plugin makes them."""

    path: Path

    @property
    def containers(self) -> Path:
        """The folder of container directories."""
        return self.path / "containers"

    def add(self, name: str, content: bytes | bytearray | None = None, file_name: str = "r.cache") -> Path:
        """Make the directory *name* with the library's mount point, and a region of *content*; return the region."""
        directory = self.containers / name
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "libvgpu.so").touch()
        region = directory / file_name
        if content is not None:
            region.write_bytes(content)
        return region


@pytest.fixture
def hook_path(tmp_path: Path) -> HookPath:
    """Return an empty HOOK_PATH."""
    return HookPath(tmp_path / "vgpu")


class PodServer:
    """An API server that knows Pods only: it lists them, and its watch tells each change."""

    def __init__(self) -> None:
        self.pods: dict[str, dict] = {}
        self.queries: list[dict[str, str]] = []
        self.is_down = False
        self._version = 1
        self._watches: set[asyncio.Queue] = set()
        self._runner: web.AppRunner | None = None
        self.url = ""

    async def start(self) -> None:
        """Listen on a free port."""
        app = web.Application()
        app.router.add_get("/api/v1/pods", self._handle)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def stop(self) -> None:
        """End every watch and stop listening."""
        for queue in self._watches:
            queue.put_nowait(None)
        if self._runner is not None:
            await self._runner.cleanup()

    def kubeconfig(self, folder: Path) -> Path:
        """Write a kubeconfig for this server."""
        path = folder / "kubeconfig"
        cluster = {"name": "c", "cluster": {"server": self.url}}
        context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
        user = {"name": "u", "user": {}}
        content = {"clusters": [cluster], "contexts": [context], "users": [user], "current-context": "c"}
        path.write_text(json.dumps({"apiVersion": "v1", "kind": "Config"} | content))
        return path

    def put(self, pod: dict) -> None:
        """Make or change *pod*."""
        uid = pod["metadata"]["uid"]
        kind = "MODIFIED" if uid in self.pods else "ADDED"
        self.pods[uid] = pod
        self._tell(kind, pod)

    def remove(self, uid: str) -> None:
        """Delete the Pod *uid*."""
        self._tell("DELETED", self.pods.pop(uid))

    def _tell(self, kind: str, pod: dict) -> None:
        self._version += 1
        pod["metadata"]["resourceVersion"] = str(self._version)
        for queue in self._watches:
            queue.put_nowait({"type": kind, "object": pod})

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        self.queries.append(dict(request.query))
        if self.is_down:
            return web.json_response({"kind": "Status", "reason": "ServiceUnavailable"}, status=503)
        if request.query.get("watch") not in {"1", "true", "True"}:
            metadata = {"resourceVersion": str(self._version)}
            return web.json_response({"kind": "PodList", "metadata": metadata, "items": list(self.pods.values())})
        response = web.StreamResponse()
        await response.prepare(request)
        queue: asyncio.Queue = asyncio.Queue()
        self._watches.add(queue)
        try:
            while (event := await queue.get()) is not None:
                await response.write(json.dumps(event).encode() + b"\n")
        finally:
            self._watches.discard(queue)
        return response


@pytest.fixture
async def pod_server():
    """Yield a running Pod API."""
    server = PodServer()
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
def a_region() -> Callable[..., bytearray]:
    """Return the builder of region files."""
    return region_bytes


@pytest.fixture
def a_process() -> type[Process]:
    """Return the builder of process slots."""
    return Process


NATIVE = Path(__file__).parents[3] / "build/native"
DEVICE_A, DEVICE_B = "GPU-aaaaaaaa-1111-2222-3333-444444444444", "GPU-bbbbbbbb-1111-2222-3333-444444444444"


def built(path: Path) -> Path:
    """Return *path*, which the native build makes."""
    if not path.exists():
        pytest.fail(f"{path} is missing: run `make native` first")
    return path


@pytest.fixture
def fake_driver(tmp_path: Path) -> dict[str, str]:
    """Return the environment in which a process finds two fake devices, DEVICE_A and DEVICE_B."""
    libraries = built(NATIVE / "fake_driver/libnvidia-ml.so.1").parent
    hardware = tmp_path / "hardware"
    hardware.mkdir()
    (hardware / "devices.csv").write_text(
        "uuid,name,memory_mib,numa_node,pci_bus_id\n"
        f"{DEVICE_A},NVIDIA A100-SXM4-40GB,40960,0,00000000:07:00.0\n"
        f"{DEVICE_B},NVIDIA T4,15360,1,00000000:0F:00.0\n"
    )
    return {"LD_LIBRARY_PATH": str(libraries), "FAKE_DRIVER_DIR": str(hardware)}


@pytest.fixture
def library(fake_driver: dict[str, str]) -> dict[str, str]:
    """Return the environment of a container: fake devices behind the real library."""
    return fake_driver | {"LD_PRELOAD": str(built(NATIVE / "libvgpu.so"))}
