"""
NVIDIA's MPS, protocol 3: its daemon, and what its clients get. Each row of the table in fake_driver/README.md is here.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from containers import GPU_A, GPU_B, HERE, Container
from fake_driver.mps import table
from fake_driver.mps.commands import CLIENT_COLUMNS
from hardware.process import Process, Start

from testbed.hardware import FIRST_DRIVER_WITH_MPS, FakeDriver, StandInCgroups
from testbed.mps import MpsCommandError, MpsControl, install_mps, mps_control

SUCCESS, UNAVAILABLE, NO_DEVICE, ILLEGAL_ADDRESS, NOT_PERMITTED = 0, 46, 100, 700, 800
RPC_FAILURE, SERVER_NOT_READY, MAX_CONNECTIONS, TERMINATED = 806, 807, 809, 810
TENANT = 60000
"""A user without rights."""
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to act for another user")


class Node:
    """A node with MPS: its daemon, and processes on it."""

    def __init__(self, control: MpsControl, start: Start) -> None:
        self.control, self._start = control, start

    def process(self, *folders: str, init: bool = False, **variables: str) -> Process:
        """Return a process whose folder of pipes is the daemon's, or one below it. Its contexts take nothing."""
        pipe = str(self.control.pipe.joinpath(*folders))
        return self._start(init=init, **({"CUDA_MPS_PIPE_DIRECTORY": pipe} | variables))

    def client(self, *folders: str, **variables: str) -> Process:
        """Return a process that has become a client, with a context on GPU A."""
        process = self.process(*folders, init=False, **variables)
        assert [SUCCESS, SUCCESS] == process.ask("join()")
        return process


@pytest.fixture
def control(container: Container, driver: FakeDriver) -> Iterator[MpsControl]:
    """A daemon that is not started yet, of a driver that has protocol 3."""
    driver.load(version=FIRST_DRIVER_WITH_MPS)
    program = container.build / "fake_driver/nvidia-cuda-mps-control"
    with mps_control(program, FAKE_DRIVER_DIR=str(driver.folder)) as made:
        yield made


@pytest.fixture
def node(control: MpsControl, start: Start) -> Node:
    """A node with a daemon for one user, and a server `s`."""
    control.start()
    control.ask("server", "create", "s")
    return Node(control, start)


def refusal(control: MpsControl, *words: str) -> str:
    """Return why a command fails."""
    with pytest.raises(MpsCommandError) as caught:
        control.ask(*words)
    return str(caught.value)


def until(is_so: Callable[[], Any]) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline, "not within a minute"
        time.sleep(0.05)


def commands_of(control: MpsControl, uid: int, *words: str) -> "subprocess.CompletedProcess[str]":
    """Run a command as another user."""
    program = "import os, sys\nsys.argv[:1] = []\nfrom fake_driver.mps.__main__ import main\nos.setuid({})\nmain()"
    return subprocess.run(
        [sys.executable, "-c", program.format(uid), str(control.program), *words],
        env=control.variables | {"PYTHONPATH": str(HERE)},
        capture_output=True,
        text=True,
        check=False,
    )


# --- the daemon ------------------------------------------------------------------------------------------------------


def test_daemon_says_where_clients_connect(control: MpsControl) -> None:
    """
    It is a process in the background, with sockets and a log, until `quit`.
    """
    said = control.start()

    assert f"To connect CUDA applications to this daemon, set CUDA_MPS_PIPE_DIRECTORY={control.pipe}" == said
    assert (control.pipe / "control").is_socket()
    assert (control.log / "control.log").is_file()
    pid = control.pid
    control.ask("quit")
    until(lambda: not Path(f"/proc/{pid}").exists() or "Z" in Path(f"/proc/{pid}/stat").read_text())
    assert 1 == control.run("server", "list").returncode


