"""
The region that this library writes is the one that `hamicommon`, and so the monitor, reads.
"""

import gzip
import json
import signal
import struct
import subprocess
import time
from pathlib import Path

import pytest
from containers import GPU_A, GPU_B, GPU_C, Container

from hamicommon.wire.region.codec import decode_region

MIB = 1 << 20
LAUNCH = """
cuda = Cuda()
kernel = cuda.kernel(0)
say(0)
wait()
cuda.launch(kernel)
say(0)
"""


def test_reader_sees_limits_devices_and_use(container: Container) -> None:
    """
    A process holds memory on two devices, and the file is decoded while it lives.
    """
    process = container.start(
        "cuda = Cuda()\ncuda.allocate(100 * MIB)\ncuda.use(2)\ncuda.allocate(50 * MIB)\nsay(0)\nwait()",
        CUDA_DEVICE_SM_LIMIT="30",
        CUDA_TASK_PRIORITY="0",
    )
    assert process.stdout is not None
    process.stdout.readline()
    region = decode_region(container.region.read_bytes())
    process.communicate("\n", timeout=20)

    assert (GPU_A, GPU_B, GPU_C) == tuple(region.uuids[:3])
    assert [1000 * MIB] * 16 == list(region.memory_limits_bytes)
    assert [30] * 16 == list(region.sm_limits_percent)
    assert 0 == region.priority
    assert [process.pid] == [slot.pid for slot in region.slots]
    assert 100 * MIB == region.slots[0].memory[0].total == region.slots[0].memory[0].data
    assert 50 * MIB == region.slots[0].memory[2].total


def test_slot_is_given_back_at_exit(container: Container) -> None:
    """
    A process that ends without memory leaves no slot. What one leaves in the driver counts until the next one looks.
    """
    container.run("cuda = Cuda()\nresult, pointer = cuda.allocate(100 * MIB)\ncuda.free(pointer)\nsay(0)")
    assert [] == list(decode_region(container.region.read_bytes()).slots)

    container.run("cuda = Cuda()\ncuda.allocate(100 * MIB)\nsay(0)")
    assert [0] == [slot.status for slot in decode_region(container.region.read_bytes()).slots]

    assert 1000 == container.run("cuda = Cuda()\nsay(cuda.visible()[0])")
    assert [] == list(decode_region(container.region.read_bytes()).slots)


def test_thread_that_runs_while_its_process_ends_claims_no_other_slot(container: Container) -> None:
    """
    It keeps the slot that its process had, which says that nothing runs any more.
    """
    container.environment |= {"CUDA_DEVICE_SM_LIMIT": "10", "GPU_CORE_UTILIZATION_POLICY": "force"}
    libraries = container.environ()["LD_PRELOAD"] + f":{container.build}/libslow_end.so"
    container.run(
        """
import threading, time
cuda = Cuda()
kernel = cuda.kernel(20000)
def load():
    cuda.library.cuCtxSetCurrent(cuda.context)
    while True:
        cuda.launch(kernel)
threading.Thread(target=load, daemon=True).start()
time.sleep(0.5)
say(0)
ctypes.CDLL(None).exit(0)
""",
        LD_PRELOAD=libraries,
    )

    assert [0] == [slot.status for slot in decode_region(container.region.read_bytes()).slots]


def test_launches_tell_the_monitor(container: Container) -> None:
    """
    A launch sets `recent_kernel` to 2 again and moves `last_kernel_time` forward. Nothing else does.
    """
    process = container.start(
        "cuda = Cuda()\nkernel = cuda.kernel(0)\nsay(0)\nwait()\ncuda.launch(kernel)\nsay(0)\nwait()"
    )
    assert process.stdout is not None
    assert process.stdin is not None
    process.stdout.readline()
    write_region(container, 2008904, 0, 4)
    write_region(container, 2008912, 1000, 8)
    process.stdin.write("\n")
    process.stdin.flush()
    process.stdout.readline()
    region = decode_region(container.region.read_bytes())
    process.communicate("\n", timeout=20)

    assert 2 == region.recent_kernel
    assert region.last_kernel_time is not None
    assert abs(time.time() - region.last_kernel_time) < 30


def test_launch_waits_while_the_monitor_holds_it_back(container: Container) -> None:
    """
    `recent_kernel` below 0 blocks launches, not the process, until the monitor releases it.
    """
    process = container.start(LAUNCH)
    assert process.stdout is not None
    assert process.stdin is not None
    process.stdout.readline()
    write_region(container, 2008904, -1, 4)
    process.stdin.write("\n")
    process.stdin.flush()
    time.sleep(0.3)
    assert process.poll() is None
    assert -1 == decode_region(container.region.read_bytes()).recent_kernel
    write_region(container, 2008904, 0, 4)
    process.communicate(timeout=20)

    assert 0 == process.returncode


