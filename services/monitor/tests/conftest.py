"""
Fixtures of the monitor's tests: a HOOK_PATH, a Pod API, a fake driver, and the monitor as a process.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from .fake_driver import built, hardware
from .pod_server import PodServer
from .region_files import HookPath
from .service import Service, Start


@pytest.fixture
def hook_path(tmp_path: Path) -> HookPath:
    """Return an empty HOOK_PATH."""
    return HookPath(tmp_path / "vgpu")


@pytest.fixture
async def pod_server() -> AsyncIterator[PodServer]:
    """Yield a running Pod API."""
    server = PodServer()
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
def fake_driver(tmp_path: Path) -> dict[str, str]:
    """Return the environment in which a process finds two fake devices."""
    return hardware(tmp_path / "hardware")


@pytest.fixture
def library(fake_driver: dict[str, str]) -> dict[str, str]:
    """Return the environment of a container: fake devices behind the real library."""
    return fake_driver | {"LD_PRELOAD": str(built("libvgpu.so"))}


@pytest.fixture
def started(hook_path: HookPath, pod_server: PodServer, tmp_path: Path) -> Start:
    """Return the function that runs the monitor over the test's HOOK_PATH and Pod API."""
    return Service.starter(hook_path.path, pod_server.kubeconfig(tmp_path))