def test_protocol_3_must_be_chosen(control: MpsControl) -> None:
    """
    By an option, or by a variable, which wins. Commands follow the daemon that runs.
    """
    assert 1 == control.run("-d").returncode
    assert 1 == control.run("-d", "-p", "3", CUDA_MPS_PROTOCOL_VERSION="2").returncode
    assert 0 == control.run("-d", "-p", "2", CUDA_MPS_PROTOCOL_VERSION="3").returncode
    assert [0, 0] == [control.run(*options, "server", "list").returncode for options in ((), ("-p", "2"))]


def test_older_driver_has_no_protocol_3(control: MpsControl, driver: FakeDriver) -> None:
    """
    Its program does not know the option, and its help names no modules.
    """
    assert "namespace" in control.run("-p", "3", "-h").stdout
    driver.load(version="610.43.03")

    assert 0 != control.run("-d", "-p", "3").returncode
    assert "namespace" not in control.run("-h").stdout


def test_second_daemon_of_a_folder_is_refused(node: Node) -> None:
    """
    The first one goes on.
    """
    assert "An instance of this daemon is already running" == refusal(node.control, "-d", "-p", "3")
    assert ["s"] == [row[0] for row in node.control.rows("server", "list")]


def test_daemon_in_the_foreground_ends_with_its_input(control: MpsControl) -> None:
    """
    It runs the commands there. `quit` ends it too.
    """
    (control.folder / "x").mkdir()
    created = control.run("-f", "-p", "3", commands="server create s\nserver list --format=csv,noheader\n")
    quit_early = control.run("-f", "-p", "3", commands="quit\nserver list\n")

    assert (0, "s") == (created.returncode, created.stdout.splitlines()[1].split(",")[0])
    assert 0 == quit_early.returncode
    assert 1 == control.run("server", "list").returncode


def test_path_that_is_too_long_fails_without_a_log(control: MpsControl) -> None:
    """
    One of 117 characters was tried.
    """
    long = f"{control.folder}/".ljust(117, "x")
    done = control.run("-d", "-p", "3", CUDA_MPS_PIPE_DIRECTORY=long)

    assert done.returncode == 1
    assert "Failed to initialize MPS control daemon" == done.stdout.strip()
    assert not control.log.exists()


def test_file_configures_servers_and_namespaces(control: MpsControl, tmp_path: Path) -> None:
    """
    A server's own values are those of its namespace `default` alone.
    """
    file = tmp_path / "mps.toml"
    file.write_text(
        'schema_version = "1.0"\n[servers.shared]\nallowed_devices = "GPU-aaaaaaaa"\n'
        'active_thread_percentage = "50"\npinned_memory_limit = "10G"\n'
        '[servers.shared.namespaces.small]\nactive_thread_percentage = "30"\npinned_memory_limit = "20G"\n'
        "[servers.shared.namespaces.free]\n"
    )
    control.start("-a", str(file))

    rows = control.rows("namespace", "list", "--server=shared")
    assert [
        ["free", "shared", "unlimited", "100.00"],
        ["small", "shared", "20G", "30.00"],
        ["default", "shared", "10G", "50.00"],
    ] == [[*row[:2], *row[3:5]] for row in rows]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        pytest.param("[servers.s]\nweight = 1", "Unknown key 'servers.s.weight'", id="server key"),
        pytest.param("[servers.s.namespaces.n]\nuid = 1", "Unknown key 'servers.s.namespaces.n.uid'", id="namespace"),
        pytest.param("[servers.S]", "Invalid server name 'S'", id="name"),
        pytest.param('[servers.s]\nactive_thread_percentage = "0"', "Invalid active thread percentage '0'", id="value"),
        pytest.param("[servers.s]\nlocality_domains = 1", "'servers.s.locality_domains' is a boolean", id="type"),
        pytest.param("[servers", "Invalid configuration", id="not TOML"),
    ],
)
def test_file_with_an_error_starts_no_daemon(control: MpsControl, tmp_path: Path, text: str, reason: str) -> None:
    """
    Every unknown key is one.
    """
    (tmp_path / "mps.toml").write_text(text)

    assert reason in refusal(control, "-d", "-p", "3", "-a", str(tmp_path / "mps.toml"))
    assert "Cannot read the configuration" in refusal(control, "-d", "-p", "3", "-a", str(tmp_path / "other.toml"))
    assert not (control.pipe / "control").exists()


