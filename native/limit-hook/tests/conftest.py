"""
Fixture: a node whose driver holds limits. The build is HAMI_BUILD, which ctest sets, or `build/native`.
"""

import os
from pathlib import Path

import pytest
from hook_node import LEAF, NODE, ROOT, HookNode

from testbed.driver.hardware import FIRST_DRIVER_WITH_LIMITS, StandInCgroups


@pytest.fixture
def backend(request: pytest.FixtureRequest) -> str:
    """What holds limits: the kernel's controller `dmem`, or the driver's accounting by `misc`."""
    return str(getattr(request, "param", "misc"))


@pytest.fixture
def node(tmp_path: Path, backend: str) -> HookNode:
    """A node whose driver holds limits."""
    build = Path(os.environ.get("HAMI_BUILD", ROOT / "build/native"))
    if not (build / "hami-limit-hook").exists():
        pytest.skip(f"{build} has no hami-limit-hook: run make native")
    NODE.write_hardware(tmp_path / "hardware")
    cgroups = StandInCgroups(tmp_path / "cgroup", tmp_path / "hardware/devices.csv" if backend == "dmem" else None)
    cgroups.create(LEAF)
    made = HookNode(build, tmp_path, cgroups)
    made.driver.load(version=FIRST_DRIVER_WITH_LIMITS)
    made.show_cgroup(f"0::{LEAF}\n")
    folder = tmp_path / "driver/usr/lib/x86_64-linux-gnu"
    folder.mkdir(parents=True)
    (folder / "libnvidia-ml.so.1").symlink_to(build / "fake_driver/libnvidia-ml.so.1")
    return made
