"""
Who holds a share: the library, the driver by a cgroup or by a namespace of MPS, or a MIG instance.

Owns what each adds to a container, as the device plugin does. Neighbour: `container` runs programs in it.
"""

import json
import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from hami_device_plugin.adapters.mps import occupy
from hami_device_plugin.decide.allocate.namespaces import PIPES_IN_CONTAINER
from hamicommon.wire.limits_file import DeviceLimits, LimitsFile, encode_limits_file
from minicluster.kubelet.runtime import isolation
from minicluster.kubelet.runtime.isolation import Mount
from testbed.driver.hardware import FIRST_DRIVER_WITH_LIMITS, FIRST_DRIVER_WITH_MPS, FakeDriver, StandInCgroups
from testbed.driver.mps import CONTROL, mps_control
from testbed.waiting import eventually

NATIVE = Path(__file__).resolve().parents[2] / "build/native"
DRIVER_LIBRARIES = NATIVE / "fake_driver"
PLACE = "/usr/local/vgpu"
REGION = f"{PLACE}/share.cache"
TENANT = 60000
"""The user and group of a container that is never root."""
_GROUPS = Path("/sys/fs/cgroup")
_STAND_IN = "/pod/leaf"
_SERVER, _NAMESPACE = "hami", "drilled"
_EXCLUSIVE_PROCESS = 3


@dataclass(frozen=True)
class Host:
    """The Node of a container, with one device."""

    folder: Path
    """Of the container alone."""
    uuid: str
    """The device."""
    variables: dict[str, str]
    """What leads every process to the hardware."""

    @property
    def hardware(self) -> Path:
        """The folder of the fake driver."""
        return self.folder / "hardware"

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a process on the Node, beside the container."""
        environment = {**os.environ, "LD_LIBRARY_PATH": str(DRIVER_LIBRARIES), **self.variables}
        environment.pop("FAKE_DRIVER_CGROUP", None)
        return environment

    def run(self, command: list[str], standard_input: str = "", **variables: str) -> str:
        """Run a program as the Node's root, and return what it prints."""
        as_root = [] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user"]
        done = subprocess.run(
            [*as_root, *command],
            env=self.environment | variables,
            input=standard_input,
            capture_output=True,
            text=True,
            check=False,
        )
        assert 0 == done.returncode, done.stderr
        return done.stdout


@dataclass
class Holder:
    """Holds nothing."""

    host: Host
    mounts: list[Mount] = field(default_factory=list)
    """What the container gets. Later ones cover earlier ones."""
    environment: dict[str, str] = field(default_factory=dict)
    """Of the container."""
    prelude: str = ""
    """What the first process does before its first instruction of its own, as it would below runc."""
    user: str = ""
    """The command that makes the first process one of the container's user; empty for root."""

    async def limit(self, pid: int) -> None:
        """Do what the container runtime does once the first process is there, with *pid* on the Node."""

    async def remove(self) -> None:
        """Remove what the Node has of it, after the container has ended."""


class Library(Holder):
    """`libvgpu.so`, by identity."""

    def __init__(self, host: Host, limits: DeviceLimits) -> None:
        super().__init__(host)
        self.region = host.folder / "region"
        self.region.touch()
        self.region.chmod(0o666)
        (host.folder / "limits").mkdir()
        content = LimitsFile({host.uuid: limits}, {"CUDA_DEVICE_MEMORY_SHARED_CACHE": REGION})
        (host.folder / "limits/limits").write_bytes(encode_limits_file(content))
        (host.folder / "preload").write_text(f"{PLACE}/libvgpu.so\n")
        self.mounts = [
            (PLACE, isolation.memory(["mode=0777"]), False),
            (f"{PLACE}/libvgpu.so", str(NATIVE / "libvgpu.so"), True),
            (REGION, str(self.region), False),
            (f"{PLACE}/limits", str(host.folder / "limits"), True),
            (isolation.PRELOAD, str(host.folder / "preload"), True),
        ]