@pytest.mark.parametrize("ends", ["quit", "kill"])
def test_restarted_daemon_has_lost_what_commands_made(node: Node, ends: str) -> None:
    """
    Servers and namespaces, also if it was killed. The folders of their sockets are gone.
    """
    folder = node.control.add_namespace("s", "n", 25)
    if ends == "quit":
        node.control.ask("quit")
    else:
        os.kill(node.control.pid, signal.SIGKILL)
    until(lambda: node.control.run("server", "list").returncode != 0)
    node.control.start()

    assert [] == node.control.rows("server", "list")
    assert not folder.exists()


# --- servers ---------------------------------------------------------------------------------------------------------


def test_server_is_created_listed_and_deleted(node: Node) -> None:
    """
    The list has name, user, process, status, folder, devices and contexts.
    """
    node.control.ask("server", "create", "training", f"--allowed-devices={GPU_A}")
    until(lambda: "Ready" == node.control.ask("server", "get", "training", "status"))
    [row] = node.control.rows("server", "list", "training")

    pid = node.control.ask("server", "get", "training", "pid")
    assert ["training", str(os.geteuid()), pid, "Ready", f"{node.control.pipe}/training", GPU_A, "-"] == row
    assert "nvidia-cuda-mps" in Path(f"/proc/{pid}/comm").read_text()
    node.control.ask("server", "delete", "training")
    assert "Server 'training' not found." == refusal(node.control, "server", "list", "training")


@pytest.mark.parametrize("name", ["Upper", "a-b", "", "a" * 65, "a/b"])
def test_names_are_lowercase_letters_digits_and_underscores(node: Node, name: str) -> None:
    """
    Of servers and namespaces, and at most 64 of them.
    """
    assert f"Invalid server name '{name}'" in refusal(node.control, "server", "create", name)
    assert f"Invalid namespace name '{name}'" in refusal(node.control, "namespace", "create", name, "--server=s")


def test_server_with_an_absent_device_dies_and_its_clients_run_free(node: Node) -> None:
    """
    Its creation succeeds. Only the list, and its log, show that it is gone.
    """
    assert "" == node.control.ask("server", "create", "absent", "--allowed-devices=GPU-absent")
    until(lambda: "absent" not in [row[0] for row in node.control.rows("server", "list")])

    assert "no CUDA-capable device is detected" in (node.control.log / "absent/server.log").read_text()
    assert 108 == node.client("absent").ask("multiprocessors()")


def test_server_shows_its_clients_only_its_devices(node: Node) -> None:
    """
    A program that sees none of them has no device.
    """
    node.control.ask("server", "create", "b", "--allowed-devices=1")

    seen = "[start_mps(), multiprocessors(0), Cuda().library.cuDeviceGetCount(byref(x := c_int())), x.value]"
    assert [SUCCESS, 108, 0, 1] == node.process("b").ask(seen)
    assert NO_DEVICE == node.process("b", CUDA_VISIBLE_DEVICES="0").ask("start_mps()")
    assert SUCCESS == node.process("b", CUDA_VISIBLE_DEVICES=GPU_B).ask("start_mps()")


def test_server_is_started_for_a_user_of_the_main_socket(node: Node) -> None:
    """
    Once, however many come at the same time. Its name has the user's number.
    """
    clients = [node.process() for _ in range(3)]
    for client in clients:
        client.send("join()")
    assert [[SUCCESS, SUCCESS]] * 3 == [client.answer() for client in clients]

    name = f"uid_{os.geteuid()}"
    assert {f"{name}/default (0)"} == {row[3] for row in node.control.rows("client", "list")}
    assert ["s", name] == [row[0] for row in node.control.rows("server", "list")]


