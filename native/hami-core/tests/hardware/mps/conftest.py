"""
Fixtures: a control daemon of MPS, and a node where it runs.
"""

from collections.abc import Iterator

import pytest
from containers import Container
from hardware.mps.node import Node
from hardware.process import Start

from testbed.driver.hardware import FIRST_DRIVER_WITH_MPS, FakeDriver
from testbed.driver.mps import MpsControl, mps_control


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
