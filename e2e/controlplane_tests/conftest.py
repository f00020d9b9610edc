"""
Fixtures: programs that are built once, and one cluster for many tests.
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from controlplane import prerequisites
from controlplane.cluster import DRIVER, ControlPlane
from controlplane.images import oci
from controlplane.programs import build
from testbed.driver.hardware import TWO_NODES

WAIT_SECONDS = 90.0
PROBE_IMAGE = "localhost/probe:1"
PROBE = build.Product(
    "probe",
    ("build", "-v", "-trimpath", "-ldflags=-s -w", "-o", "{out}/", "."),
    tuple(Path(__file__).parent / "probe" / name for name in ("go.mod", "main.go")),
    Path(__file__).parent / "probe",
    "some seconds",
)


def until(holds: Callable[[], Any], what: str) -> Any:
    """Return the first true answer of *holds*, or fail after WAIT_SECONDS."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not (last := holds()):
        assert time.monotonic() < deadline, f"{what}: not within {WAIT_SECONDS:g} s"
        time.sleep(0.1)
    return last


@pytest.fixture(scope="session")
def able_machine() -> None:
    """Skip if this machine cannot run a cluster."""
    reason = prerequisites.missing()
    if reason:
        pytest.skip(reason)


@pytest.fixture(scope="session")
def go() -> None:
    """Skip if there is no Go."""
    try:
        build.go_version()
    except build.BuildError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def driver() -> None:
    """Skip if the fake driver has not been built."""
    if not DRIVER.exists():
        pytest.skip(f"{DRIVER} has no fake driver: build it with `tox -e native`")


@pytest.fixture(scope="session")
def programs(go: None) -> Path:
    """Return the folder of our own small programs."""
    return build.made(build.PROGRAMS, print)


@pytest.fixture(scope="session")
def probe_image(go: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the archive of the image of these tests' Pods."""
    program = build.made(PROBE, print) / "probe"
    archive = tmp_path_factory.mktemp("image") / "probe.tar"
    return oci.packed(archive, PROBE_IMAGE, {"/usr/local/bin/probe": program}, ["/usr/local/bin/probe"])


@pytest.fixture(scope="package")
def cluster(
    able_machine: None, driver: None, probe_image: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ControlPlane]:
    """Yield a cluster of two nodes with the image of the probe."""
    running = ControlPlane(tmp_path_factory.mktemp("cluster"))
    try:
        running.up(TWO_NODES, print)
        running.load_image(probe_image)
        yield running
    finally:
        running.down()