@needs_root
def test_in_multiuser_mode_servers_for_others_are_refused(control: MpsControl) -> None:
    """
    `--uid=0` alone is allowed. Without the option a server belongs to its creator, who may be any user.
    """
    control.start("-m")

    assert "only --uid=0 is allowed" in refusal(control, "server", "create", "s", "--uid=1000")
    assert "" == control.ask("server", "create", "s", "--uid=0")
    assert 0 == commands_of(control, TENANT, "server", "create", "theirs").returncode
    assert [["s", "0"], ["theirs", str(TENANT)]] == [row[:2] for row in control.rows("server", "list")]


@needs_root
def test_multiuser_mode_needs_root(control: MpsControl, container: Container) -> None:
    """
    Root of the node is who owns its folder.
    """
    readable = FakeDriver(control.folder / "hardware")
    readable.folder.mkdir()
    readable.load(version=FIRST_DRIVER_WITH_MPS)
    program = install_mps(control.folder, container.build / "fake_driver")
    theirs = MpsControl(program, control.folder, {"FAKE_DRIVER_DIR": str(readable.folder)})

    refused = commands_of(theirs, TENANT, "-d", "-p", "3", "-m")

    assert (1, True) == (refused.returncode, "multiuser mode requires root" in refused.stderr)


def test_server_keeps_the_driver_loaded(node: Node, driver: FakeDriver) -> None:
    """
    So a driver is not upgraded beneath it.
    """
    until(driver.clients)
    assert ["nvidia-cuda-mps"] == [client.command for client in driver.clients()]

    node.control.ask("server", "delete", "s")
    until(lambda: not driver.clients())
    driver.unload()


def test_nvml_lists_the_server_as_computing_and_its_clients_apart(node: Node) -> None:
    """
    The server has memory on a device from its first client there on.
    """
    client, host = node.process("s"), node.process(init=True)
    assert [SUCCESS, []] == [client.ask("start_mps()"), host.ask("listed('Compute')")]
    assert SUCCESS == client.ask("use()")
    server = int(node.control.ask("server", "get", "s", "pid"))

    assert [[server, 30]] == host.ask("listed('Compute')")
    assert [[client.process.pid, 0]] == host.ask("listed('MPSCompute')")


def test_exclusive_mode_keeps_away_who_is_no_client(node: Node, driver: FakeDriver) -> None:
    """
    Without a server the first process has the device.
    """
    driver.set(GPU_A, compute_mode=3)
    stranger = node.process("typo")
    assert [[SUCCESS, SUCCESS], SUCCESS] == stranger.ask_all("join()", "use()")
    assert [SUCCESS, UNAVAILABLE] == node.process("s").ask("join()")
    stranger.kill()

    clients = [node.client("s"), node.client("s")]
    assert [SUCCESS, UNAVAILABLE] == node.process("typo").ask("join()")
    assert [SUCCESS, SUCCESS] == node.process("typo").ask("join(1)")
    assert [[SUCCESS] * 2] * 2 == [client.ask("[launch(1), finish()]") for client in clients]


# --- namespaces ------------------------------------------------------------------------------------------------------


@needs_root
def test_compute_mode_is_set_by_root(start: Start) -> None:
    """
    Everybody reads it. A mode that does not exist is refused.
    """
    process = start()
    assert process.ask("n.nvmlDeviceSetComputeMode(gpu(0), n.NVML_COMPUTEMODE_PROHIBITED)") is None
    assert [SUCCESS, UNAVAILABLE] == process.ask("join()")
    assert {"error": 2} == process.ask("n.nvmlDeviceSetComputeMode(gpu(0), 7)")
    process.ask("become(60000)")

    assert 2 == process.ask("n.nvmlDeviceGetComputeMode(gpu(0))")
    assert {"error": 4} == process.ask("n.nvmlDeviceSetComputeMode(gpu(0), 0)")


def test_namespace_has_a_folder_and_limits(node: Node) -> None:
    """
    A field is asked for with dashes or with underscores.
    """
    folder = node.control.add_namespace("s", "n", 25)
    get = ("namespace", "get", "n", "s")

    assert node.control.pipe / "s/n" == folder
    assert (folder / "control").is_socket()
    assert str(folder) == node.control.ask(*get, "pipe_directory")
    assert "25.00" == node.control.ask(*get, "active-thread-percentage")
    assert "unlimited" == node.control.ask(*get, "pinned-memory-limit")
    assert "Namespace 'n' already exists in server 's'." == refusal(
        node.control, "namespace", "create", "n", "--server=s"
    )
    node.control.ask("namespace", "delete", "n", "--server=s")
    assert not folder.exists()


