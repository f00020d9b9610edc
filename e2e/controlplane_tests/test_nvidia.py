"""
NVIDIA's programs run over the fake driver as they would over a real one.

These tests start no machine. `test_node_kinds` shows the same on nodes.
"""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from controlplane import nvidia
from controlplane.cluster import DRIVER
from controlplane.programs import build
from testbed.driver.hardware import FakeNode

NODE = FakeNode.of("node-a", "Tesla T4", 16384, 2)
LIBRARIES = f"usr/lib/{os.uname().machine}-linux-gnu"
HOOK = "/usr/local/bin/nvidia-cdi-hook"
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make device files")


class Host:
    """A driver root, the fake hardware, and a bundle of a container, below one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = folder / "driver"
        self.hardware = folder / "hardware"
        NODE.write_hardware(self.hardware)
        nvidia.lay_out(self.root, DRIVER, self.hardware, len(NODE.gpus))

    def run(self, program: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a program of the toolkit."""
        environment = {
            **os.environ,
            "PATH": f"{self.folder / 'bin'}:{program.parent}:{os.environ['PATH']}",
            "XDG_CONFIG_HOME": str(self.folder),
            "FAKE_DRIVER_DIR": str(self.hardware),
        }
        return subprocess.run([program, *arguments], env=environment, capture_output=True, text=True, check=False)

    def generated(self, toolkit: Path, *arguments: str) -> dict[str, Any]:
        """Return the CDI spec that nvidia-ctk of *toolkit* prints."""
        done = self.run(
            toolkit / "nvidia-ctk",
            *("cdi", "generate", "--format=json", f"--driver-root={self.root}", f"--nvidia-cdi-hook-path={HOOK}"),
            *arguments,
        )
        assert 0 == done.returncode, done.stderr
        spec: dict[str, Any] = json.loads(done.stdout)
        return spec

    def create(self, toolkit: Path, kind: nvidia.NodeKind, devices: str) -> tuple[dict[str, Any], str]:
        """Return config.json after `create` by the runtime of *kind*, and what it printed."""
        (self.folder / "bin").mkdir(exist_ok=True)
        (self.folder / "bin/runc").write_text("#!/bin/sh\n")
        (self.folder / "bin/runc").chmod(0o755)
        configured = self.folder / "nvidia-container-runtime/config.toml"
        configured.parent.mkdir(exist_ok=True)
        text = nvidia.configuration(toolkit.parent, kind)
        text = text.replace(nvidia.DRIVER_ROOT, str(self.root)).replace(nvidia.CDI_FOLDER, str(self.folder / "cdi"))
        configured.write_text(text)
        bundle = self.folder / "bundle"
        bundle.mkdir(exist_ok=True)
        config = {
            "ociVersion": "1.2.0",
            "process": {"args": ["true"], "cwd": "/", "env": [f"NVIDIA_VISIBLE_DEVICES={devices}"]},
            "root": {"path": "rootfs"},
            "linux": {},
        }
        (bundle / "config.json").write_text(json.dumps(config))
        done = self.run(toolkit / "nvidia-container-runtime", "create", "--bundle", str(bundle), "c1")
        changed: dict[str, Any] = json.loads((bundle / "config.json").read_text())
        return changed, done.stderr + done.stdout


@pytest.fixture
def host(driver: None, tmp_path: Path) -> Host:
    """Return a host with a driver."""
    return Host(tmp_path)


@pytest.fixture(params=build.TOOLKITS)
def toolkit(request: pytest.FixtureRequest, go: None) -> Path:
    """Return the folder of each toolkit."""
    return build.made(build.toolkit(request.param), print)


@pytest.fixture
def binaries(go: None, tmp_path: Path) -> Path:
    """Return a folder with all toolkits, as on a node."""
    folder = tmp_path / "binaries"
    folder.mkdir()
    for version in build.TOOLKITS:
        product = build.toolkit(version)
        (folder / product.name).symlink_to(build.made(product, print))
    return folder


def test_driver_root_is_that_of_the_version_that_nvml_reports(host: Host) -> None:
    """The linker's names point to the files with the version. Each device has a device file."""
    version = nvidia.driver_version(DRIVER, host.hardware)
    libraries = host.root / LIBRARIES

    assert f"libcuda.so.{version}" == str((libraries / "libcuda.so.1").readlink())
    assert (libraries / f"libnvidia-ml.so.{version}").is_file()
    names = {"nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset"}
    assert names == {path.name for path in (host.root / "dev").iterdir() if path.is_char_device()}


def test_toolkit_reports_its_version(toolkit: Path) -> None:
    """It is in the name of its folder."""
    said = subprocess.run([toolkit / "nvidia-ctk", "--version"], capture_output=True, text=True, check=True).stdout

    assert any(f"version {version}" in said and version in toolkit.name for version in build.TOOLKITS)


def test_generator_describes_the_devices_and_the_driver(host: Host, toolkit: Path) -> None:
    """Each device is known by index and UUID. The common edits have the libraries and hide the devices' names."""
    spec = host.generated(toolkit, "--mode=nvml")

    by_name = {device["name"]: device["containerEdits"]["deviceNodes"] for device in spec["devices"]}
    assert {"0", "1", "all", *(gpu.uuid for gpu in NODE.gpus)} == by_name.keys()
    assert ["/dev/nvidia1"] == [node["path"] for node in by_name[NODE.gpus[1].uuid]]
    common = spec["containerEdits"]
    mounted = {Path(mount["containerPath"]).name for mount in common["mounts"]}
    version = nvidia.driver_version(DRIVER, host.hardware)
    assert {f"libcuda.so.{version}", f"libnvidia-ml.so.{version}"} <= mounted
    assert "NVIDIA_VISIBLE_DEVICES=void" in common["env"]


def test_management_spec_has_only_all_devices(host: Host, toolkit: Path) -> None:
    """The Operator's own programs use it."""
    spec = host.generated(toolkit, "--mode=management", "--vendor=management.nvidia.com")

    assert ("management.nvidia.com/gpu", ["all"]) == (spec["kind"], [device["name"] for device in spec["devices"]])


def test_runtime_in_its_default_mode_generates_the_devices_edits(host: Host, binaries: Path) -> None:
    """It needs no spec on the host. The container no longer sees the names of its devices."""
    changed, said = host.create(nvidia.toolkit_folder(binaries, nvidia.JIT_CDI), nvidia.JIT_CDI, NODE.gpus[1].uuid)

    files = {node["path"] for node in changed["linux"].get("devices", ())}
    assert "/dev/nvidia1" in files, said
    assert "/dev/nvidia0" not in files
    assert "NVIDIA_VISIBLE_DEVICES=void" in changed["process"]["env"]


def test_runtime_of_the_operator_knows_no_device_by_its_uuid(host: Host, binaries: Path) -> None:
    """It says which name it cannot find, and leaves the container as it was."""
    changed, said = host.create(nvidia.toolkit_folder(binaries, nvidia.OPERATOR), nvidia.OPERATOR, NODE.gpus[0].uuid)

    assert f"unresolvable CDI devices management.nvidia.com/gpu={NODE.gpus[0].uuid}" in said
    assert [f"NVIDIA_VISIBLE_DEVICES={NODE.gpus[0].uuid}"] == changed["process"]["env"]
