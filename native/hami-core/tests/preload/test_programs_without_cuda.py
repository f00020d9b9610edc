"""
A program that calls neither CUDA nor NVML does not notice the library, however the program was built.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from containers import GPU_A, SANITIZER, Container

IS_SANITIZED = bool(SANITIZER)
NOBODY = 65534

PYTHON = """
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
BASH = """
umask 027; umask; ulimit -a; trap -p; set -o
trap 'echo trapped' USR1; kill -USR1 $$
mapfile -t status < /proc/$$/status; printf '%s\\n' "${status[@]}" | grep -E 'Threads|Sig(Pnd|Blk|Ign|Cgt)'
files=(/proc/$$/fd/*); echo ${#files[@]}
env | grep -vE '^(LD_PRELOAD|_)=' | sort; ls "$WATCHED"
(echo from a subshell; exit 5); echo $?
cat <(echo from a pipe) | tr a-z A-Z; exit 3
"""


def ran(container: Container, command: list[str], **extra: str) -> tuple[int, str, str]:
    """Run a command with and without the library, assert that the results are equal, and return them."""
    seen = []
    for preload in (False, True):
        environment = container.environ(preload=preload, WATCHED=str(container.folder), **extra)
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
        seen.append((done.returncode, done.stdout, done.stderr))
    assert seen[0] == seen[1]
    return seen[1]


def program(container: Container, name: str) -> Path:
    """Return a test program, or skip the test if the compiler could not build it."""
    path = container.build / name
    if not path.exists():
        pytest.skip(f"the compiler that built {container.build} cannot make {name}")
    return path


@pytest.mark.parametrize("extra", [{}, {"LD_BIND_NOW": "1"}, {"LIBCUDA_LOG_LEVEL": "4"}], ids=str)
@pytest.mark.parametrize(
    ("command", "status"),
    [([sys.executable, "-c", PYTHON], 0), (["bash", "-c", BASH], 3), (["sh", "-c", "ls / | wc -l; exit 4"], 4)],
    ids=["python", "bash", "sh"],
)
def test_programs_without_cuda_are_left_alone(
    container: Container, command: list[str], status: int, extra: dict[str, str]
) -> None:
    """
    The same umask, limits, threads, signals, open files, environment, files, output and exit status as without the
    library.
    """
    if IS_SANITIZED and command[0] != sys.executable:
        pytest.skip("a sanitizer's runtime is not for every program")
    returned, output, errors = ran(container, command, **extra)

    assert (status, "") == (returned, errors)
    assert output
    assert not container.region.exists()


@pytest.mark.parametrize("extra", [{}, {"LD_BIND_NOW": "1"}], ids=str)
def test_lookups_answer_as_without_the_library(container: Container, extra: dict[str, str]) -> None:
    """
    dlsym and dlvsym of names like the driver's, of the C library's and of the driver's, where there is no driver.
    """
    status, output, errors = ran(container, [str(program(container, "lookups_program"))], **extra)

    assert (0, "") == (status, errors)
    assert "default curl_easy_init: lookups_program, no error\n" in output
    assert "next cuInit: undefined symbol: cuInit\n" in output
    assert not container.region.exists()


def test_container_without_a_driver_gets_the_loaders_error(container: Container) -> None:
    """
    Loading libcuda or libnvidia-ml fails with the loader's message.
    """
    load = "import ctypes, sys\ntry: ctypes.CDLL(sys.argv[1])\nexcept OSError as error: print(error)"
    for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
        _, output, _ = ran(container, [sys.executable, "-c", load, name], LD_LIBRARY_PATH="")

        assert f"{name}: cannot open shared object file" in output


@pytest.mark.skipif(IS_SANITIZED, reason="a sanitizer's runtime is not for every program")
@pytest.mark.parametrize(
    ("name", "where"),
    [("plain_program", "with the library"), ("static_program", "without the library")],
)
def test_static_programs_do_not_load_it(container: Container, name: str, where: str) -> None:
    """
    The dynamic linker loads the library; a program without one runs without it.
    """
    done = subprocess.run(
        [program(container, name)], env=container.environ(), capture_output=True, text=True, check=False
    )

    assert (3, f"user {os.geteuid()}, {where}\n", "") == (done.returncode, done.stdout, done.stderr)


@pytest.mark.skipif(not shutil.which("musl-gcc"), reason="no musl-gcc to build a program with (Debian: musl-tools)")
@pytest.mark.skipif(IS_SANITIZED, reason="sanitizers' runtimes are glibc's")
def test_musl_program_loads_it_and_runs_as_without_it(container: Container) -> None:
    """
    musl's loader finds every symbol that the library needs, so it prints nothing and the program runs.
    """
    source = Path(__file__).with_name("plain_program.c")
    subprocess.run(["musl-gcc", source, "-o", container.folder / "musl_program"], check=True)
    done = subprocess.run(
        [container.folder / "musl_program"], env=container.environ(), capture_output=True, text=True, check=False
    )

    assert (3, f"user {os.geteuid()}, with the library\n", "") == (done.returncode, done.stdout, done.stderr)