@pytest.mark.parametrize(
    ("option", "reason"),
    [
        pytest.param((), "give at least one of", id="none"),
        pytest.param(("--active-thread-percentage=0",), "Invalid active thread percentage '0'", id="0"),
        pytest.param(("--active-thread-percentage=101",), "Invalid active thread percentage '101'", id="101"),
        pytest.param(("--pinned-memory-limit=4",), "Invalid pinned memory limit '4'", id="no unit"),
        pytest.param(("--weight=4",), "invalid option '--weight=4'", id="unknown"),
    ],
)
def test_setting_checks_its_options(node: Node, option: tuple[str, ...], reason: str) -> None:
    """
    At least one is needed.
    """
    assert reason in refusal(node.control, "namespace", "set", "default", "--server=s", *option)


def test_namespace_with_a_client_is_not_changed_and_not_deleted(node: Node) -> None:
    """
    With `--force` it is deleted, and its clients are terminated.
    """
    node.control.add_namespace("s", "n")
    client = node.client("s", "n")

    change = ("namespace", "set", "n", "--server=s", "--active-thread-percentage=50")
    assert "Namespace 'n' has active clients." == refusal(node.control, *change)
    assert "Namespace 'n' has active clients." == refusal(node.control, "namespace", "delete", "n", "--server=s")
    assert "Server 's' has active clients." == refusal(node.control, "server", "delete", "s")
    node.control.ask("namespace", "delete", "n", "--server=s", "--force")
    assert TERMINATED == client.ask("launch(1)")


def test_list_of_namespaces_has_their_servers_status(node: Node) -> None:
    """
    A table has headings in capitals.
    """
    node.control.ask("namespace", "create", "n", "--server=s")
    until(lambda: "Ready" == node.control.ask("server", "get", "s", "status"))
    lines = node.control.ask("namespace", "list", "--server=s").splitlines()

    assert lines[0].split("  ")[0] == "NAME"
    assert "SERVER STATUS PINNED MEMORY LIMIT ACTIVE THREAD PERCENTAGE" in lines[0]
    assert ["n", "default"] == [line.split()[0] for line in lines[1:]]
    assert ["n", "s", "Ready", "unlimited", "100.00"] == lines[1].split()[:5]


def test_rejected_command_fails_and_among_others_does_not(node: Node) -> None:
    """
    The exit status of commands on stdin only says that the daemon was there.
    """
    assert "Invalid command 'sm-partition list'" in refusal(node.control, "sm-partition", "list")
    done = node.control.run(commands="server list x\nserver get s name\n")

    assert (0, ["Server 'x' not found.", "s"]) == (done.returncode, done.stdout.splitlines())


# --- owners ----------------------------------------------------------------------------------------------------------


@needs_root
def test_tenant_cannot_change_its_namespace_and_root_can(control: MpsControl, start: Start) -> None:
    """
    By the socket in the folder that its container has. Everybody may list.
    """
    control.start("-m")
    control.ask("server", "create", "s")
    folder = control.add_namespace("s", "n", 25)
    change = ("namespace", "set", "n", "--server=s", "--active-thread-percentage=100")
    leaf = {"CUDA_MPS_PIPE_DIRECTORY": str(folder)}

    refused = commands_of(control, TENANT, *change)
    listed = commands_of(control, TENANT, "namespace", "list", "--format=csv,noheader")
    others = [
        commands_of(control, TENANT, *words.split()).stdout
        for words in ("namespace delete n --server=s", "server delete s", "quit", "namespace create m --server=s")
    ]

    text = "Insufficient privileges for UID 60000. 'NAMESPACE SET' requires server owner."
    assert (1, text) == (refused.returncode, refused.stdout.strip())
    assert ["n", "default"] == [line.split(",")[0] for line in listed.stdout.splitlines()]
    assert all(answer.startswith("Insufficient privileges for UID 60000. '") for answer in others)
    tenant = Node(control, start).process("s", "n")
    tenant.ask(f"become({TENANT})")
    assert [[SUCCESS, SUCCESS], 26] == tenant.ask_all("join()", "multiprocessors()")
    tenant.kill()
    until(lambda: not control.rows("client", "list"))
    assert 0 == subprocess.run([control.program, *change], env=control.variables | leaf, check=False).returncode
    assert 108 == Node(control, start).client("s", "n").ask("multiprocessors()")


