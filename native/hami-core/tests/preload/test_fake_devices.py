"""
Which devices the fake driver shows, under which names, and to which program.
"""

import pytest
from containers import GPU_A, GPU_B, GPU_C, Container

MIG_1 = "MIG-11111111-0000-4000-8000-000000000000"
MIG_2 = "MIG-22222222-0000-4000-8000-000000000000"
GPU_B2 = "GPU-bbbbbbbb-1111-4000-8000-000000000003"
NO_DEVICE = 100

VISIBLE = """
import uuid
lib = ctypes.CDLL("libcuda.so.1")


class Id(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_ubyte * 16)]


def ids(call):
    count, found, each = c_int(), Id(), []
    result = lib.cuInit(0)
    lib.cuDeviceGetCount(byref(count))
    for ordinal in range(count.value):
        call(byref(found), ordinal)
        each.append(str(uuid.UUID(bytes=bytes(found.bytes))))
    return result or each


say(ids(lib.cuDeviceGetUuid_v2))
"""


def plain(*uuids: str) -> list[str]:
    """Return the UUIDs as CUDA writes them."""
    return [each[4:] for each in uuids]


@pytest.fixture
def container(container: Container) -> Container:
    """A container on a node with four GPUs. Two UUIDs begin alike; the last GPU is in MIG mode with two instances."""
    (container.folder / "hardware/devices.csv").write_text(
        "uuid,name,memory_mib,numa_node,pci_bus_id\n"
        f"{GPU_A},A,16384,0,0000:17:00.0\n{GPU_B},B,16384,0,0000:65:00.0\n{GPU_B2},B2,16384,0,0000:66:00.0\n"
        f"{GPU_C},C,8192,1,0000:ca:00.0\n{MIG_1},C 1g.2gb,2048,1,0000:ca:00.0\n{MIG_2},C 1g.2gb,2048,1,0000:ca:00.0\n"
    )
    return container


@pytest.mark.parametrize(
    ("setting", "seen"),
    [
        ("1,0", plain(GPU_B, GPU_A)),
        (" 1 , 0 ", plain(GPU_B, GPU_A)),
        ("0,-1,1", plain(GPU_A)),
        ("0,7,1", plain(GPU_A)),
        ("0,no,1", plain(GPU_A)),
        ("0,0", NO_DEVICE),
        (f"0,{GPU_A}", NO_DEVICE),
        ("", NO_DEVICE),
        ("-1", NO_DEVICE),
        (f"{GPU_B},{GPU_A[:8]}", plain(GPU_B, GPU_A)),
        ("GPU-bbbbbbbb", NO_DEVICE),
        ("GPU-bbbbbbbb-1", plain(GPU_B2)),
        (f"GPU-a,{GPU_B2}", plain(GPU_A, GPU_B2)),
        (MIG_2, plain(MIG_2)),
        (f"{MIG_2},{MIG_1}", plain(MIG_2)),
        (f"{GPU_A},{MIG_1}", plain(MIG_1)),
        (f"MIG-{GPU_C}/2/0", plain(MIG_2)),
        (f"MIG-{GPU_C}/3/0", NO_DEVICE),
        (f"MIG-{GPU_C}/1/1", NO_DEVICE),
        ("3", plain(MIG_1)),
        (GPU_C, plain(MIG_1)),
    ],
)
def test_cuda_visible_devices(container: Container, setting: str, seen: object) -> None:
    """
    Indices, UUIDs, their beginnings and MIG instances, up to the first entry that names nothing.
    """
    assert seen == container.run(VISIBLE, preload=False, CUDA_VISIBLE_DEVICES=setting)