class Cgroup(Holder):
    """The driver's limit on memory for the container's cgroup, or for a folder where there is no cgroup v2."""

    def __init__(self, host: Host, memory_mib: int, *, has_dmem: bool) -> None:
        """Load a driver that holds limits, and make the cgroup. *has_dmem*: by the kernel's dmem, which is a folder."""
        super().__init__(host)
        self._limit = f"{host.uuid}={memory_mib << 20}"
        self._is_real = (
            not has_dmem and os.access(_GROUPS / "cgroup.procs", os.W_OK) and (_GROUPS / "cgroup.controllers").exists()
        )
        self.path = _GROUPS / host.folder.name if self._is_real else host.folder / f"cgroup{_STAND_IN}"
        driver = FakeDriver(host.hardware)
        driver.load(version=FIRST_DRIVER_WITH_LIMITS)
        if self._is_real:
            self.path.mkdir()
            driver.count_misc_as_there()
            self.prelude = f"echo $$ >{self.path}/cgroup.procs\n"
        else:
            stand_in = StandInCgroups(host.folder / "cgroup", host.hardware / "devices.csv" if has_dmem else None)
            stand_in.create(_STAND_IN)
            host.variables.update(stand_in.variables(_STAND_IN))
        self.prelude += f"until [ -e {host.folder}/limited ]; do sleep 0.02; done\n"

    async def limit(self, pid: int) -> None:
        """Run the hook that the container runtime would run now, and let the container go on."""
        folder = self.host.folder
        command = [str(NATIVE / "hami-limit-hook"), "--driver-root", str(self._driver_root())]
        if self._is_real:
            await eventually((self.path / "cgroup.procs").read_text, f"the container is in {self.path}")
        else:
            shown = folder / f"proc/{pid}/cgroup"
            shown.parent.mkdir(parents=True)
            shown.write_text(f"0::{_STAND_IN}\n")
            command += ["--proc", str(folder / "proc"), "--cgroup", str(folder / "cgroup")]
        self.host.run([*command, self._limit], json.dumps({"pid": pid}))
        (folder / "limited").touch()

    def _driver_root(self) -> Path:
        root = self.host.folder / "driver"
        (root / "usr/lib64").mkdir(parents=True)
        (root / "usr/lib64/libnvidia-ml.so.1").symlink_to(DRIVER_LIBRARIES / "libnvidia-ml.so.1")
        return root

    async def remove(self) -> None:
        """Remove a real cgroup."""

        def removed() -> bool:
            self.path.rmdir()
            return True

        if self._is_real:
            await eventually(removed, f"{self.path} is removed")


class Namespace(Holder):
    """The driver's limit on compute, by a namespace of MPS. Needs root."""

    def __init__(self, host: Host, percent: int, *, is_required: bool) -> None:
        """Start a daemon, and make a namespace with *percent*. *is_required*: the device takes clients of MPS only."""
        super().__init__(host)
        self._ended = ExitStack()
        # Programs of another user use the hardware.
        host.hardware.chmod(0o777)
        driver = FakeDriver(host.hardware)
        driver.load(version=FIRST_DRIVER_WITH_MPS)
        control = self._ended.enter_context(mps_control(DRIVER_LIBRARIES / CONTROL, **host.variables))
        control.start("-m")
        control.ask("server", "create", _SERVER)
        if is_required:
            driver.set(host.uuid, compute_mode=_EXCLUSIVE_PROCESS)
            program = [sys.executable, "-I", "-S", occupy.__file__, str(DRIVER_LIBRARIES / "libcuda.so.1"), "take"]
            host.run(program, CUDA_MPS_PIPE_DIRECTORY=str(control.pipe / _SERVER))
        pipes = control.add_namespace(_SERVER, _NAMESPACE, percent)
        self.mounts = [(place, str(pipes), False) for place in PIPES_IN_CONTAINER]
        self.environment = {
            "CUDA_MPS_PIPE_DIRECTORY": PIPES_IN_CONTAINER[0],
            "RAISE": f"{control.program} namespace set {_NAMESPACE} --server={_SERVER} --active-thread-percentage=100",
        }
        self.user = f"setpriv --reuid={TENANT} --regid={TENANT} --clear-groups --no-new-privs"

    async def remove(self) -> None:
        """Stop the daemon."""
        self._ended.close()


class Instance(Holder):
    """A MIG instance."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        host.variables["NVIDIA_VISIBLE_DEVICES"] = host.uuid


def scratch() -> Path:
    """Return a new folder that every user can enter."""
    folder = Path(tempfile.mkdtemp(prefix="hami-drill-"))
    folder.chmod(0o755)
    return folder
