"""
What a client gets: multiprocessors, contexts, and its row in the lists.
"""

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress

import pytest
from containers import GPU_A, GPU_B, HERE, Container
from fake_driver.mps import table
from fake_driver.mps.commands import CLIENT_COLUMNS
from hardware.mps.node import MAX_CONNECTIONS, SUCCESS, TERMINATED, Node, needs_root, refusal, until
from hardware.process import Start

from testbed.driver.mps import MpsControl


@pytest.mark.parametrize(("percentage", "expected"), [(50, 54), (25, 26), (75, 80), (10, 10), (1, 2), (None, 108)])
def test_percentage_is_that_of_the_multiprocessors_made_even(node: Node, percentage: int | None, expected: int) -> None:
    """
    Rounded down. A namespace without one has the whole GPU, whatever its server has.
    """
    node.control.ask("server", "set", "s", "--active-thread-percentage=50")
    node.control.add_namespace("s", "n", percentage)

    assert expected == node.client("s", "n").ask("multiprocessors()")


@pytest.mark.parametrize(("own", "expected"), [("25", 26), ("100", 54), ("0", 54), ("x", 54)])
def test_client_may_have_less_than_its_namespace_and_never_more(node: Node, own: str, expected: int) -> None:
    """
    The smaller of its variable and the namespace's percentage.
    """
    node.control.add_namespace("s", "n", 50)

    client = node.client("s", "n", CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=own)
    assert expected == client.ask("multiprocessors()")


def test_kernel_takes_longer_with_less_of_the_device(node: Node) -> None:
    """
    Unless it uses no more than the client has.
    """
    node.control.add_namespace("s", "half", 50)
    client = node.client("s", "half")

    assert [200, 100, 200] == client.ask_all(
        "busy_ms_for(100)", "busy_ms_for(100, part=50)", "busy_ms_for(100, part=100)"
    )


@pytest.mark.parametrize(
    ("percentages", "rates"),
    [
        pytest.param((50, 25, 25), [1, 1, 1], id="fit"),
        pytest.param((75, 75), [0.5, 0.5], id="one at a time"),
        pytest.param((50, 50, 50), [0.67, 0.67, 0.67], id="two at a time"),
        pytest.param((None, None), [0.5, 0.5], id="without limits"),
    ],
)
def test_clients_run_side_by_side_as_far_as_they_fit(
    node: Node, percentages: tuple[int | None, ...], rates: list[float]
) -> None:
    """
    A percentage is a ceiling and no reservation. Who does not fit beside the others waits for its turn.
    """
    names = [f"n{number}" for number in range(len(percentages))]
    for name, percentage in zip(names, percentages, strict=True):
        node.control.add_namespace("s", name, percentage)
    clients = [node.client("s", name) for name in names]
    assert {SUCCESS} == {client.ask("launch(60000)") for client in clients}

    found = node.process("typo").ask(f"rates({[client.process.pid for client in clients]})")
    assert rates == pytest.approx(found, abs=0.02)


_WITHOUT_A_VARIABLE = """
import os, subprocess, sys
from hardware.mps_session import *
assert subprocess.run(["mount", "-t", "tmpfs", "none", "/run"]).returncode == 0
control = sys.argv[1]
subprocess.run([control, "-d", "-p", "3"], check=True)
say([sorted(os.listdir("/run/nvidia-mps")), join(), subprocess.getoutput(f"{control} client get {os.getpid()} server")])
subprocess.run([control, "quit"])
"""


@needs_root
def test_folder_of_pipes_has_a_default(control: MpsControl, container: Container) -> None:
    """
    In a mount namespace, because the folder is the machine's.
    """
    program = "from client import *\n" + _WITHOUT_A_VARIABLE
    path = {"PYTHONPATH": f"{HERE}:{HERE / 'preload'}", "CUDA_MPS_LOG_DIRECTORY": str(control.log)}
    command = ["unshare", "--mount", sys.executable, "-c", program, str(control.program)]
    done = subprocess.run(
        command, env=container.environ(preload=False, **path), capture_output=True, text=True, check=False
    )
    if "unshare" in done.stderr or "AssertionError" in done.stderr:
        pytest.skip(f"no mount namespace can be made: {done.stderr}")

    assert [["control"], [SUCCESS, SUCCESS], "uid_0"] == json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("missing", ["folder", "daemon"])
