"""
The limits on memory that the driver holds for a cgroup. Each row of the table in fake_driver/README.md is a test here.
"""

import os
import subprocess
import sys
from pathlib import Path

import pynvml as n
import pytest
from containers import GPU_A, HERE, Container
from hardware.process import Process, Start, error

from testbed.driver.hardware import FIRST_DRIVER_WITH_LIMITS, FakeDriver, StandInCgroups

MIB = 1 << 20
NO_LIMIT = 2**64 - 1
SUCCESS, OUT_OF_MEMORY = 0, 2
LEAF, POD = "/kubepods/pod1/c1", "/kubepods/pod1"
OTHER = "/kubepods/pod1/c2"
DMEM, MISC = "dmem", "misc"
NOT_SUPPORTED, NOT_FOUND = error(n.NVML_ERROR_NOT_SUPPORTED), error(n.NVML_ERROR_NOT_FOUND)
NO_CGROUP, INVALID = error(n.NVML_ERROR_OPERATING_SYSTEM), error(n.NVML_ERROR_INVALID_ARGUMENT)
dmem_only = pytest.mark.parametrize("backend", [DMEM])
misc_only = pytest.mark.parametrize("backend", [MISC])


@pytest.fixture(params=[DMEM, MISC])
def backend(request: pytest.FixtureRequest) -> str:
    """What holds the limits."""
    return str(request.param)


@pytest.fixture
def cgroups(tmp_path: Path, driver: FakeDriver, backend: str) -> StandInCgroups:
    """Cgroups with one container in one Pod."""
    made = StandInCgroups(tmp_path / "cgroup", driver.folder / "devices.csv" if backend == DMEM else None)
    made.create(LEAF)
    return made


@pytest.fixture
def modern(driver: FakeDriver) -> FakeDriver:
    """A driver that holds limits."""
    driver.load(version=FIRST_DRIVER_WITH_LIMITS)
    return driver


class Machine:
    """A node with such cgroups: its administrator, and processes in them."""

    def __init__(self, start: Start, cgroups: StandInCgroups) -> None:
        self._start, self.cgroups = start, cgroups
        self.host = self.process("/")

    def process(self, path: str, **variables: str) -> Process:
        """Return a process in the cgroup *path*. Its contexts take nothing, unless *variables* say so."""
        return self._start(**({"FAKE_DRIVER_CONTEXT_MIB": "0"} | self.cgroups.variables(path) | variables))

    def limit(self, path: str, hard_mib: int, soft_mib: int = 0) -> object:
        """Set the limits of GPU A for a cgroup."""
        return self.set(path, soft_mib * MIB, hard_mib * MIB)

    def set(self, path: str, soft_bytes: int, hard_bytes: int) -> object:
        """Set the limits of GPU A for a cgroup, in bytes."""
        return self.host.ask(f"set_limits({self.folder(path)!r}, {soft_bytes}, {hard_bytes})")

    def read(self, path: str) -> object:
        """Return the limits of a cgroup and its use: soft, hard, used."""
        return self.host.ask(f"limits({self.folder(path)!r})")

    def folder(self, path: str) -> str:
        """Return the folder of a cgroup."""
        return str(self.cgroups.root) + ("" if path == "/" else path)

    def reload(self, driver: FakeDriver) -> None:
        """Load the driver again."""
        self.host.kill()
        driver.unload()
        driver.load()
        self.host = self.process("/")


@pytest.fixture
def machine(start: Start, modern: FakeDriver, cgroups: StandInCgroups) -> Machine:
    """A node whose driver holds limits."""
    return Machine(start, cgroups)


def allocate(process: Process, mib: int, *, managed: bool = False) -> int:
    """Return the result of an allocation by a process on GPU A."""
    return int(process.ask(f"allocate({mib}, managed={managed})"))


# --- both ------------------------------------------------------------------------------------------------------------


def test_process_is_refused_beyond_the_hard_limit_of_its_cgroup(machine: Machine) -> None:
    """
    Whatever it loads. Other cgroups and other devices are not limited.
    """
    assert machine.limit(LEAF, 512) is None
    limited, other = machine.process(LEAF), machine.process("/")

    assert [SUCCESS, OUT_OF_MEMORY, SUCCESS] == [allocate(limited, mib) for mib in (400, 200, 112)]
    assert SUCCESS == allocate(other, 8192)
    assert [0, 512 * MIB, 512 * MIB] == machine.read(LEAF)


