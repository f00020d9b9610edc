"""
Libraries that are not loaded as others are: bound to the driver before what is preloaded, in another namespace, twice.
"""

import shutil
import subprocess

import pytest
from containers import SANITIZER, Container

from hamicommon.wire.region.layout import LAYOUT_V1_2
from hamicommon.wire.region.records import Unreached, decode_unreached

pytestmark = pytest.mark.skipif(bool(SANITIZER), reason="a sanitizer does not let a program load libraries so")

WAYS = ["call", "address", "lookup"]

DEEP = """
cuda = Cuda()
library = ctypes.CDLL(sys.argv[1], mode=int(sys.argv[2]) | os.RTLD_DEEPBIND)
allocate = getattr(library, "allocate_by_" + sys.argv[3])
say([allocate(c_size_t(1100 * MIB)), allocate(c_size_t(900 * MIB)), allocate(c_size_t(200 * MIB))])
"""


def deep(container: Container, library: str, way: str, *, preload: bool = True) -> list[int]:
    """Return what three allocations through a library return that is opened with RTLD_DEEPBIND."""
    mode = 2 if library == "now" else 1
    arguments = f"sys.argv[1:] = [{str(container.build / f'libbound_{library}.so')!r}, {mode}, {way!r}]\n"
    results: list[int] = container.run(arguments + DEEP, preload=preload)
    return results


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("library", ["now", "lazy"])
def test_library_that_is_bound_deeply_keeps_to_the_limit(container: Container, library: str, way: str) -> None:
    """
    Its calls, its tables of functions and its lookups reach the hooks, whether it is bound at once or not.
    """
    assert [0, 0, 0] == deep(container, library, way, preload=False)
    assert [2, 0, 2] == deep(container, library, way)


def test_library_that_a_deeply_bound_library_opens_keeps_to_the_limit(container: Container) -> None:
    """
    What such a library opens itself is seen too.
    """
    said = container.run(
        """
deep = ctypes.CDLL(sys.argv[1], mode=2 | os.RTLD_DEEPBIND)
deep.allocate_by_lookup(c_size_t(0))
cuda = Cuda()
inner = ctypes.CDLL(sys.argv[2], mode=2 | os.RTLD_DEEPBIND)
say([lib.allocate_by_call(c_size_t(600 * MIB)) for lib in (deep, inner)])
""".replace("sys.argv[1]", repr(str(container.build / "libbound_now.so"))).replace(
            "sys.argv[2]", repr(str(container.build / "libbound_lazy.so"))
        )
    )

    assert [0, 2] == said


@pytest.mark.parametrize("name", ["libbound_now.so", "libno_such.so"])
def test_libraries_are_found_as_the_program_says(container: Container, name: str) -> None:
    """
    The search path of the program that opens a library counts, and `dlerror` says the same as without the hooks.
    """
    command = [str(container.build / "opening_program"), name]
    said = [
        subprocess.run(
            command, env=container.environ(preload=preload), capture_output=True, text=True, check=True
        ).stdout
        for preload in (False, True)
    ]

    assert said[0] == said[1]
    assert (said[0] == "opened\nopened\n") == (name == "libbound_now.so")


def test_library_in_another_namespace_is_reported(container: Container) -> None:
    """
    The dynamic linker preloads nothing there. A warning names the file.
    """
    library = container.build / "libbound_now.so"
    result, errors = container.run_and_listen(
        f"""
open_in = ctypes.CDLL(None).dlmopen
open_in.restype = c_void_p
say(open_in(ctypes.c_long(-1), {str(library)!r}.encode(), 2) is not None)
""",
        LIBCUDA_LOG_LEVEL="2",
    )

    assert result is True
    assert f"{library}: opened with dlmopen; what it takes of a device is not limited\n" in errors
    assert not container.region.exists()


@pytest.mark.parametrize("order", ["before", "after"])
def test_library_in_another_namespace_is_counted(container: Container, order: str) -> None:
    """
    In the region, also if that appears later.
    """
    opened = f"""
open_in = ctypes.CDLL(None).dlmopen
open_in.restype = c_void_p
assert open_in(ctypes.c_long(-1), {str(container.build / "libbound_now.so")!r}.encode(), 2)
"""
    container.run(opened + "Cuda()\nsay(0)" if order == "before" else "Cuda()\n" + opened + "say(0)")

    assert Unreached(namespaces=1) == decode_unreached(LAYOUT_V1_2, container.region.read_bytes())


def test_driver_that_is_opened_only_in_another_namespace_is_counted(container: Container) -> None:
    """
    The program never calls a function that has a hook.
    """
    container.run(
        f"""
open_in = ctypes.CDLL(None).dlmopen
open_in.restype = c_void_p
assert open_in(ctypes.c_long(-1), {str(container.build / "fake_driver/libcuda.so.1")!r}.encode(), 2)
say(0)
"""
    )

    assert Unreached(namespaces=1) == decode_unreached(LAYOUT_V1_2, container.region.read_bytes())


def test_second_copy_of_the_driver_works_and_is_reported(container: Container) -> None:
    """
    Its functions are its own, because a mixture of two drivers would not work. A warning names the file.
    """
    copy = container.folder / "libcuda.so.570"
    shutil.copy(container.build / "fake_driver/libcuda.so.1", copy)
    result, errors = container.run_and_listen(
        f"""
cuda = Cuda()
other = ctypes.CDLL({str(copy)!r})
pointer = c_uint64()
say([other.cuInit(0), cuda.allocate(1100 * MIB)[0]])
""",
        LIBCUDA_LOG_LEVEL="2",
    )

    assert [0, 2] == result
    assert Unreached(second_drivers=1) == decode_unreached(LAYOUT_V1_2, container.region.read_bytes())
    assert f"{copy}: a second copy of the driver; what is taken through it is not limited\n" in errors
    assert 1 == errors.count("second copy")


def test_program_linked_to_a_driver_of_another_name_keeps_to_the_limit(container: Container) -> None:
    """
    Its other functions are from that driver, so the hooks call that one too.
    """
    renamed = container.folder / "renamed"
    renamed.mkdir()
    for file, name in (("fake_driver/libcuda.so.1", "libcuda.so.9"), ("linked_program", "linked_program")):
        (renamed / name).write_bytes(
            (container.build / file).read_bytes().replace(b"libcuda.so.1\0", b"libcuda.so.9\0")
        )
    (renamed / "linked_program").chmod(0o755)
    folders = f"{renamed}:{container.build / 'fake_driver'}"
    environment = {**container.environ(), "LD_LIBRARY_PATH": folders, "LD_DEBUG": "files"}
    done = subprocess.run([renamed / "linked_program"], env=environment, capture_output=True, text=True, check=True)

    assert "1001 MiB: 2, 1000 MiB: 0\n" == done.stdout
    assert "/libcuda.so.1" not in done.stderr


def test_names_of_loads_are_quiet_by_default(container: Container) -> None:
    """
    Without a log level nothing is printed.
    """
    said = container.run(
        f"""
open_in = ctypes.CDLL(None).dlmopen
open_in.restype = c_void_p
say(open_in(ctypes.c_long(-1), {str(container.build / "libbound_now.so")!r}.encode(), 2) is not None)
"""
    )

    assert said is True
