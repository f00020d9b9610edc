"""
Its servers, and the devices and users that they serve.
"""

import os
from pathlib import Path

import pytest
from containers import GPU_A, GPU_B, Container
from hardware.mps.node import NO_DEVICE, SUCCESS, TENANT, UNAVAILABLE, Node, commands_of, needs_root, refusal, until
from hardware.process import Start

from testbed.driver.hardware import FIRST_DRIVER_WITH_MPS, FakeDriver
from testbed.driver.mps import MpsControl, install_mps


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
