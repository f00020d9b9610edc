"""
A guest's manners: a program that never calls CUDA or NVML cannot tell that the library is there.
"""

import json
import subprocess
import sys
from pathlib import Path

from containers import Container

STATE = """
import json, os
with open("/proc/self/status") as status:
    lines = {name: value.strip() for name, _, value in (line.partition(":") for line in status)}
umask = os.umask(0o22)
files = []
for number in os.listdir("/proc/self/fd"):
    try:
        files.append(os.readlink("/proc/self/fd/" + number))
    except FileNotFoundError:
        pass  # the listing's own
print(json.dumps({
    "umask": umask,
    "threads": lines["Threads"],
    "signals": [lines[name] for name in ("SigCgt", "SigIgn", "SigBlk")],
    "files": len(files),
    "environment": sorted(name for name in os.environ if name != "LD_PRELOAD"),
    "folder": sorted(os.listdir(os.environ["WATCHED"])),
}))
"""


def state(container: Container, preload: bool) -> dict[str, object]:
    """Return what a Python that uses no CUDA can tell of itself."""
    environment = container.environ(preload=preload, WATCHED=str(container.folder), LIBCUDA_LOG_LEVEL="4")
    result = subprocess.run([sys.executable, "-c", STATE], env=environment, capture_output=True, text=True, check=True)
    assert "" == result.stderr
    value: dict[str, object] = json.loads(result.stdout)
    return value


def test_program_without_cuda_is_left_alone(container: Container) -> None:
    """
    Same umask, threads, signals, open files, environment and files with and without the library, and no output.
    """
    assert state(container, preload=False) == state(container, preload=True)


def test_plain_programs_run_as_ever(container: Container) -> None:
    """
    A shell, its children and their exit statuses are untouched, with every binding resolved at once too.
    """
    for extra in ({}, {"LD_BIND_NOW": "1"}):
        result = subprocess.run(
            ["/bin/sh", "-c", "umask 027; echo $(umask); ls / > /dev/null; exit 3"],
            env=container.environ(**extra),
            capture_output=True,
            text=True,
            check=False,
        )

        assert (3, "0027\n", "") == (result.returncode, result.stdout, result.stderr)
    assert not container.region.exists()


def test_looking_for_cuda_makes_no_region(container: Container) -> None:
    """
    Opening the driver's libraries and looking functions up is not using them.
    """
    container.run("""
lib, nvml = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL("libnvidia-ml.so.1")
say([bool(lib.cuInit), bool(lib.cuMemAlloc_v2), bool(nvml.nvmlDeviceGetMemoryInfo)])
""")

    assert not container.region.exists()


def test_cuda_program_keeps_its_umask_and_signals(container: Container) -> None:
    """
    A program that does use CUDA keeps umask, signal handlers and thread count, and the region is open to all users.
    """
    before, after, mode = container.run("""
def look():
    with open("/proc/self/status") as status:
        kept = [line for line in status if line.startswith(("Umask", "Threads", "SigCgt", "SigIgn", "SigBlk"))]
    return kept
before = look()
cuda = Cuda()
cuda.launch(cuda.kernel(0))
cuda.allocate(MIB)
say([before, look(), os.stat(os.environ["CUDA_DEVICE_MEMORY_SHARED_CACHE"]).st_mode & 0o777])
""")

    assert before == after
    assert 0o666 == mode


def test_unusable_region_never_stops_a_program(container: Container) -> None:
    """
    Without a place for the region the limit holds for the process alone, and one line says so.
    """
    result, errors = container.run_and_listen(
        "cuda = Cuda()\nsay([cuda.allocate(1001 * MIB)[0], cuda.allocate(1000 * MIB)[0]])",
        CUDA_DEVICE_MEMORY_SHARED_CACHE=str(Path("/nonexistent/share.cache")),
    )

    assert [2, 0] == result
    assert 1 == len(errors.splitlines())
    assert "limits hold for each process by itself" in errors


def test_log_is_capped(container: Container) -> None:
    """
    A program that is refused a thousand times prints a hundred lines about it, and one that says there were more.
    """
    _, errors = container.run_and_listen(
        "cuda = Cuda()\nsay([cuda.allocate(2000 * MIB)[0] for _ in range(1000)][-1])", LIBCUDA_LOG_LEVEL="2"
    )
    lines = errors.splitlines()

    assert 101 == len(lines)
    assert lines[-1].endswith("further messages of this process are left out")
