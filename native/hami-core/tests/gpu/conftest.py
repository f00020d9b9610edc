"""
The option `--write PAGE`: measure on this machine's GPU and write the page.

Fixtures: the machine, the rows of the page.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from containers import ROOT, Container
from gpu.machine import Machine, NoGpuError, real
from gpu.page import Row, page

MEASURED_SECONDS = 20


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    parser.addoption("--write", type=Path, metavar="PAGE", help="measure on the GPU, and write the page")


@pytest.fixture(scope="session")
def rows() -> list[Row]:
    """The rows of the page, filled by the tests."""
    return []


@pytest.fixture(scope="session")
def gpu(request: pytest.FixtureRequest, build: Path, rows: list[Row]) -> Iterator[Machine]:
    """This machine with its GPU. The page is written afterwards if everything was measured."""
    target = request.config.getoption("--write", None)
    if target is None:
        pytest.skip("the GPU is measured by `tox -e gpu` only")
    try:
        machine = real(build, ROOT / "build/gpu")
    except NoGpuError as error:
        pytest.skip(str(error))
    yield machine
    if not request.session.testsfailed:
        target.write_text(page(machine.name, MEASURED_SECONDS, rows))


@pytest.fixture
def fake(container: Container) -> Machine:
    """A machine with the fake driver, where a virtual second takes as long as its programs need."""
    environment = {
        "LD_LIBRARY_PATH": str(container.build / "fake_driver"),
        "FAKE_DRIVER_DIR": str(container.folder / "hardware"),
        "FAKE_DRIVER_CONTEXT_MIB": "100",
    }
    return replace(Machine("fake", container.build, container.folder), environment=environment)
