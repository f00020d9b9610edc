"""
The monitor as a process: real files, an API over a socket, real scrapes.
"""

import asyncio
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from hamicommon.wire.region.codec import decode_region
from hamicommon.wire.region.layout import LAYOUT_V0, LAYOUT_V1_2
from testbed.waiting import eventually

from .fake_driver import DEVICE_A, DEVICE_B
from .pod_server import PodServer, a_pod
from .region_files import HookPath, Process, a_region
from .service import CONTAINER, DEADLINE_SECONDS, NODE, PROGRAM, Labels, Start, eventually_equal


def labels(container: str = "main", uid: str = "u1", index: int = 0, device: str = "GPU-a") -> Labels:
    """Return the labels of one device of one container as `samples` has them."""
    pairs = {
        "container": container,
        "device_uuid": device,
        "namespace": "ns",
        "pod": f"pod-{uid}",
        "vdevice_index": str(index),
    }
    return tuple(sorted(pairs.items()))


def host_labels(index: int, device: str, name: str, *, node: bool = True) -> Labels:
    """Return the labels of one device of the host as `samples` has them."""
    pairs = {"device_index": str(index), "device_uuid": device, "device_type": f"NVIDIA-{name}"}
    return tuple(sorted((pairs | ({"node": NODE} if node else {})).items()))


FIRST, SECOND, OLD, BAD, IDLE = (
    labels(),
    labels(index=1, device="GPU-b"),
    labels("old"),
    labels("bad", device="GPU-b"),
    labels("idle", device="GPU-b"),
)
HOST_DEVICES = ((0, DEVICE_A, "NVIDIA A100-SXM4-40GB"), (1, DEVICE_B, "NVIDIA T4"))
HOST_IDLE = {host_labels(*device): 0 for device in HOST_DEVICES}
SCRAPED = {
    "hami_vgpu_memory_used_bytes": {FIRST: 70, SECOND: 2, OLD: 7, IDLE: 0},
    "hami_vgpu_memory_limit_bytes": {FIRST: 3 << 20, SECOND: 2 << 20, OLD: 1 << 20, BAD: 4 << 20, IDLE: 2 << 20},
    "hami_container_device_memory_bytes": {FIRST: 70, SECOND: 2, OLD: 7, IDLE: 0},
    "hami_container_device_utilization_ratio": {FIRST: 55, SECOND: 3, OLD: 0, IDLE: 0},
    "hami_vgpu_memory_context_bytes": {FIRST: 15, SECOND: 1, OLD: 7, IDLE: 0},
    "hami_vgpu_memory_module_bytes": {FIRST: 20, SECOND: 0, OLD: 0, IDLE: 0},
    "hami_vgpu_memory_buffer_bytes": {FIRST: 35, SECOND: 1, OLD: 0, IDLE: 0},
    "hami_host_gpu_memory_used_bytes": HOST_IDLE,
    "hami_host_gpu_utilization_ratio": HOST_IDLE,
    "hami_host_gpu_memory_controller_utilization_ratio": {
        host_labels(*device, node=False): 0 for device in HOST_DEVICES
    },
    "hami_monitor_regions": {(): 2},
    "hami_monitor_driver_available": {(): 1},
    "hami_monitor_directories_removed_total": {(): 0},
    "hami_monitor_pod_lists_total": {(): 1},
}
"""The values of the Pod of `put_pod_of_every_kind`."""


def put_pod_of_every_kind(hook_path: HookPath, pod_server: PodServer) -> None:
    """Add a Pod with two layouts, two devices, a container without a region, and one with garbage."""
    hook_path.add(
        "u1_main",
        a_region(
            LAYOUT_V1_2,
            uuids=(b"GPU-a", b"GPU-b"),
            limits=(3000, 2000),
            processes=(
                Process({0: (10, 20, 30, 0, 60), 1: (1, 0, 1, 0, 2)}, {0: 25}),
                Process({0: (5, 0, 5, 0, 10)}, {0: 30, 1: 3}),
            ),
            last_kernel_time=int(time.time()) - 100,
        ),
    )
    hook_path.add("u1_old", a_region(LAYOUT_V0, limits=(1000,), processes=(Process({0: (7, 0, 0, 0, 7)}),)))
    hook_path.add("u1_bad", b"garbage")
    granted = "GPU-a,NVIDIA,3,0:GPU-b,NVIDIA,2,0:;GPU-a,NVIDIA,1,0:;GPU-b,NVIDIA,4,0:;GPU-b,NVIDIA,2,0:;"
    pod_server.put(a_pod("u1", "main", "old", "bad", "idle", granted=granted))


