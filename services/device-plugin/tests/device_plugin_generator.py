"""
A stand-in for nvidia-ctk, and a driver's root as a driver installs itself.

The stand-in prints the specs that NVIDIA's generator prints for such a root. What it finds in the file `does` beside it
makes it fail: `fail <text>`, `hang`, `flood`, or `lost <uuid>` for all calls that name this device.
"""

import os
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from testbed.driver.mps import install_mps

TOOLKITS = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "hami-e2e"
FAKE_NVML = Path(__file__).resolve().parents[3] / "build/native/fake_driver/libnvidia-ml.so.1"

_PROGRAM = """#!{python}
import json, os, pathlib, sys, time

here = pathlib.Path(__file__).parent
given = dict(argument.removeprefix("--").split("=", 1) for argument in sys.argv[3:] if "=" in argument)
devices = [argument.split("=", 1)[1] for argument in sys.argv if argument.startswith("--device-id=")]
with (here / "calls").open("a") as file:
    print(given["mode"], *devices, file=file)
what, _, rest = (here / "does").read_text().partition(" ") if (here / "does").exists() else ("", "", "")
root, dev = given["driver-root"], given["dev-root"].rstrip("/")
if what == "hang":
    time.sleep(60)
if what == "flood":
    while True:
        print("x" * 65536)
if what == "fail" or (what == "lost" and rest in devices):
    print('time="2026-11-25T01:40:47Z" level=warning msg="ldcache"', file=sys.stderr)
    print(f'time="2026-11-25T01:40:47Z" level=error msg="failed: {{rest}}"', file=sys.stderr)
    sys.exit(1)
# The real one writes what it prints into a file first.
draft = pathlib.Path(os.environ.get("TMPDIR", "/tmp"), f"nvcdi-spec-{{os.getpid()}}.json")
draft.touch()
draft.unlink()
version = (here / "version").read_text()
library = f"usr/lib/x86_64-linux-gnu/libcuda.so.{{version}}"
arguments = ["nvidia-cdi-hook", "update-ldcache"]
hook = {{"hookName": "createContainer", "path": given["nvidia-cdi-hook-path"], "args": arguments}}


def node(name):
    return {{"path": f"/dev/{{name}}", "hostPath": f"{{dev}}/dev/{{name}}"}}


def described(uuid):
    return {{"name": uuid, "containerEdits": {{"deviceNodes": [node("nvidia" + str(int(uuid[-2:], 16)))]}}}}


print(json.dumps({{
    "cdiVersion": "0.5.0",
    "kind": "nvidia.com/gpu",
    "devices": [described(uuid) for uuid in devices],
    "containerEdits": {{
        "env": ["NVIDIA_VISIBLE_DEVICES=void"],
        "deviceNodes": [node("nvidiactl"), node("nvidia-uvm")],
        "mounts": [{{"hostPath": f"{{root}}/{{library}}", "containerPath": f"/{{library}}", "options": ["ro"]}}],
        "hooks": [hook],
    }},
}}))
"""


@dataclass(frozen=True)
class FakeGenerator:
    """The stand-in and the driver's root below *host*; *nvml* is the driver's library, if it must work."""

    host: Path
    nvml: Path | None = None

    def __post_init__(self) -> None:
        """Write both."""
        self.program.parent.mkdir()
        self.program.write_text(_PROGRAM.format(python=sys.executable))
        self.program.chmod(0o755)
        self.hook.write_bytes(b"the hook")
        self.install("570.124.06")

    @property
    def program(self) -> Path:
        """The stand-in."""
        return self.host / "toolkit/nvidia-ctk"

    @property
    def hook(self) -> Path:
        """The nvidia-cdi-hook to install."""
        return self.host / "toolkit/nvidia-cdi-hook"

    @property
    def driver_root(self) -> Path:
        """The driver's root, as the plugin sees it."""
        return self.host / "driver"

    @property
    def flags(self) -> tuple[str, ...]:
        """The plugin's flags for both; on the host the driver's root has another path."""
        return (
            f"--cdi-generator={self.program}",
            f"--cdi-hook={self.hook}",
            f"--driver-root-ctr-path={self.driver_root}",
            "--nvidia-driver-root=/run/nvidia/driver",
        )

    def calls(self) -> list[str]:
        """Return the mode and the devices of each call."""
        return (self.host / "toolkit/calls").read_text().splitlines()

    def make_device_files(self, *names: str) -> None:
        """Make device files below the driver's `/dev`, with the numbers of /dev/null."""
        for name in names:
            path = self.driver_root / "dev" / name
            path.parent.mkdir(exist_ok=True)
            os.mknod(path, 0o20666, os.makedev(1, 3))

    def does(self, what: str) -> None:
        """Let the next calls do *what*; empty: work."""
        (self.host / "toolkit/does").write_text(what)

    def install(self, version: str) -> None:
        """Install the driver's files of *version*, instead of those before."""
        libraries = self.driver_root / "usr/lib/x86_64-linux-gnu"
        (self.driver_root / "dev").mkdir(parents=True, exist_ok=True)
        libraries.mkdir(parents=True, exist_ok=True)
        library = libraries / f"libnvidia-ml.so.{version}"
        library.write_bytes(self.nvml.read_bytes() if self.nvml is not None else b"")
        (libraries / "libnvidia-ml.so.1").unlink(missing_ok=True)
        (libraries / "libnvidia-ml.so.1").symlink_to(library.name)
        if self.nvml is not None:
            install_mps(self.driver_root, self.nvml.parent)
        (self.host / "toolkit/version").write_text(version)


def real_generator(host: Path) -> FakeGenerator:
    """Return NVIDIA's own program in place of the stand-in, with the fake driver. Skip the test if there is none."""
    found = sorted(TOOLKITS.glob("nvidia-toolkit-1.20*/nvidia-ctk"))
    if not found or not FAKE_NVML.exists():
        pytest.skip("nvidia-ctk is not built: make e2e-real; or the fake driver is not: make native")
    fake = FakeGenerator(host, FAKE_NVML)
    fake.program.unlink()
    fake.program.symlink_to(found[-1])
    for name in ("libcuda.so.570.124.06", "libcuda.so.1"):
        (fake.driver_root / "usr/lib/x86_64-linux-gnu" / name).write_bytes(FAKE_NVML.read_bytes())
    return fake