def test_starting_sixty_four_at_once_leaves_one_good_region(container: Container) -> None:
    """
    Processes that start together and are killed at random points neither damage the region nor delay each other.
    """
    program = "cuda = Cuda()\nresult, pointer = cuda.allocate(10 * MIB)\ncuda.free(pointer)\nsay(result)"
    processes: list[subprocess.Popen[str]] = [container.start(program) for _ in range(64)]
    for index, process in enumerate(processes):
        if index % 3 == 0:
            process.send_signal(signal.SIGKILL)
    results = []
    for index, process in enumerate(processes):
        output, errors = process.communicate(timeout=60)
        if index % 3:
            results.append((process.returncode, output, errors))

    assert [(0, "0\n", "")] * len(results) == results
    assert 0 == container.run("say(Cuda().allocate(1000 * MIB)[0])")
    slots = decode_region(container.region.read_bytes()).slots
    assert [] == [slot for slot in slots if slot.status and any(used.total for used in slot.memory.values())]


def test_restarted_container_takes_its_new_limit(container: Container) -> None:
    """
    In an unused file the environment's limits replace the stored ones. In a file that is in use they do not.
    """
    container.run("say(Cuda().started)")
    holder = container.start("say(Cuda().started)\nwait()", CUDA_DEVICE_MEMORY_LIMIT="2000m")
    assert holder.stdout is not None
    holder.stdout.readline()

    assert 2000 == container.run("say(Cuda().visible()[1])", CUDA_DEVICE_MEMORY_LIMIT="3000m")
    holder.communicate("\n", timeout=20)


def test_fork_before_cuda_gives_each_child_its_slot(container: Container) -> None:
    """
    Workers forked before their parent uses CUDA are charged one by one, and their ends are noticed.
    """
    results = container.run("""
readers, writers = [], []
for _ in range(4):
    ready, ready_w = os.pipe()
    go, go_w = os.pipe()
    if os.fork() == 0:
        cuda = Cuda()
        os.write(ready_w, bytes([cuda.allocate(300 * MIB)[0]]))
        os.read(go, 1)
        os._exit(0)
    readers.append(ready)
    writers.append(go_w)
answers = sorted(os.read(ready, 1)[0] for ready in readers)
for go in writers:
    os.write(go, b"x")
for _ in range(4):
    os.wait()
say([answers, Cuda().allocate(1000 * MIB)[0]])
""")

    assert [[0, 0, 0, 2], 0] == results


@pytest.mark.parametrize(
    "name", ["v1.2-left-behind", "v1.1-left-behind", "v1.1-shifted-left-behind", "v0-one", "v0-early-one"]
)
def test_files_that_hami_left_behind_are_taken_over(container: Container, root: Path, name: str) -> None:
    """
    A file of HAMi's builds is used if it has this version, and initialised if it is older.
    """
    container.region.write_bytes(without_owners(root, name))
    result = container.run("cuda = Cuda()\nsay([cuda.allocate(1000 * MIB)[0], cuda.allocate(1)[0], cuda.visible()[1]])")
    region = decode_region(container.region.read_bytes())

    assert [0, 2, 1000] == result
    assert (1, 2) == (region.major, region.minor)
    assert 2008953 == container.region.stat().st_size
    assert (GPU_A, GPU_B, GPU_C) == tuple(region.uuids[:3])


def without_owners(root: Path, name: str) -> bytes:
    """Return a region that a HAMi build wrote, with the pids in its slots replaced by unused ones."""
    vectors = root / "libs/hamicommon/vectors/region"
    data = bytearray(gzip.decompress((vectors / f"{name}.cache.gz").read_bytes()))
    layouts = json.loads((vectors / "layouts.json").read_text())
    layout = next(layout for layout in layouts if layout["region_size"] + 1 == len(data))
    for index in range(struct.unpack_from("<i", data, layout["region"]["proc_num"])[0]):
        struct.pack_into("<i", data, layout["region"]["procs"] + index * layout["slot_size"], 0x7FFFFF00 + index)
    return bytes(data)


def write_region(container: Container, offset: int, value: int, size: int) -> None:
    """Write one field as the monitor does."""
    with container.region.open("r+b") as region:
        region.seek(offset)
        region.write(value.to_bytes(size, "little", signed=True))