def test_processes_of_a_cgroup_share_its_limit_until_they_end(machine: Machine) -> None:
    """
    What a dead process had is free at once.
    """
    machine.limit(LEAF, 512)
    one, other = machine.process(LEAF), machine.process(LEAF)

    assert [SUCCESS, OUT_OF_MEMORY] == [allocate(one, 400), allocate(other, 200)]
    one.kill()
    assert SUCCESS == allocate(other, 500)


def test_limit_of_the_leaf_is_what_its_processes_see(machine: Machine) -> None:
    """
    NVML shows the share as the device. A limit on the Pod holds too, but shows the whole device.
    """
    machine.cgroups.create(OTHER)
    machine.limit(LEAF, 512)
    machine.limit(POD, 600)
    limited, sibling = machine.process(LEAF), machine.process(OTHER)
    assert SUCCESS == allocate(limited, 400)

    assert [512, 400, 512, 112] == limited.ask("seen()")
    assert [16384, 400, 16384, 16384 - 400] == sibling.ask("seen()")
    assert OUT_OF_MEMORY == allocate(sibling, 602)


def test_process_in_a_cgroup_below_the_leaf_is_limited_and_sees_the_device(machine: Machine) -> None:
    """
    A container may make cgroups of its own.
    """
    machine.cgroups.create(f"{LEAF}/own")
    machine.limit(LEAF, 512)
    nested = machine.process(f"{LEAF}/own")

    assert 16384 == nested.ask("seen()")[0]
    assert [OUT_OF_MEMORY, SUCCESS] == [allocate(nested, 600), allocate(nested, 512)]


def test_managed_memory_is_not_counted(machine: Machine) -> None:
    """
    A container may take it beyond its limit, on the device.
    """
    machine.limit(LEAF, 512)
    limited = machine.process(LEAF)

    assert SUCCESS == allocate(limited, 2048, managed=True)
    assert SUCCESS == allocate(limited, 512)
    assert [0, 512 * MIB, 512 * MIB] == machine.read(LEAF)


@pytest.mark.parametrize(("limit_mib", "usable_mib"), [(1024, 640), (3000, 2560)])
def test_context_is_charged(machine: Machine, limit_mib: int, usable_mib: int) -> None:
    """
    A context of 384 MiB leaves of a limit what was measured, in steps of 128 and 256 MiB.
    """
    machine.limit(LEAF, limit_mib)
    limited = machine.process(LEAF, FAKE_DRIVER_CONTEXT_MIB="384")

    assert usable_mib == limited.ask(f"fill({128 if limit_mib == 1024 else 256})")


@misc_only
@pytest.mark.parametrize("by", ["library", "driver", "both"])
def test_context_leaves_as_much_of_a_share_under_the_library_as_under_the_driver(
    machine: Machine, container: Container, by: str
) -> None:
    """
    Of 3000 MiB each process has 384 MiB less. All see 3000 MiB.
    """
    if by != "library":
        machine.limit(LEAF, 3000)
    program = "from hardware.limits_session import *\nsay([Cuda().visible()[1], fill(8)])"
    variables = {"FAKE_DRIVER_CONTEXT_MIB": "384", "PYTHONPATH": f"{HERE}:{HERE / 'preload'}"}
    if by != "driver":
        variables["CUDA_DEVICE_MEMORY_LIMIT_0"] = "3000m"
    group = machine.cgroups.variables("/" if by == "library" else LEAF)

    found = container.run(program, preload=by != "driver", **variables, **group)

    assert [3000, 2616] == found


def test_imported_memory_stays_charged_to_its_makers_cgroup(machine: Machine) -> None:
    """
    Also after the maker has ended. So two containers can pass memory on.
    """
    machine.cgroups.create(OTHER)
    machine.limit(LEAF, 512)
    machine.limit(OTHER, 512)
    maker, importer = machine.process(LEAF), machine.process(OTHER)
    assert [SUCCESS, SUCCESS] == [allocate(maker, 500), allocate(importer, 500)]

    assert SUCCESS == importer.ask(f"import_memory({maker.ask('share_memory()')})")
    before = [machine.read(LEAF), machine.read(OTHER)]
    maker.kill()

    assert [[0, 512 * MIB, 500 * MIB]] * 2 == before
    assert before == [machine.read(LEAF), machine.read(OTHER)]
    assert OUT_OF_MEMORY == allocate(machine.process(LEAF), 100)
    importer.kill()
    assert [0, 512 * MIB, 0] == machine.read(LEAF)