@needs_root
@pytest.mark.parametrize("folders", [(), ("s",), ("s", "default")])
def test_other_user_is_not_permitted_without_multiuser_mode(node: Node, folders: tuple[str, ...]) -> None:
    """
    Also root on a server of another user. On the main socket each user has a server.
    """
    other = node.process(*folders)
    other.ask(f"become({TENANT})")
    node.control.ask("server", "create", "theirs", f"--uid={TENANT}")

    assert (NOT_PERMITTED if folders else SUCCESS) == other.ask("start_mps()")
    assert NOT_PERMITTED == node.process("theirs").ask("start_mps()")


# --- clients ---------------------------------------------------------------------------------------------------------


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


# --- faults ----------------------------------------------------------------------------------------------------------


def test_client_that_is_killed_at_work_faults_the_others_of_its_device(node: Node) -> None:
    """
    New ones are refused until those have left. A client of another device goes on.
    """
    killed, other, elsewhere = node.client("s"), node.client("s"), node.process("s")
    assert [SUCCESS, SUCCESS] == elsewhere.ask("join(1)")
    assert SUCCESS == killed.ask("launch(20000)")
    killed.kill()

    until(lambda: ILLEGAL_ADDRESS == other.ask("launch(1)"))
    assert [ILLEGAL_ADDRESS, SUCCESS] == [other.ask("finish()"), elsewhere.ask("finish()")]
    assert SERVER_NOT_READY == node.process("s").ask("start_mps()")
    assert "Fault" == node.control.ask("server", "get", "s", "status")
    other.kill()
    until(lambda: SUCCESS == node.process("s").ask("start_mps()"))
    assert "Ready" == node.control.ask("server", "get", "s", "status")


@pytest.mark.parametrize("recycles", ["command", "kill"])
def test_client_that_is_killed_at_work_alone_makes_later_ones_hang(node: Node, recycles: str) -> None:
    """
    In cuInit, until the server is recycled. The lists look well.
    """
    killed = node.client("s")
    killed.ask("launch(20000)")
    killed.kill()
    until(lambda: not node.control.rows("client", "list"))
    later = node.process("s")
    later.send("start_mps()")

    assert not later.has_answered(1)
    assert ["Ready"] == [row[3] for row in node.control.rows("server", "list")]
    if recycles == "command":
        node.control.ask("server", "delete", "s", "--force")
    else:
        os.kill(int(node.control.ask("server", "get", "s", "pid")), signal.SIGKILL)
    assert RPC_FAILURE == later.answer()
    until(lambda: not node.control.rows("server", "list"))
    node.control.ask("server", "create", "s")
    assert [SUCCESS, SUCCESS] == node.process("s").ask("join()")


def test_client_that_is_killed_idle_harms_nobody(node: Node) -> None:
    """
    Its work was done, whether it waited for it or not.
    """
    killed, other = node.client("s"), node.client("s")
    assert [SUCCESS, SUCCESS] == killed.ask("[launch(20), launch(20)]")
    time.sleep(1)
    killed.kill()
    until(lambda: len(node.control.rows("client", "list")) == 1)

    assert [SUCCESS, SUCCESS] == other.ask("[launch(1), finish()]")
    assert SUCCESS == node.process("s").ask("start_mps()")


