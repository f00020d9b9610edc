"""
Its control daemon: starting it, its file, and where its programs are.
"""

import os
import signal
from pathlib import Path

import pytest
from containers import Container
from hardware.mps.node import Node, refusal, until

from testbed.driver.hardware import FIRST_DRIVER_WITH_MPS, FakeDriver
from testbed.driver.mps import MpsControl, install_mps, mps_control


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