async def test_scrape_shows_every_family(
    hook_path: HookPath, pod_server: PodServer, started: Start, fake_driver: dict[str, str]
) -> None:
    """Two layouts, two devices, an idle container, a refused region, and the host's devices."""
    put_pod_of_every_kind(hook_path, pod_server)

    async with started(**fake_driver) as service:
        await eventually_equal(lambda: service.get("/readyz"), (200, "ok\n"))

        async def found() -> dict[str, dict[Labels, float] | None]:
            samples = await service.samples()
            return {name: samples.get(name) for name in SCRAPED}

        await eventually_equal(found, SCRAPED)
        samples = await service.samples()

    elapsed = samples["hami_container_last_kernel_elapsed_seconds"]
    assert {FIRST, SECOND} == set(elapsed)
    assert all(100 <= value < 100 + DEADLINE_SECONDS for value in elapsed.values())
    assert 1 == samples["hami_monitor_regions_refused"][(("reason", "unknown-layout"),)]
    assert ["1"] == [str(int(value)) for value in samples["hami_build_info"].values()]
    assert "HostGPUMemoryUsage" not in samples


async def test_memory_a_program_allocates_is_shown(
    hook_path: HookPath, pod_server: PodServer, started: Start, library: dict[str, str]
) -> None:
    """A process with the real library: its limit, its use, and 0 after its end."""
    pod_server.put(a_pod(granted=f"{DEVICE_A},NVIDIA,1000,0:;"))
    region = hook_path.add("u1_main")
    limits = {"CUDA_DEVICE_MEMORY_LIMIT_0": "1000m", "CUDA_DEVICE_MEMORY_SHARED_CACHE": str(region)}
    program = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CONTAINER, env=os.environ | library | limits, stdin=asyncio.subprocess.PIPE
    )
    key = labels(device=DEVICE_A)

    async with started() as service:

        async def found() -> list[Any]:
            samples = await service.samples()
            names = ("limit", "used", "buffer")
            return [samples.get(f"hami_vgpu_memory_{name}_bytes", {}).get(key) for name in names]

        context = 128 << 20  # what one takes of a fake device
        await eventually_equal(found, [1000 << 20, context + (100 << 20), 100 << 20])
        assert program.stdin is not None
        program.stdin.close()
        assert 0 == await program.wait()
        await eventually_equal(found, [1000 << 20, 0, 0])


async def test_legacy_names_come_with_their_flag(hook_path: HookPath, pod_server: PodServer, started: Start) -> None:
    """In addition to the new names, for dashboards older than HAMi 2.9."""
    hook_path.add("u1_main", a_region())
    pod_server.put(a_pod(granted="GPU-a,NVIDIA,3,0:;"))
    old_labels = (("ctrname", "main"), ("deviceuuid", "GPU-a"), ("podname", "pod-u1"), ("podnamespace", "ns"))

    async with started("--legacy-metrics") as service:

        async def limits() -> list[dict[Labels, float] | None]:
            samples = await service.samples()
            return [samples.get(name) for name in ("vGPU_device_memory_limit_in_bytes", "hami_vgpu_memory_limit_bytes")]

        await eventually_equal(limits, [{(*old_labels, ("vdeviceid", "0")): 3 << 20}, {labels(): 3 << 20}])


def launch(region: Path) -> None:
    """Store what the library stores at a launch."""
    with region.open("r+b") as file:
        file.seek(LAYOUT_V1_2.recent_kernel)
        file.write((2).to_bytes(4, "little"))


async def test_feedback_writes_two_fields_and_nothing_else(
    hook_path: HookPath, pod_server: PodServer, started: Start
) -> None:
    """While a Pod of high priority launches, a low one is blocked and limited, even without a driver."""
    process = Process({0: (1, 2, 3, 4, 10)})
    high = hook_path.add("u1_main", a_region(processes=(process,)))
    low = hook_path.add("u2_main", a_region(processes=(process,)))
    pod_server.put(a_pod("u1", granted="GPU-a,NVIDIA,3,0:;", priority=0))
    pod_server.put(a_pod("u2", granted="GPU-a,NVIDIA,3,0:;"))
    expected = bytearray(low.read_bytes())
    for offset, value in ((LAYOUT_V1_2.recent_kernel, -1), (LAYOUT_V1_2.utilization_switch, 1)):
        expected[offset : offset + 4] = value.to_bytes(4, "little", signed=True)

    def low_while_high_launches() -> bytes:
        launch(high)
        return low.read_bytes()

    async with started():
        await eventually_equal(low_while_high_launches, bytes(expected))
        await eventually_equal(lambda: decode_region(high.read_bytes()).utilization_switch, 0)


async def test_kill_at_any_time_leaves_regions_valid_and_a_restart_goes_on(hook_path: HookPath, started: Start) -> None:
    """The files and the API suffice to continue."""
    region = hook_path.add("u1_main", a_region(recent_kernel=2))
    before = decode_region(region.read_bytes())

    for _ in range(2):
        launch(region)
        async with started() as service:
            await eventually(lambda: decode_region(region.read_bytes()).recent_kernel < 2)
            assert -signal.SIGKILL == await service.stop(signal.SIGKILL)

    after = decode_region(region.read_bytes())
    assert (before.slots, before.uuids, before.priority) == (after.slots, after.uuids, after.priority)