def test_limit_is_lifted_by_the_largest_number(machine: Machine) -> None:
    """
    Then any process may take all, and the limits read as those numbers.
    """
    machine.limit(LEAF, 512)
    assert machine.set(LEAF, 0, NO_LIMIT) is None

    assert SUCCESS == allocate(machine.process(LEAF), 8192)
    assert [0, NO_LIMIT, 8192 * MIB] == machine.read(LEAF)


def test_limit_is_gone_when_the_driver_is_unloaded(machine: Machine, modern: FakeDriver) -> None:
    """
    The next load knows nothing of it, neither of soft limits of cgroups above.
    """
    before = machine.read(LEAF)
    machine.limit(LEAF, 512, soft_mib=100)
    machine.reload(modern)
    machine.cgroups.create(OTHER)
    machine.limit(OTHER, 512)

    assert before == machine.read(LEAF)
    assert SUCCESS == allocate(machine.process(LEAF), 8192)
    assert machine.limit(LEAF, 9000, soft_mib=50) is None
    assert machine.host.ask(f"limits({machine.folder(LEAF)!r})[:2]") == [50 * MIB, 9000 * MIB]


@pytest.mark.parametrize(
    ("path", "soft_mib", "hard_mib", "expected"),
    [
        pytest.param("ROOT" + LEAF, 0, 16384, None, id="all of the device"),
        pytest.param("ROOT" + LEAF, 2, 1, INVALID, id="soft above hard"),
        pytest.param("ROOT" + LEAF, 0, 16385, INVALID, id="more than the device has"),
        pytest.param("", 0, 1, INVALID, id="no path"),
        pytest.param("ROOT/missing", 0, 1, NO_CGROUP, id="missing folder"),
        pytest.param("/usr", 0, 1, NO_CGROUP, id="not a cgroup"),
    ],
)
def test_setting_checks_its_arguments(
    machine: Machine, path: str, soft_mib: int, hard_mib: int, expected: object
) -> None:
    """
    With the errors of the manual.
    """
    path = path.replace("ROOT", str(machine.cgroups.root))
    assert expected == machine.host.ask(f"set_limits({path!r}, {soft_mib * MIB}, {hard_mib * MIB})")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to act for another user")
def test_only_root_of_the_node_sets_a_limit(machine: Machine) -> None:
    """
    Others lack the permission.
    """
    machine.read(LEAF)
    machine.host.ask("os.seteuid(65534)")

    assert error(n.NVML_ERROR_NO_PERMISSION) == machine.limit(LEAF, 512)


def test_device_in_mig_mode_takes_a_limit_and_charges_nothing(
    start: Start, modern: FakeDriver, cgroups: StandInCgroups
) -> None:
    """
    Without an error. A handle of an instance is not supported.
    """
    file = modern.folder / "devices.csv"
    heading, gpu = file.read_text().splitlines()[:2]
    file.write_text(f"{heading}\n{gpu}\nMIG-one,Slice,8192,0,0000:17:00.0\n")
    machine = Machine(start, cgroups)

    assert machine.limit(LEAF, 512) is None
    assert SUCCESS == allocate(machine.process(LEAF, NVIDIA_VISIBLE_DEVICES="MIG-one"), 4096)
    handle, path = "n.nvmlDeviceGetMigDeviceHandleByIndex(gpu(0), 0)", machine.folder(LEAF).encode()
    limit = f"n.nvmlDeviceSetMemoryLimits_v1({handle}, n.c_nvmlSetMemoryLimits_v1_t({path!r}, 0, 1))"
    read = f"n.nvmlDeviceGetMemoryLimits_v1({handle}, n.c_nvmlGetMemoryLimits_v1_t({path!r}))"
    assert [NOT_SUPPORTED] * 2 == machine.host.ask_all(limit, read)