def test_driver_with_the_fix_survives_kills(node: Node, driver: FakeDriver) -> None:
    """
    NVIDIA has announced it for a later driver.
    """
    driver.let_mps_survive_kills()
    killed, other = node.client("s"), node.client("s")
    killed.ask("launch(20000)")
    killed.kill()
    until(lambda: len(node.control.rows("client", "list")) == 1)

    assert [SUCCESS, SUCCESS] == other.ask("[launch(1), finish()]")
    assert SUCCESS == node.process("s").ask("start_mps()")


def test_client_loses_its_server(node: Node) -> None:
    """
    Its calls fail from then on. Later programs run without limits.
    """
    client = node.client("s")
    client.ask("launch(20000)")
    client.send("finish()")
    os.kill(int(node.control.ask("server", "get", "s", "pid")), signal.SIGKILL)

    assert RPC_FAILURE == client.answer()
    assert "CUDA_ERROR_MPS_RPC_FAILURE" == client.ask(f"name_of({RPC_FAILURE})")
    assert [] == node.control.rows("server", "list")
    assert 108 == node.client("s").ask("multiprocessors()")


# --- memory ----------------------------------------------------------------------------------------------------------


def test_pinned_limit_shows_as_free_and_not_as_total(node: Node) -> None:
    """
    It is one for all devices, and the context counts.
    """
    node.control.ask("namespace", "create", "n", "--server=s")
    node.control.ask("namespace", "set", "n", "--server=s", "--pinned-memory-limit=5G")
    client = node.process("s", "n", FAKE_DRIVER_CONTEXT_MIB="256")

    assert [[5120 - 256, 16384], 4864] == client.ask_all("Cuda().visible()", "fill(256)")


@pytest.mark.parametrize(
    ("own", "expected_mib"),
    [("0=2G", 2048), (f"{GPU_A}=2G", 2048), ("0=20G", 5120), ("0=2G,3=4G", 16128), ("GPU-absent=1G", 16128)],
)
def test_client_lowers_its_pinned_limit_or_voids_it(node: Node, own: str, expected_mib: int) -> None:
    """
    An entry for a device that it does not see ends every limit, that of the namespace included. The server has 30 MiB.
    """
    node.control.ask("namespace", "create", "n", "--server=s")
    node.control.ask("namespace", "set", "n", "--server=s", "--pinned-memory-limit=5G")

    client = node.process("s", "n", CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=own)
    assert expected_mib == client.ask("fill(256)")


def test_limit_of_a_cgroup_holds_for_a_client(node: Node, driver: FakeDriver, start: Start, tmp_path: Path) -> None:
    """
    Together with the percentage of its namespace.
    """
    cgroups = StandInCgroups(tmp_path / "cgroup", driver.folder / "devices.csv")
    folder = cgroups.create("/kubepods/pod1/c1")
    assert start(**cgroups.variables("/")).ask(f"set_limits({str(folder)!r}, 0, {3000 << 20})") is None
    node.control.add_namespace("s", "n", 50)
    client = node.client("s", "n", **cgroups.variables("/kubepods/pod1/c1"))

    assert [54, 2944] == client.ask_all("multiprocessors()", "fill(128)")


# --- where it is -----------------------------------------------------------------------------------------------------


def test_driver_root_has_the_programs(container: Container, driver: FakeDriver, tmp_path: Path) -> None:
    """
    Where NVIDIA's installer puts them.
    """
    driver.load(version=FIRST_DRIVER_WITH_MPS)
    program = install_mps(tmp_path, container.build / "fake_driver")

    assert tmp_path / "usr/bin/nvidia-cuda-mps-control" == program
    with mps_control(program, FAKE_DRIVER_DIR=str(driver.folder)) as control:
        control.start()
        control.ask("server", "create", "s")
        until(lambda: "Ready" == control.ask("server", "get", "s", "status"))


def test_each_row_of_the_table_has_its_test() -> None:
    """
    And each test here has its row.
    """
    section = (HERE / "fake_driver/README.md").read_text().partition("## MPS")[2].partition("\n## ")[0]
    named = re.findall(r"\| `(test_\w+)` \|$", section, re.M)
    found = re.findall(r"^def (test_\w+)", Path(__file__).read_text(), re.M)

    assert found[:-1] == named
