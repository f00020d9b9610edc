"""
The limits on memory that the driver holds for a cgroup.
"""

from pathlib import Path

import pynvml as n
import pytest
from containers import Container
from hardware.process import Process, Start, error

from testbed.hardware import FIRST_DRIVER_WITH_LIMITS, FakeDriver, StandInCgroups

MIB = 1 << 20
NO_LIMIT = 2**64 - 1
SUCCESS, OUT_OF_MEMORY = 0, 2
LEAF, POD = "/kubepods/pod1/c1", "/kubepods/pod1"


@pytest.fixture
def cgroups(tmp_path: Path) -> StandInCgroups:
    """Cgroups with one container in one Pod."""
    made = StandInCgroups(tmp_path / "cgroup")
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

    def process(self, path: str) -> Process:
        """Return a process in the cgroup *path*."""
        return self._start(**self.cgroups.variables(path), FAKE_DRIVER_CONTEXT_MIB="0")

    def limit(self, path: str, mib: int) -> object:
        """Set both limits of GPU A for a cgroup."""
        return self.host.ask(f"set_limits({self.folder(path)!r}, {mib * MIB}, {mib * MIB})")

    def read(self, path: str) -> object:
        """Return the limits of a cgroup and its use: soft, hard, used."""
        return self.host.ask(f"limits({self.folder(path)!r})")

    def folder(self, path: str) -> str:
        """Return the folder of a cgroup."""
        return f"{self.cgroups.root}{path}"


@pytest.fixture
def machine(start: Start, modern: FakeDriver, cgroups: StandInCgroups) -> Machine:
    """A node whose driver holds limits."""
    return Machine(start, cgroups)


def allocate(process: Process, mib: int, *, managed: bool = False) -> int:
    """Return the result of an allocation by a process on GPU A."""
    return int(process.ask(f"allocate({mib}, managed={managed})"))


def test_process_is_refused_beyond_the_hard_limit_of_its_cgroup(machine: Machine) -> None:
    """
    Whatever it loads. Other cgroups and other devices are not limited.
    """
    assert machine.limit(LEAF, 512) is None
    limited, other = machine.process(LEAF), machine.process("/")

    assert [SUCCESS, OUT_OF_MEMORY, SUCCESS] == [allocate(limited, mib) for mib in (400, 200, 112)]
    assert SUCCESS == allocate(other, 8192)
    assert [512 * MIB, 512 * MIB, 512 * MIB] == machine.read(LEAF)


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
    machine.cgroups.create("/kubepods/pod1/c2")
    machine.limit(LEAF, 512)
    machine.limit(POD, 600)
    limited, sibling = machine.process(LEAF), machine.process("/kubepods/pod1/c2")
    assert SUCCESS == allocate(limited, 400)

    assert [512, 400, 512, 112] == limited.ask("seen()")
    assert [16384, 400, 16384, 16384 - 400] == sibling.ask("seen()")
    assert [OUT_OF_MEMORY, SUCCESS] == [allocate(sibling, 202), allocate(sibling, 200)]
    assert [600 * MIB, 600 * MIB, 600 * MIB] == machine.read(POD)


def test_managed_memory_is_not_counted(machine: Machine) -> None:
    """
    A container may take it beyond its limit, on the device.
    """
    machine.limit(LEAF, 512)
    limited = machine.process(LEAF)

    assert SUCCESS == allocate(limited, 2048, managed=True)
    assert SUCCESS == allocate(limited, 512)
    assert [512 * MIB, 512 * MIB, 512 * MIB] == machine.read(LEAF)


def test_limit_ends_with_its_cgroup(machine: Machine) -> None:
    """
    A cgroup that is created again at the same path has none.
    """
    machine.limit(LEAF, 512)
    machine.cgroups.remove(LEAF)
    assert error(n.NVML_ERROR_OPERATING_SYSTEM) == machine.read(LEAF)

    machine.cgroups.create(LEAF)
    assert error(n.NVML_ERROR_NOT_FOUND) == machine.read(LEAF)
    assert SUCCESS == allocate(machine.process(LEAF), 8192)


def test_limit_is_lifted_by_the_largest_number(machine: Machine) -> None:
    """
    Then any process may take all, and the limits read as those numbers.
    """
    machine.limit(LEAF, 512)
    assert machine.host.ask(f"set_limits({machine.folder(LEAF)!r}, 0, {NO_LIMIT})") is None

    assert SUCCESS == allocate(machine.process(LEAF), 8192)
    assert [0, NO_LIMIT, 8192 * MIB] == machine.read(LEAF)


def test_limit_is_gone_when_the_driver_is_unloaded(machine: Machine, modern: FakeDriver) -> None:
    """
    The next load knows nothing of it.
    """
    machine.limit(LEAF, 512)
    machine.host.kill()
    modern.unload()
    modern.load()
    machine.host = machine.process("/")

    assert error(n.NVML_ERROR_NOT_FOUND) == machine.read(LEAF)


@pytest.mark.parametrize(
    ("path", "soft_mib", "hard_mib", "expected"),
    [
        pytest.param("ROOT" + LEAF, 0, 16384, None, id="all of the device"),
        pytest.param("ROOT" + LEAF, 2, 1, error(n.NVML_ERROR_INVALID_ARGUMENT), id="soft above hard"),
        pytest.param("ROOT" + LEAF, 0, 16385, error(n.NVML_ERROR_INVALID_ARGUMENT), id="more than the device has"),
        pytest.param("", 0, 1, error(n.NVML_ERROR_INVALID_ARGUMENT), id="no path"),
        pytest.param("ROOT/missing", 0, 1, error(n.NVML_ERROR_OPERATING_SYSTEM), id="missing folder"),
        pytest.param("/usr", 0, 1, error(n.NVML_ERROR_OPERATING_SYSTEM), id="not a cgroup"),
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


def test_only_root_sets_a_limit(machine: Machine) -> None:
    """
    Others lack the permission.
    """
    machine.host.ask("os.seteuid(65534)")

    assert error(n.NVML_ERROR_NO_PERMISSION) == machine.limit(LEAF, 512)


@pytest.mark.parametrize("version", [pytest.param("570.124.06", id="570"), pytest.param("610.20.01", id="610")])
def test_older_driver_has_no_limits(start: Start, driver: FakeDriver, cgroups: StandInCgroups, version: str) -> None:
    """
    Both calls are not supported.
    """
    driver.load(version=version)
    machine = Machine(start, cgroups)

    assert [error(n.NVML_ERROR_NOT_SUPPORTED)] * 2 == [machine.limit(LEAF, 512), machine.read(LEAF)]


def test_older_library_lacks_the_functions(start: Start, container: Container, cgroups: StandInCgroups) -> None:
    """
    A program that looks them up does not find them.
    """
    folder = container.build / "fake_driver"
    process = start(**cgroups.variables("/"), LD_LIBRARY_PATH=f"{folder}/12080:{folder}")

    assert error(n.NVML_ERROR_FUNCTION_NOT_FOUND) == process.ask(f"limits('{cgroups.root}')")


def test_node_with_cgroup_v1_has_no_limits(start: Start, modern: FakeDriver, tmp_path: Path) -> None:
    """
    The driver needs version 2.
    """
    process = start(FAKE_DRIVER_CGROUP_ROOT=str(tmp_path))

    assert error(n.NVML_ERROR_NOT_SUPPORTED) == process.ask(f"limits('{tmp_path}')")