def test_without_a_daemon_a_program_runs_unlimited_and_says_nothing(node: Node, missing: str) -> None:
    """
    In the mode DEFAULT: its folder is missing, or the daemon was killed.
    """
    node.control.add_namespace("s", "n", 25)
    if missing == "daemon":
        os.kill(node.control.pid, signal.SIGKILL)
    program = node.client("s", "n" if missing == "daemon" else "typo", CUDA_MPS_ACTIVE_THREAD_PERCENTAGE="10")

    assert 108 == program.ask("multiprocessors()")
    program.process.terminate()
    assert "" == program.process.communicate()[1]


def test_device_has_sixty_contexts_of_clients(node: Node) -> None:
    """
    Of all clients together. Another device has as many.
    """
    first, second = node.client("s"), node.client("s")

    assert [SUCCESS] * 40 == first.ask("[use() for _ in range(40)]")
    assert [SUCCESS] * 18 + [MAX_CONNECTIONS] == second.ask("[use() for _ in range(19)]")
    assert SUCCESS == second.ask("use(1)")
    first.kill()
    until(lambda: len(node.control.rows("client", "list")) == 2)
    assert SUCCESS == second.ask("use()")


def test_list_of_clients_has_a_row_for_each_device(node: Node) -> None:
    """
    A table cuts pids that csv has whole.
    """
    client = node.client("s")
    client.ask("use(1)")
    pid = str(client.process.pid)

    rows = node.control.rows("client", "list", "--server=s")
    assert [[pid, "s", uuid, "s/default (0)"] for uuid in (GPU_A, GPU_B)] == [row[:4] for row in rows]
    assert rows[0][4].startswith("python")
    assert ["PID", "SERVER", "DEVICE", "NAMESPACE", "COMMAND"] == node.control.ask("client", "list").split()[:5]
    assert "s" == node.control.ask("client", "get", pid, "server")
    assert "316..." == table.write({"PID": CLIENT_COLUMNS["PID"]}, [("3165259",)], "table,noheader")


_IN_ANOTHER_PID_NAMESPACE = """
import os, signal, sys
from namespaces import fork_into_pid_namespace
try:
    child = fork_into_pid_namespace()
except OSError:
    sys.exit(77)
if child == 0:
    os.execv(sys.argv[1], sys.argv[1:])
os.waitpid(child, 0)
"""


def test_client_of_another_pid_namespace_has_pid_0(control: MpsControl, start: Start) -> None:
    """
    A daemon that is not in the host's namespace cannot terminate it.
    """
    program = [sys.executable, "-c", _IN_ANOTHER_PID_NAMESPACE, str(control.program)]
    environment = control.variables | {"PYTHONPATH": str(HERE / "preload")}
    daemon = subprocess.Popen([*program, "-f", "-p", "3"], env=environment, stdin=subprocess.PIPE)
    with suppress(AssertionError):
        until(lambda: (control.pipe / "control").exists() or daemon.poll() is not None)
    if daemon.poll() == 77:
        pytest.skip("no pid namespace can be made")
    control.ask("server", "create", "s")
    client = Node(control, start).client("s")

    assert ["0"] == [row[0] for row in control.rows("client", "list")]
    assert "not found" in refusal(control, "client", "terminate", str(client.process.pid))
    assert "not found" in refusal(control, "client", "terminate", "0")
    control.ask("quit")
    daemon.communicate(timeout=20)


def test_terminating_a_client_waits_for_its_work(node: Node) -> None:
    """
    It launches nothing more. Afterwards it may be killed without harm.
    """
    client = node.client("s")
    client.ask("launch(1500)")

    node.control.ask("client", "terminate", str(client.process.pid))

    assert 1500 == node.process("typo").ask(f"busy_ms({client.process.pid}, 0, 1 << 40)")
    assert TERMINATED == client.ask("launch(1)")
    assert [] == node.control.rows("client", "list")
    client.kill()
    assert [SUCCESS, SUCCESS] == node.process("s").ask("join()")
