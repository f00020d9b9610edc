"""
The limits file holds for every process of the container, whatever its environment says.
"""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from containers import GPU_A, GPU_B, GPU_C, Container

from hamicommon.wire.limits_file import DeviceLimits, LimitsFile, encode_limits_file

ALLOCATE = "cuda = Cuda()\nsay([cuda.allocate(1001 * MIB)[0], cuda.allocate(1000 * MIB)[0]])"
VARIABLES = {"CUDA_DEVICE_MEMORY_LIMIT_0": "1000m", "CUDA_DEVICE_SM_LIMIT": "100", "HAMI_DEVICE_UUIDS": GPU_A}


@dataclass
class Granted:
    """A container with a limits file."""

    container: Container
    folder: Path

    @property
    def path(self) -> Path:
        """The limits file."""
        return self.folder / "limits"

    def grant(self, memory_mib: dict[str, int], core_percent: int = 100, **variables: str) -> None:
        """Replace the file as the device plugin does, by a rename."""
        devices = {uuid: DeviceLimits(mib << 20, core_percent) for uuid, mib in memory_mib.items()}
        region = {"CUDA_DEVICE_MEMORY_SHARED_CACHE": str(self.container.region)}
        self.put(encode_limits_file(LimitsFile(devices, VARIABLES | region | variables)))

    def put(self, content: bytes) -> None:
        """Replace the file by any content."""
        temporary = self.folder / "temporary"
        temporary.write_bytes(content)
        temporary.rename(self.path)


@pytest.fixture
def granted(container: Container, tmp_path: Path) -> Granted:
    """A container with 1000 MiB of device A, in whose environment there is nothing of the plugin's."""
    folder = tmp_path / "vgpu/limits"
    folder.mkdir(parents=True)
    container.library = Path(shutil.copy(container.build / "libvgpu.so", tmp_path / "vgpu"))
    del container.environment["CUDA_DEVICE_MEMORY_LIMIT"]
    container.environment["CUDA_DEVICE_MEMORY_SHARED_CACHE"] = ""
    granted = Granted(container, folder)
    granted.grant({GPU_A: 1000})
    return granted


def test_process_without_environment_keeps_the_share(granted: Granted) -> None:
    """
    After `env -i`, ssh, su or cron a process is held to the same limit, and counts in the same region.
    """
    first = granted.container.start(
        "cuda = Cuda()\nsay(cuda.allocate(600 * MIB)[0])\nwait()", preload=True, **VARIABLES
    )
    assert first.stdout
    assert "0\n" == first.stdout.readline()
    later = granted.container.run("cuda = Cuda()\nsay([cuda.allocate(401 * MIB)[0], cuda.allocate(400 * MIB)[0]])")
    first.communicate("end\n", timeout=60)

    assert [2, 0] == later
    assert granted.container.region.exists()


def test_environment_cannot_raise_a_limit(granted: Granted) -> None:
    """
    A larger limit, and none, have no effect.
    """
    for limit in ("2000m", "0", "1000m"):
        assert [2, 0] == granted.container.run(ALLOCATE, CUDA_DEVICE_MEMORY_LIMIT=limit)


def test_environment_lowers_the_limit_of_its_process(granted: Granted) -> None:
    """
    A process that asks for less sees and gets less. The rest of the container keeps its share.
    """
    first = granted.container.start(
        "cuda = Cuda()\nsay([cuda.visible()[1], cuda.allocate(501 * MIB)[0], cuda.allocate(500 * MIB)[0]])\nwait()",
        CUDA_DEVICE_MEMORY_LIMIT="500m",
    )
    assert first.stdout
    assert "[500, 2, 0]\n" == first.stdout.readline()
    others = granted.container.run("cuda = Cuda()\nsay([cuda.visible()[1], cuda.allocate(500 * MIB)[0]])")
    first.communicate("end\n", timeout=60)

    assert [1000, 0] == others


def test_environment_cannot_leave_the_region_or_switch_the_library_off(granted: Granted, tmp_path: Path) -> None:
    """
    A tenant's region and CUDA_DISABLE_CONTROL are ignored, and a warning says so.
    """
    results, errors = granted.container.run_and_listen(
        ALLOCATE,
        CUDA_DEVICE_MEMORY_SHARED_CACHE=str(tmp_path / "mine.cache"),
        CUDA_DISABLE_CONTROL="true",
        GPU_CORE_UTILIZATION_POLICY="disable",
        LIBCUDA_LOG_LEVEL="2",
    )

    assert [2, 0] == results
    assert not (tmp_path / "mine.cache").exists()
    for variable in ("CUDA_DISABLE_CONTROL", "CUDA_DEVICE_MEMORY_SHARED_CACHE", "GPU_CORE_UTILIZATION_POLICY"):
        assert f"{variable} is ignored: {granted.path}" in errors


def test_changed_limit_reaches_a_running_program(granted: Granted) -> None:
    """
    Within a second more can be allocated, or less. What is already taken stays.
    """
    program = granted.container.start(
        """
import time
cuda = Cuda()
def look():
    time.sleep(1.1)
    say([cuda.visible()[1], cuda.allocate(100 * MIB)[0]])
say(cuda.allocate(1000 * MIB)[0])
wait()
look()
wait()
look()
say(cuda.allocate(200 * MIB)[0])
""",
        preload=True,
        **VARIABLES,
    )
    assert program.stdin
    assert program.stdout
    assert "0\n" == program.stdout.readline()
    granted.grant({GPU_A: 1100})
    program.stdin.write("\n")
    program.stdin.flush()
    assert "[1100, 0]\n" == program.stdout.readline()
    granted.grant({GPU_A: 500})
    output, errors = program.communicate("\n", timeout=60)

    assert ("[500, 2]\n2\n", "") == (output, errors)