async def test_directory_goes_with_its_pod_and_no_sooner(
    hook_path: HookPath, pod_server: PodServer, started: Start
) -> None:
    """A known Pod keeps its directory at any age; a deleted one's goes after the grace time, whatever its mtime."""
    for name, modified in (("living_main", 0), ("dead_main", 4_000_000_000)):
        hook_path.add(name, a_region())
        os.utime(hook_path.containers / name, (0, modified))
    pod_server.put(a_pod("living"))
    pod_server.put(a_pod("dead"))

    def listing() -> list[str]:
        return sorted(path.name for path in hook_path.containers.iterdir() if path.name != ".removed")

    async with started(HAMI_RESYNC_INTERVAL="1s") as service:
        await eventually_equal(lambda: service.get("/readyz"), (200, "ok\n"))
        await asyncio.sleep(0.5)
        assert ["dead_main", "living_main"] == listing()

        pod_server.remove("dead")
        await eventually_equal(listing, ["living_main"])
        assert {(): 1} == (await service.samples())["hami_monitor_directories_removed_total"]


async def test_nothing_is_deleted_while_the_api_has_not_answered(
    hook_path: HookPath, pod_server: PodServer, started: Start
) -> None:
    """Without a list no Pod is known to be gone; the process is alive and not ready."""
    hook_path.add("u1_main", a_region())
    os.utime(hook_path.containers / "u1_main", (0, 0))
    pod_server.is_down = True

    async with started(HAMI_RESYNC_INTERVAL="1ms") as service:
        await eventually(lambda: len(pod_server.queries) > 1)
        assert (200, "ok\n") == await service.get("/livez")
        assert (503, "the Pods of node n1 have not been listed yet\n") == await service.get("/readyz")
        assert (hook_path.containers / "u1_main").exists()

        pod_server.is_down = False
        await eventually_equal(lambda: service.get("/readyz"), (200, "ok\n"))
        await eventually_equal((hook_path.containers / "u1_main").exists, False)


async def test_only_the_pods_of_this_node_are_asked_for(pod_server: PodServer, started: Start) -> None:
    """One list and one watch with a field selector, for any size of cluster."""
    async with started():
        await eventually(lambda: len(pod_server.queries) >= 2)

    assert {"spec.nodeName=n1"} == {query["fieldSelector"] for query in pod_server.queries}


async def test_missing_driver_leaves_the_container_metrics(
    hook_path: HookPath, pod_server: PodServer, started: Start, tmp_path: Path
) -> None:
    """The host's families are empty, the containers' are there, and one metric says why."""
    (tmp_path / "libnvidia-ml.so.1").write_bytes(b"no library")
    hook_path.add("u1_main", a_region())
    pod_server.put(a_pod(granted="GPU-a,NVIDIA,3,0:;"))

    async with started(LD_LIBRARY_PATH=str(tmp_path)) as service:

        async def found() -> list[Any]:
            samples = await service.samples()
            names = ("hami_vgpu_memory_limit_bytes", "hami_host_gpu_memory_used_bytes", "hami_monitor_driver_available")
            return [samples.get(name) for name in names]

        await eventually_equal(found, [{labels(): 3 << 20}, None, {(): 0}])


async def test_term_drains_and_exits_with_zero(started: Start) -> None:
    """As the kubelet requests at the end of a Pod."""
    async with started() as service:
        assert 0 == await service.stop()


async def test_address_in_use_is_one_clear_line(pod_server: PodServer, tmp_path: Path) -> None:
    """A monitor that cannot be scraped does not run."""
    address = pod_server.url.removeprefix("http://")
    process = await asyncio.create_subprocess_exec(
        str(PROGRAM),
        f"--metrics-bind-address={address}",
        f"--kubeconfig={pod_server.kubeconfig(tmp_path)}",
        "--watchdog=false",
        env=os.environ | {"NODE_NAME": NODE, "HOOK_PATH": ""},
        stderr=asyncio.subprocess.PIPE,
    )
    _, errors = await process.communicate()

    assert (1, [True]) == (process.returncode, [address.encode() in line for line in errors.splitlines()])


async def test_missing_environment_is_named_completely() -> None:
    """Both variables, one line each, before anything starts."""
    environment = {key: value for key, value in os.environ.items() if key not in {"NODE_NAME", "HOOK_PATH"}}
    process = await asyncio.create_subprocess_exec(str(PROGRAM), env=environment, stderr=asyncio.subprocess.PIPE)
    _, errors = await process.communicate()

    assert (1, 1) == (process.returncode, len(errors.splitlines()))