@pytest.mark.parametrize(
    ("injected", "setting", "seen"),
    [
        (f"{GPU_B},{GPU_A}", None, plain(GPU_A, GPU_B)),
        (f"{GPU_B},{GPU_B2}", "1", plain(GPU_B2)),
        (GPU_B, "GPU-bbbbbbbb", plain(GPU_B)),
        (MIG_2, None, plain(MIG_2)),
        (MIG_2, "0", plain(MIG_2)),
        (MIG_2, MIG_1, NO_DEVICE),
        (None, None, plain(MIG_1)),
    ],
)
def test_cuda_sees_what_the_runtime_injects(
    container: Container, injected: str | None, setting: str | None, seen: object
) -> None:
    """
    Indices count the container's devices. Of several GPUs and an instance CUDA shows only the instance.
    """
    environment = {"NVIDIA_VISIBLE_DEVICES": injected, "CUDA_VISIBLE_DEVICES": setting}
    given = {name: value for name, value in environment.items() if value is not None}

    assert seen == container.run(VISIBLE, preload=False, **given)


def test_first_version_of_the_uuid_is_the_gpus(container: Container) -> None:
    """
    Only cuDeviceGetUuid_v2 knows MIG instances.
    """
    program = VISIBLE.replace("Uuid_v2", "Uuid")

    assert plain(GPU_C) == container.run(program, preload=False, CUDA_VISIBLE_DEVICES=MIG_2)


def test_nvml_finds_a_device_by_each_of_its_names(container: Container) -> None:
    """
    By index, UUID, serial and PCI address. A device outside the container is not found.
    """
    said = container.run(
        """
import pynvml as n
n.nvmlInit()
device = n.nvmlDeviceGetHandleByIndex(1)
names = (n.nvmlDeviceGetUUID(device), n.nvmlDeviceGetSerial(device), n.nvmlDeviceGetPciInfo(device).busId)
calls = (n.nvmlDeviceGetHandleByUUID, n.nvmlDeviceGetHandleBySerial, n.nvmlDeviceGetHandleByPciBusId)
found = [n.nvmlDeviceGetIndex(call(name)) for call, name in zip(calls, names, strict=True)]
missing = []
for call, name in zip(calls, ("GPU-x", "0", "0000:99:00.0"), strict=True):
    try:
        call(name)
    except n.NVMLError as error:
        missing.append(error.value)
say([n.nvmlDeviceGetCount(), names[0], found, missing])
""",
        preload=False,
        NVIDIA_VISIBLE_DEVICES=f"{GPU_A},{GPU_B2},{MIG_1}",
    )

    assert [3, GPU_B2, [1, 1, 1], [6, 6, 6]] == said


def test_nvml_shows_instances_of_their_gpu(container: Container) -> None:
    """
    Handles, numbers, memory and processes of an instance; its GPU's memory and processes include them.
    """
    said = container.run(
        """
import pynvml as n
n.nvmlInit()
cuda = Cuda()
cuda.allocate(100 * MIB)
gpu = n.nvmlDeviceGetHandleByIndex(3)
instances = [n.nvmlDeviceGetMigDeviceHandleByIndex(gpu, index) for index in range(2)]
try:
    n.nvmlDeviceGetMigDeviceHandleByIndex(gpu, 2)
except n.NVMLError as error:
    beyond = error.value
second = instances[1]
processes = n.nvmlDeviceGetComputeRunningProcesses(gpu)
say([
    [n.nvmlDeviceGetUUID(each) for each in instances],
    beyond,
    n.nvmlDeviceGetMigMode(gpu),
    [n.nvmlDeviceIsMigDeviceHandle(each).value for each in (gpu, second)],
    n.nvmlDeviceGetUUID(n.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(second)),
    [n.nvmlDeviceGetGpuInstanceId(second), n.nvmlDeviceGetComputeInstanceId(second)],
    n.nvmlDeviceGetAttributes(second).memorySizeMB,
    [n.nvmlDeviceGetMemoryInfo(each).used // MIB for each in (gpu, *instances)],
    [[p.pid == os.getpid(), p.gpuInstanceId, p.computeInstanceId] for p in processes],
    cuda.visible(),
])
""",
        preload=False,
        CUDA_VISIBLE_DEVICES=MIG_2,
        FAKE_DRIVER_CONTEXT_MIB="0",
    )

    assert [
        [MIG_1, MIG_2],
        6,
        [1, 1],
        [0, 1],
        GPU_C,
        [2, 0],
        2048,
        [100, 0, 100],
        [[True, 2, 0]],
        [1948, 2048],
    ] == said