def test_program_that_only_launches_notices_a_changed_limit(granted: Granted) -> None:
    """
    The region has the new percentage within a second of launches.
    """
    program = granted.container.start("""
import time
cuda = Cuda()
kernel = cuda.kernel(10)
cuda.launch(kernel)
say("started")
wait()
end = time.monotonic() + 1.5
while time.monotonic() < end:
    cuda.launch(kernel)
""")
    assert program.stdout
    assert '"started"\n' == program.stdout.readline()
    granted.grant({GPU_A: 1000}, core_percent=30)
    program.communicate("\n", timeout=60)

    assert 30 == int.from_bytes(granted.container.region.read_bytes()[1728:1736], "little")


def test_raised_limit_is_not_held_back_by_the_plugins_own_environment(granted: Granted) -> None:
    """
    A variable that equals the file's is the plugin's, so a process that starts later gets the raised limit.
    """
    granted.grant({GPU_A: 2000})

    assert [0, 2] == granted.container.run(
        "cuda = Cuda()\nsay([cuda.allocate(2000 * MIB)[0], cuda.allocate(MIB)[0]])", preload=True, **VARIABLES
    )


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "it is not lines of text"),
        (b"hami-limits 2\n", "its first line is not hami-limits 1"),
        (b"hami-limits 1\nGPU-1 100\n", "a line is neither"),
        (b"hami-limits 1\nA=" + b"x" * 9000 + b"\n", "it is too large"),
        (bytes(range(256)) * 4, "it is not lines of text"),
    ],
    ids=["empty", "other-version", "bad-line", "too-large", "bytes"],
)
def test_unusable_file_refuses_everything(granted: Granted, content: bytes, problem: str) -> None:
    """
    A limit that cannot be read fails closed, and one error says why.
    """
    granted.put(content)
    results, errors = granted.container.run_and_listen("cuda = Cuda()\nsay(cuda.allocate(2 * MIB)[0])")

    assert 2 == results
    assert 1 == len(errors.splitlines())
    assert f"{granted.path} cannot be used: {problem}" in errors


def test_folder_in_place_of_the_file_refuses_everything(granted: Granted) -> None:
    """
    So does anything else that is not a file.
    """
    granted.path.unlink()
    granted.path.mkdir()
    results, errors = granted.container.run_and_listen("cuda = Cuda()\nsay(cuda.allocate(2 * MIB)[0])")

    assert 2 == results
    assert "it is not a file" in errors


def test_unusable_replacement_changes_nothing(granted: Granted) -> None:
    """
    A running program keeps its limit, says so once, and takes the next usable file. If that goes, its limits stay.
    """
    program = granted.container.start(
        """
import time
cuda = Cuda()
def look():
    time.sleep(1.1)
    say(cuda.visible()[1])
look()
for _ in range(4):
    wait()
    look()
"""
    )
    assert program.stdin
    assert program.stdout
    changes: list[Callable[[], object]] = [
        lambda: granted.put(b"nonsense\n"),
        lambda: granted.put(b"other nonsense\n"),
        lambda: granted.grant({GPU_A: 700}),
        granted.path.unlink,
    ]
    seen = [int(program.stdout.readline())]
    for change in changes:
        change()
        program.stdin.write("\n")
        program.stdin.flush()
        seen.append(int(program.stdout.readline()))
    _, errors = program.communicate(timeout=60)

    assert [1000, 1000, 1000, 700, 700] == seen
    assert 1 == len(errors.splitlines())
    assert "the former limits stay" in errors


def test_without_a_file_the_environment_holds(granted: Granted) -> None:
    """
    HAMi's plugin mounts none. The folder alone means nothing.
    """
    granted.path.unlink()
    granted.container.environment["CUDA_DEVICE_MEMORY_SHARED_CACHE"] = str(granted.container.region)

    assert [2, 0] == granted.container.run(ALLOCATE, CUDA_DEVICE_MEMORY_LIMIT="1000m")
    assert [0, 0] == granted.container.run(ALLOCATE, CUDA_DISABLE_CONTROL="1", CUDA_DEVICE_MEMORY_LIMIT="1m")


def test_limits_belong_to_uuids_in_any_order(granted: Granted) -> None:
    """
    Each device has its own limit, and a device that was not granted has nothing.
    """
    granted.grant({GPU_C: 300, GPU_A: 100})
    results = granted.container.run("""
seen = []
for ordinal, mib in ((0, 100), (2, 300)):
    cuda = Cuda(ordinal)
    seen += [cuda.allocate((mib + 1) * MIB)[0], cuda.allocate(mib * MIB)[0]]
cuda = Cuda(1)
say([*seen, cuda.allocate(2 * MIB)[0]])
""")

    assert [2, 0, 2, 0, 2] == results
    assert GPU_B not in granted.path.read_text()


def test_sixteen_devices_have_sixteen_limits(granted: Granted) -> None:
    """
    As many devices as the region has.
    """
    uuids = [f"GPU-{index:08x}-0000-4000-8000-000000000000" for index in range(16)]
    rows = [f"{uuid},Fake,16384,0,0000:{index:02x}:00.0\n" for index, uuid in enumerate(uuids)]
    (granted.container.folder / "hardware/devices.csv").write_text(
        "uuid,name,memory_mib,numa_node,pci_bus_id\n" + "".join(rows)
    )
    granted.grant({uuid: 100 + 2 * index for index, uuid in enumerate(uuids)})
    results = granted.container.run("""
seen = []
for ordinal in range(16):
    cuda = Cuda(ordinal)
    mib = 100 + 2 * ordinal
    seen.append([cuda.allocate((mib + 1) * MIB)[0], cuda.allocate(mib * MIB)[0]])
say(seen)
""")

    assert [[2, 0]] * 16 == results
