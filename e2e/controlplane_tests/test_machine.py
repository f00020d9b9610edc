"""
A machine without a cluster: its private parts, and that it leaves nothing behind.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from controlplane.machines.machine import Description, Machine, MachineError, Service
from controlplane_tests.machine_state import Footprint, groups
from minicluster.pids import start_ticks
from testbed.processes import commands_with

pytestmark = pytest.mark.usefixtures("able_machine")


def _machine(folder: Path) -> Machine:
    folder.mkdir(exist_ok=True)
    return Machine(
        folder, Description("one", f"hami-test-{os.getpid()}", "", ("/usr/local/own",), (str(folder.parent),))
    )


def _within(seconds: float, holds: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """Yield a running machine, and remove it afterwards."""
    found = _machine(tmp_path / "one")
    found.start()
    yield found
    if found.folder.exists():
        found.remove()


def _sleep(name: str, seconds: int = 1000) -> Service:
    return Service(name, ("sleep", str(seconds)))


def test_machine_has_its_own_name_processes_and_network(machine: Machine) -> None:
    """Its first process has pid 1, and it has no interface of this machine."""
    assert "one\n" == machine.run(["hostname"])
    assert "1" in machine.run(["sh", "-c", "cd /proc && echo [0-9]*"]).split()[0]
    assert ["lo"] == machine.run(["ls", "/sys/class/net"]).split()


def test_private_folders_are_the_machines_and_the_rest_is_this_machines(machine: Machine) -> None:
    """A private folder may be missing on this machine, and the entries beside it are visible."""
    machine.run(["sh", "-c", "echo hello > /usr/local/own/file; echo hello > /run/file"])

    assert "hello\n" == machine.path("/usr/local/own/file").read_text()
    assert "hello\n" == machine.path("/var/run/file").read_text()
    assert not Path("/usr/local/own").exists()
    assert not Path("/run/file").exists()
    beside = {path.name for path in Path("/usr/local").iterdir()}
    assert {"own", *beside} == set(machine.run(["ls", "-A", "/usr/local"]).split())


def test_visible_folder_below_a_private_one_is_visible(machine: Machine) -> None:
    """The machine's folder is in /tmp here, which is private."""
    machine.path("/tmp/file").write_text("its own")

    assert "its own" == machine.run(["cat", "/tmp/file"])
    assert "machine.json" in machine.run(["ls", str(machine.folder)])


def test_path_outside_private_folders_is_rejected(machine: Machine) -> None:
    """The error lists them."""
    with pytest.raises(ValueError, match="/etc/passwd is not in a private folder of one; these are /run, /tmp, /usr"):
        machine.path("/etc/passwd")


def test_kernel_is_tuned_for_the_machine_only(machine: Machine) -> None:
    """A kubelet changes these settings, and those of this machine stay."""
    before = Path("/proc/sys/kernel/panic").read_text()

    machine.run(["sh", "-c", "echo 77 > /proc/sys/kernel/panic"])

    assert "77\n" == machine.run(["cat", "/proc/sys/kernel/panic"])
    assert before == Path("/proc/sys/kernel/panic").read_text()


def test_services_are_started_once_and_again_on_request(machine: Machine) -> None:
    """Running services are not affected, and killed ones do not restart by themselves."""
    machine.serve([_sleep("a", 1001), _sleep("b", 1002)])
    assert _within(5, lambda: None not in machine.services().values())
    before = machine.services()

    machine.kill_service("a")
    assert {"a": None, "b": before["b"]} == machine.services()

    machine.serve_again()
    assert before["b"] == machine.services()["b"]
    assert machine.services()["a"] not in {None, before["a"]}


def test_error_of_a_machine_that_is_off_has_the_end_of_its_log(machine: Machine) -> None:
    """One of its services has no program."""
    machine.serve([Service("absent", ("/no/such/program",))])
    assert _within(5, lambda: machine.pid is None)

    with pytest.raises(MachineError, match=r"the end of its log:\n.*/no/such/program"):
        machine.living_pid()


def test_power_cut_kills_all_processes_and_loses_volatile_files(machine: Machine) -> None:
    """It also kills a process that left its session, like a daemon."""
    machine.run(
        ["sh", "-c", "setsid sleep 4242 >/dev/null 2>&1 & echo kept > /usr/local/own/file; echo lost > /run/file"]
    )
    inside = {int(line) for line in (groups(machine.description.cgroup)[0] / "cgroup.procs").read_text().split()}

    machine.kill()

    assert machine.pid is None
    assert not [pid for pid in inside if start_ticks(pid) is not None]
    machine.start()
    assert "kept\n" == machine.run(["cat", "/usr/local/own/file"])
    with pytest.raises(MachineError, match="/run/file"):
        machine.run(["cat", "/run/file"])


def test_removed_machine_leaves_nothing(tmp_path: Path) -> None:
    """There is no mount, interface, rule, group, folder or process."""
    before = Footprint.now()
    machine = _machine(tmp_path / "one")
    machine.start()
    machine.serve([_sleep("a")])

    machine.remove()

    assert before == Footprint.now()
    assert [] == groups(machine.description.cgroup)
    assert [] == commands_with(str(tmp_path))
    assert not machine.folder.exists()


_OWNER = """
import os, sys, time
from pathlib import Path
from controlplane_tests.test_machine import _machine
machine = _machine(Path(sys.argv[1]))
machine.start()
if sys.argv[2] == "let live":
    machine.let_live()
print(os.getpid(), flush=True)
time.sleep(1000)
"""


@pytest.mark.parametrize("wish", ["end with it", "let live"])
def test_machine_ends_with_its_owner_unless_it_may_outlive_it(tmp_path: Path, wish: str) -> None:
    """The owner is killed, so it cannot clean up."""
    folder = tmp_path / "one"
    argv = [sys.executable, "-c", _OWNER, str(folder), wish]
    with subprocess.Popen(argv, env=os.environ, stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        owner.stdout.readline()
        group = f"hami-test-{owner.pid}"
        machine = Machine(folder, Description("one", group, ""))
        assert machine.pid is not None
        owner.send_signal(signal.SIGKILL)

    if wish == "let live":
        assert not _within(1.5, lambda: machine.pid is None)
    else:
        assert _within(10, lambda: machine.pid is None)
    machine.remove()


def test_error_of_a_command_has_its_output(machine: Machine) -> None:
    """It also has machine, command and status."""
    with pytest.raises(MachineError, match=r"one: ls /missing exited with 2: .*No such file"):
        machine.run(["ls", "/missing"])


def test_machine_that_cannot_boot_says_why(tmp_path: Path) -> None:
    """The message has the end of its log."""
    machine = Machine(tmp_path, Description("one", f"hami-test-{os.getpid()}", "", visible=("/missing",)))

    with pytest.raises(MachineError, match=r"(?s)one did not boot.*'/missing'"):
        machine.start()
    machine.remove()