@pytest.mark.skipif(IS_SANITIZED, reason="the library is built with a sanitizer")
@pytest.mark.parametrize(
    ("name", "options"),
    [("asan_program", {"ASAN_OPTIONS": "verify_asan_link_order=0:detect_leaks=0"}), ("tsan_program", {})],
)
def test_programs_with_sanitizers_run_under_it(container: Container, name: str, options: dict[str, str]) -> None:
    """
    A program built with a sanitizer starts, and its limit holds. AddressSanitizer needs an option for preloads.
    """
    environment = {**container.environ(), **options}
    done = subprocess.run([program(container, name)], env=environment, capture_output=True, text=True, check=False)

    assert (0, "1001 MiB: 2, 1000 MiB: 0\n", "") == (done.returncode, done.stdout, done.stderr)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user can enter, for programs that run as their owner, root."""
    if os.geteuid() != 0:
        pytest.skip("only root can make a program that runs as root")
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def as_root(program: Path, folder: Path) -> Path:
    """Return a copy of a program that runs as root for every caller."""
    copy = Path(shutil.copy(program, folder))
    copy.chmod(0o4755)
    return copy


def ran_with_preload_file(folder: Path, libraries: list[Path], script: str, **variables: str) -> str:
    """Return what a script prints where /etc/ld.so.preload names libraries, as in a container of the device plugin."""
    etc = folder / "etc"
    etc.mkdir()
    for name in ("passwd", "group", "nsswitch.conf", "ld.so.cache"):
        shutil.copy(Path("/etc") / name, etc)
    (etc / "ld.so.preload").write_text("".join(f"{shutil.copy(library, folder)}\n" for library in libraries))
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", f"mount --bind {etc} /etc || exit 77\n{script}"],
        env={"PATH": os.environ["PATH"], **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode in (1, 77):
        pytest.skip(f"no mount namespace here: {done.stderr.strip()}")
    return done.stdout


@pytest.mark.skipif(IS_SANITIZED, reason="a sanitizer's runtime is not for programs of another user")
def test_setuid_program_ignores_the_callers_preload(container: Container, open_folder: Path) -> None:
    """
    A library in a user's LD_PRELOAD is not loaded into a program that runs as another user.
    """
    copy = as_root(program(container, "plain_program"), open_folder)
    done = subprocess.run([copy], env=container.environ(), capture_output=True, text=True, check=False, user=NOBODY)

    assert (3, "user 0, without the library\n", "") == (done.returncode, done.stdout, done.stderr)


@pytest.mark.skipif(IS_SANITIZED, reason="a sanitizer's runtime cannot be in /etc/ld.so.preload")
def test_every_program_of_a_container_runs_with_the_preload_file(container: Container, open_folder: Path) -> None:
    """
    With /etc/ld.so.preload, as the device plugin mounts it, setuid programs load the library too, and work.
    """
    copy = as_root(program(container, "plain_program"), open_folder)
    output = ran_with_preload_file(
        open_folder,
        [container.build / "libvgpu.so"],
        f"""
setpriv --reuid={NOBODY} --clear-groups {copy}; echo $?
{program(container, "static_program")}; echo $?
bash -c 'umask; kill -USR1 $$'; echo $?
""",
    )

    assert "user 0, with the library\n3\nuser 0, without the library\n3\n0022\n138\n" == output


def setuid_program_ran(container: Container, folder: Path, **extra: str) -> str:
    """Return what a program of root that uses CUDA prints, started by NOBODY with the container's environment."""
    copy = as_root(program(container, "linked_program"), folder)
    variables = container.environ(preload=False, **extra)
    del variables["PATH"]
    return ran_with_preload_file(
        folder,
        [container.build / "libvgpu.so", container.build / "fake_driver/libcuda.so.1"],
        f"setpriv --reuid={NOBODY} --clear-groups {copy}\ntrue",
        **variables,
    )


@pytest.mark.skipif(IS_SANITIZED, reason="a sanitizer's runtime cannot be in /etc/ld.so.preload")
def test_setuid_program_that_uses_cuda_takes_no_orders_from_its_caller(container: Container, open_folder: Path) -> None:
    """
    The caller's environment must not name a file that root then creates, so such a program is not under control.
    """
    output = setuid_program_ran(container, open_folder)

    assert "1001 MiB: 0, 1000 MiB: 0\n" == output
    assert not container.region.exists()


@pytest.mark.skipif(IS_SANITIZED, reason="a sanitizer's runtime cannot be in /etc/ld.so.preload")
def test_setuid_program_keeps_to_the_limits_file(container: Container, open_folder: Path) -> None:
    """
    What the plugin granted holds for the program by itself. Its caller's environment changes nothing and names no file.
    """
    (open_folder / "limits").mkdir()
    (open_folder / "limits/limits").write_text(f"hami-limits 1\n{GPU_A} {1000 << 20} 100\n")
    output = setuid_program_ran(container, open_folder, CUDA_DEVICE_MEMORY_LIMIT="1m", CUDA_DISABLE_CONTROL="true")

    assert "1001 MiB: 2, 1000 MiB: 0\n" == output
    assert not container.region.exists()


def test_looking_for_cuda_makes_no_region(container: Container) -> None:
    """
    Opening the driver's libraries and looking up functions is not use.
    """
    container.run("""
lib, nvml = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL("libnvidia-ml.so.1")
say([bool(lib.cuInit), bool(lib.cuMemAlloc_v2), bool(nvml.nvmlDeviceGetMemoryInfo)])
""")

    assert not container.region.exists()


def test_cuda_program_keeps_its_umask_and_signals(container: Container) -> None:
    """
    A program that uses CUDA keeps its umask, signal handlers and thread count, and the region is open to all users.
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
    Without a usable region the limit holds for the process alone, and one line says so.
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
    A program that is refused a thousand times gets a hundred lines, and one that says that the rest is omitted.
    """
    _, errors = container.run_and_listen(
        "cuda = Cuda()\nsay([cuda.allocate(2000 * MIB)[0] for _ in range(1000)][-1])", LIBCUDA_LOG_LEVEL="2"
    )
    lines = errors.splitlines()

    assert 101 == len(lines)
    assert lines[-1].endswith("further messages of this process are omitted")
