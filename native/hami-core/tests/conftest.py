"""
Fixtures: the checkout, the build (HAMI_BUILD, which ctest sets, or `build/native`), a container on a node with three
devices.
"""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from containers import DEVICES, ROOT, Container


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout."""
    return ROOT


@pytest.fixture(scope="session")
def build() -> Path:
    """The folder with `libvgpu.so`, the fake driver and the test programs."""
    folder = Path(os.environ.get("HAMI_BUILD", ROOT / "build/native"))
    if not (folder / "libvgpu.so").exists():
        pytest.skip(f"{folder} has no libvgpu.so: run make native")
    return folder


@pytest.fixture
def container(build: Path, tmp_path: Path) -> Container:
    """A container with a limit of 1000 MiB on each of three devices, where contexts take nothing."""
    (tmp_path / "hardware").mkdir()
    (tmp_path / "hardware/devices.csv").write_text(DEVICES)
    return Container(build, tmp_path, {"CUDA_DEVICE_MEMORY_LIMIT": "1000m", "FAKE_DRIVER_CONTEXT_MIB": "0"})


@pytest.fixture
def bare(container: Container) -> Container:
    """The container without the library. Contexts take 128 MiB, and programs have the names of `allocations`."""
    container.environment["FAKE_DRIVER_CONTEXT_MIB"] = "128"
    return replace(container, has_library=False, imports=("client", "allocations"))