@pytest.mark.parametrize("version", [pytest.param("570.124.06", id="570"), pytest.param("610.20.01", id="610")])
def test_older_driver_has_no_limits(start: Start, driver: FakeDriver, cgroups: StandInCgroups, version: str) -> None:
    """
    Both calls are not supported.
    """
    driver.load(version=version)
    machine = Machine(start, cgroups)

    assert [NOT_SUPPORTED] * 2 == [machine.limit(LEAF, 512), machine.read(LEAF)]


@misc_only
def test_older_library_lacks_the_functions(start: Start, container: Container, cgroups: StandInCgroups) -> None:
    """
    A program that looks them up does not find them.
    """
    folder = container.build / "fake_driver"
    process = start(**cgroups.variables("/"), LD_LIBRARY_PATH=f"{folder}/12080:{folder}")

    assert error(n.NVML_ERROR_FUNCTION_NOT_FOUND) == process.ask(f"limits('{cgroups.root}')")


def test_reserve_of_the_driver_is_no_programs(machine: Machine, modern: FakeDriver) -> None:
    """
    NVML counts it as used in the first form, and apart in the second.
    """
    modern.set(GPU_A, memory_reserved_mib=400)
    process = machine.process("/")
    newest = (
        "[getattr(n.nvmlDeviceGetMemoryInfo(gpu(0), n.nvmlMemory_v2), name) >> 20 for name in ('reserved', 'used')]"
    )

    assert [OUT_OF_MEMORY, SUCCESS] == [allocate(process, mib) for mib in (15986, 15984)]
    assert [16384, 16384, 16384, 0] == process.ask("seen()")
    assert [400, 15984] == process.ask(newest)


# --- which of them ---------------------------------------------------------------------------------------------------


def test_node_with_cgroup_v1_has_no_limits(start: Start, modern: FakeDriver, tmp_path: Path) -> None:
    """
    The driver needs version 2.
    """
    process = start(FAKE_DRIVER_CGROUP_ROOT=str(tmp_path))

    assert NOT_SUPPORTED == process.ask(f"limits('{tmp_path}')")


def test_kernel_without_either_controller_has_no_limits(machine: Machine, modern: FakeDriver) -> None:
    """
    It has no dmem before 6.14, and misc only if it was built with it. What was found counts until the next load.
    """
    assert machine.limit(LEAF, 512) is None
    (machine.cgroups.root / "cgroup.controllers").write_text("cpu memory\n")
    assert machine.limit(LEAF, 512) is None
    machine.reload(modern)

    assert [NOT_SUPPORTED] * 2 == [machine.limit(LEAF, 512), machine.read(LEAF)]
    modern.count_misc_as_there()
    machine.reload(modern)
    assert machine.limit(LEAF, 512) is None


@dmem_only
def test_option_of_the_module_chooses_what_the_kernel_has(machine: Machine, modern: FakeDriver) -> None:
    """
    RmMemacctMode: 0 none, 1 misc, 2 dmem, 3 the better one.
    """
    found = []
    for mode in range(4):
        modern.load(memacct=mode)
        machine.reload(modern)
        found.append([machine.read(LEAF), machine.limit(LEAF, 512)])

    dmem = [[0, NO_LIMIT, 0], None]
    assert [[NOT_SUPPORTED] * 2, [NOT_SUPPORTED, None], dmem, dmem] == found


# --- dmem ------------------------------------------------------------------------------------------------------------


@dmem_only
def test_limits_are_lines_of_the_cgroups_files(machine: Machine) -> None:
    """
    NVML writes them, and who else writes them changes the limit.
    """
    files = [Path(machine.folder(LEAF), name) for name in ("dmem.min", "dmem.max")]
    machine.limit(LEAF, 512, soft_mib=100)
    region = "nvidia/00000000:17:00.0/vidmem"

    assert [f"{region} {100 * MIB}\n", f"{region} {512 * MIB}\n"] == [file.read_text() for file in files]
    assert f"{region} {16384 * MIB}" in (machine.cgroups.root / "dmem.capacity").read_text().splitlines()
    files[1].write_text(f"{region} {300 * MIB}\n")
    assert [OUT_OF_MEMORY, SUCCESS] == [allocate(machine.process(LEAF), mib) for mib in (302, 300)]


