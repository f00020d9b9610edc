"""
What a client that is killed, or a server that ends, does to the others.
"""

import os
import signal
import time

import pytest
from hardware.mps.node import ILLEGAL_ADDRESS, RPC_FAILURE, SERVER_NOT_READY, SUCCESS, Node, until

from testbed.driver.hardware import FakeDriver


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
