"""
Fixtures: a node with three GPUs, its driver, and processes on it.
"""

from collections.abc import Iterator

import pytest
from containers import Container
from hardware.process import Process, Start

from testbed.driver.hardware import FakeDriver


@pytest.fixture
def driver(container: Container) -> FakeDriver:
    """The driver of the container's node."""
    return FakeDriver(container.folder / "hardware")


@pytest.fixture
def start(container: Container) -> Iterator[Start]:
    """Start processes on the node, which end with the test. They have called nvmlInit unless `init` is false."""
    started: list[Process] = []

    def begin(*, init: bool = True, **environment: str) -> Process:
        process = Process.of(container, **environment)
        started.append(process)
        assert not init or process.ask("n.nvmlInit()") is None
        return process

    yield begin
    for process in started:
        process.kill()