@dmem_only
def test_soft_limit_is_added_to_every_cgroup_above_and_stays_there(machine: Machine) -> None:
    """
    A change adds the difference. Removing the cgroup takes nothing back, because NVML cannot open it any more.
    """
    machine.limit(LEAF, 512, soft_mib=100)
    machine.limit(LEAF, 512, soft_mib=300)
    machine.cgroups.create(OTHER)
    machine.limit(OTHER, 512, soft_mib=50)
    all_of_them = {"/kubepods": 350 * MIB, POD: 350 * MIB, LEAF: 300 * MIB, OTHER: 50 * MIB}
    assert all_of_them == machine.cgroups.soft_limits()

    machine.limit(OTHER, 512)
    machine.cgroups.remove(LEAF)

    assert {"/kubepods": 300 * MIB, POD: 300 * MIB} == machine.cgroups.soft_limits()
    assert [300 * MIB, NO_LIMIT, 0] == machine.read(POD)


@dmem_only
def test_soft_limit_ends_at_a_cgroup_without_the_files(machine: Machine) -> None:
    """
    A gap ends the propagation.
    """
    for file in ("dmem.min", "dmem.max"):
        Path(machine.folder(POD), file).unlink()
    Path(machine.folder("/kubepods"), "cgroup.subtree_control").write_text("cpu\n")
    machine.limit(LEAF, 512, soft_mib=100)

    assert {LEAF: 100 * MIB} == machine.cgroups.soft_limits()


@dmem_only
def test_root_and_cgroup_without_the_files_are_refused(machine: Machine) -> None:
    """
    The root has none. crun makes none, until somebody enables the controller in the cgroup above.
    """
    bare = "/kubepods/pod2/c1"
    machine.cgroups.create(bare, runtime="crun")

    assert [[NOT_FOUND, NOT_SUPPORTED]] * 2 == [[machine.limit(path, 1), machine.read(path)] for path in ("/", bare)]
    with Path(machine.folder("/kubepods/pod2"), "cgroup.subtree_control").open("a") as file:
        file.write("+dmem")
    assert machine.limit(bare, 1) is None


@dmem_only
def test_limit_below_use_is_ignored_without_a_word(machine: Machine) -> None:
    """
    The kernel keeps the old one.
    """
    machine.limit(LEAF, 512)
    process = machine.process(LEAF)
    allocate(process, 400)

    assert machine.limit(LEAF, 300) is None
    assert [0, 512 * MIB, 400 * MIB] == machine.read(LEAF)
    assert SUCCESS == allocate(process, 112)


@dmem_only
def test_each_cgroup_above_is_charged_and_holds_its_limit(machine: Machine) -> None:
    """
    Also with what was there before a limit.
    """
    machine.cgroups.create(OTHER)
    one, other = machine.process(LEAF), machine.process(OTHER)
    assert SUCCESS == allocate(one, 400)
    machine.limit(LEAF, 512)
    machine.limit(POD, 600)

    assert [OUT_OF_MEMORY, SUCCESS] == [allocate(other, 202), allocate(other, 200)]
    assert [0, 600 * MIB, 600 * MIB] == machine.read(POD)
    assert [0, 512 * MIB, 400 * MIB] == machine.read(LEAF)


@dmem_only
def test_limit_in_files_ends_with_its_cgroup(machine: Machine) -> None:
    """
    A cgroup that is created again at the same path has none.
    """
    machine.limit(LEAF, 512)
    machine.cgroups.remove(LEAF)
    assert NO_CGROUP == machine.read(LEAF)

    machine.cgroups.create(LEAF)
    assert [0, NO_LIMIT, 0] == machine.read(LEAF)
    assert SUCCESS == allocate(machine.process(LEAF), 8192)


# --- misc ------------------------------------------------------------------------------------------------------------


@misc_only
def test_entry_survives_its_cgroup_and_a_later_one_inherits_it(machine: Machine) -> None:
    """
    The driver knows a cgroup by its address, and never hears of its end. Every later cgroup gets the address here.
    """
    later = "/kubepods/pod2/c9"
    machine.limit(LEAF, 512)
    machine.cgroups.remove(LEAF)
    machine.cgroups.create(later)

    assert [0, 512 * MIB, 0] == machine.read(later)
    assert OUT_OF_MEMORY == allocate(machine.process(later), 600)
    assert machine.set(later, 0, NO_LIMIT) is None
    assert SUCCESS == allocate(machine.process(later), 600)


@misc_only
def test_nearest_limited_cgroup_answers_and_is_charged_alone(machine: Machine) -> None:
    """
    Limits do not nest: that of a Pod does not bound a container with a larger one.
    """
    machine.cgroups.create(OTHER)
    machine.limit(POD, 600)
    machine.limit(LEAF, 1000)
    limited, other = machine.process(LEAF), machine.process(OTHER)

    assert [SUCCESS, SUCCESS] == [allocate(limited, 1000), allocate(other, 600)]
    assert OUT_OF_MEMORY == allocate(other, 2)
    assert [0, 1000 * MIB, 1000 * MIB] == machine.read(LEAF)
    assert [0, 600 * MIB, 600 * MIB] == machine.read(POD) == machine.read(OTHER)


@misc_only
def test_cgroup_without_a_limit_is_not_supported_and_the_root_is_refused(machine: Machine) -> None:
    """
    As if the device had no limits.
    """
    machine.limit(LEAF, 512)

    assert [NOT_SUPPORTED] * 2 == [machine.read(POD), machine.read("/")]
    assert NOT_SUPPORTED == machine.limit("/", 512)
    assert [0, 512 * MIB, 0] == machine.read(LEAF)


@misc_only
def test_limit_below_use_is_refused(machine: Machine) -> None:
    """
    The old one holds.
    """
    machine.limit(LEAF, 512)
    allocate(machine.process(LEAF), 400)

    assert error(n.NVML_ERROR_UNKNOWN) == machine.limit(LEAF, 300)
    assert [0, 512 * MIB, 400 * MIB] == machine.read(LEAF)


@misc_only
def test_memory_from_before_a_limit_never_counts(machine: Machine) -> None:
    """
    So a limit that is set late is larger than it says.
    """
    process = machine.process(LEAF)
    assert SUCCESS == allocate(process, 400)
    machine.limit(LEAF, 512)

    assert [0, 512 * MIB, 0] == machine.read(LEAF)
    assert [OUT_OF_MEMORY, SUCCESS] == [allocate(process, 514), allocate(process, 512)]


@misc_only
def test_limit_on_a_cgroup_without_the_controller_is_never_looked_up(machine: Machine) -> None:
    """
    It is taken, and does not hold.
    """
    for path, name in ((LEAF, "cgroup.controllers"), (POD, "cgroup.subtree_control")):
        Path(machine.folder(path), name).write_text("cpu memory\n")

    assert machine.limit(LEAF, 512) is None
    assert SUCCESS == allocate(machine.process(LEAF), 600)


def test_folder_that_is_made_among_cgroups_is_one(machine: Machine) -> None:
    """
    A program makes a cgroup by `mkdir` alone.
    """
    Path(machine.folder("/kubepods/pod2")).mkdir()

    assert machine.limit("/kubepods/pod2", 512) is None
    assert OUT_OF_MEMORY == allocate(machine.process("/kubepods/pod2"), 600)


@misc_only
@pytest.mark.skipif(os.geteuid() != 0, reason="capabilities are root's")
def test_root_without_its_capability_sets_no_entry(container: Container, machine: Machine) -> None:
    """
    The driver's control call needs CAP_SYS_ADMIN. Files of dmem need only the right to write them.
    """
    setting = f"from hardware.limits_session import *\nset_limits({machine.folder(LEAF)!r}, 0, 1)"
    command = [sys.executable, "-c", f"import pynvml\npynvml.nvmlInit()\n{setting}"]
    path = {"PYTHONPATH": f"{HERE}:{HERE / 'preload'}"}
    environment = container.environ(preload=False, **path, **machine.cgroups.variables("/"))
    without = ["setpriv", "--bounding-set=-sys_admin", *command]
    done = subprocess.run(without, env=environment, capture_output=True, text=True, check=False)

    assert "NVMLError_NoPermission" in done.stderr
    subprocess.run(command, env=environment, check=True)
