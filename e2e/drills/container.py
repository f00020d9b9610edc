"""
A container with a share, as the device plugin makes it, and what its programs have taken of the device in truth.

Owns the files of the container and its cgroup. The kubelet's runtime of the embedded cluster runs it, without a
cluster. Neighbours: `programs` are what takes memory, `watchdog` finds those that took too much.
"""

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from drills.promises import DRIVER, LIBRARY, Enforced, Promise, holds, leaves
from drills.watchdog import findings
from hamicommon.wire.limits_file import DeviceLimits, LimitsFile, encode_limits_file
from minicluster.kubelet.runtime import isolation
from minicluster.kubelet.runtime.cdi import CdiCache
from minicluster.kubelet.runtime.containers import RunningContainer, Runtime, Wanted
from minicluster.kubelet.runtime.isolation import Mount
from testbed.hardware import FIRST_DRIVER_WITH_LIMITS, VARIABLES_FILE, FakeDriver, FakeNode, StandInCgroups
from testbed.waiting import eventually

NATIVE = Path(__file__).resolve().parents[2] / "build/native"
DRIVER_LIBRARIES = NATIVE / "fake_driver"
SHARE_MIB = 1000
KINDS = [kind for kind in (isolation.MOUNT, isolation.USER) if isolation.probe(kind, True) is None]
"""How containers can be made on this machine, best first. Empty if they cannot."""

COPY = "libcuda.so.570"
"""The driver's file again, under another name."""

_PLACE = "/usr/local/vgpu"
_REGION = f"{_PLACE}/share.cache"
_GROUPS = Path("/sys/fs/cgroup")
_STAND_IN = "/pod/leaf"
_RESULT = re.compile(r"^\d+: \d+$", re.MULTILINE)

_READ_USE = """
import sys
import pynvml
pynvml.nvmlInit()
device = pynvml.nvmlDeviceGetHandleByIndex(0)
for process in pynvml.nvmlDeviceGetComputeRunningProcesses(device):
    print(process.pid, process.usedGpuMemory)
for group in sys.argv[1:]:
    limits = pynvml.c_nvmlGetMemoryLimits_v1_t(group.encode())
    pynvml.nvmlDeviceGetMemoryLimits_v1(device, limits)
    print("group", limits.currentUsed)
"""
_LEND = """
import ctypes, sys
driver = ctypes.CDLL("libcuda.so.1")
context, pointer, handle = ctypes.c_void_p(), ctypes.c_uint64(), (ctypes.c_ubyte * 64)()
driver.cuInit(0)
driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
driver.cuCtxSetCurrent(context)
driver.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(int(sys.argv[1]) << 20))
driver.cuIpcGetMemHandle(handle, pointer)
print(bytes(handle).hex(), flush=True)
sys.stdin.read()
"""
_HOLD = 'hold() { "$@" >$FIRST & until [ -s $FIRST ]; do sleep 0.05; done; cat $FIRST; }\n'
"""`hold PROGRAM...` goes on when the program has printed a result, and lets it run."""


class Container:
    """
    A container with SHARE_MIB of a device of 16 GiB, on a Node of its own.

    Its scripts have variables: TAKE, STATIC, SETUID, LOADER, DEEPBIND, DLMOPEN and COPY are commands that take the MiB
    that their arguments say, and REGION is the region file. `hold` lets a first program run beside a second.
    """

    def __init__(self, folder: Path, programs: Path, enforced: Enforced) -> None:
        self._folder, self._programs, self._enforced = folder, programs, enforced
        self._variables = {"FAKE_DRIVER_DIR": str(folder / "hardware"), "FAKE_DRIVER_CONTEXT_MIB": "0"}
        self._region: Path | None = None
        self._group: Path | None = None
        self._container: RunningContainer | None = None
        self._lender: asyncio.subprocess.Process | None = None
        node = FakeNode.of("drilled", "Fake A", 16384, 1)
        node.write_hardware(folder / "hardware")
        self._uuid = node.gpus[0].uuid
        self.mounts: list[Mount] = []
        """What the image has and the device plugin adds. Later ones cover earlier ones."""
        if enforced.by != DRIVER:
            self._preload_library()
        if enforced.by != LIBRARY:
            self._make_group()

    @property
    def promise(self) -> Promise:
        """What is promised of its programs."""
        return self._enforced.promise

    async def outcome(self, script: str, results: int = 2) -> Promise:
        """Run a shell script until its programs have printed so many results, and return what they got in truth."""
        log = await self._run(script, results)
        await self._end_lender()
        groups = [] if self._enforced.by == LIBRARY else [str(self._group or self._folder / f"cgroup{_STAND_IN}")]
        lines = self._on_host([sys.executable, "-c", _READ_USE, *groups]).splitlines()
        counts = {name: int(count) for name, count in map(str.split, lines)}
        grouped = counts.pop("group", None)
        used = {int(pid): count for pid, count in counts.items()}
        used_mib = sum(used.values()) >> 20
        assert used_mib >= SHARE_MIB, f"the script took {used_mib} MiB, less than its share:\n{log}"
        found = await findings(used, self._pid(), (self._uuid, SHARE_MIB), self._region, grouped)
        return holds(*found) if used_mib == SHARE_MIB else leaves(*found)

    async def lend(self, memory_mib: int) -> str:
        """
        Return the handle of memory of a process outside the container, in hexadecimal digits.

        The process ends before it is found out what the container has.
        """
        command = (sys.executable, "-c", _LEND, str(memory_mib))
        pipe = asyncio.subprocess.PIPE
        self._lender = await asyncio.create_subprocess_exec(
            *command, env=self._host_environment(), stdin=pipe, stdout=pipe
        )
        assert self._lender.stdout is not None
        return (await self._lender.stdout.readline()).decode().strip()

    async def _end_lender(self) -> None:
        if self._lender is not None and self._lender.returncode is None:
            self._lender.kill()
            await self._lender.wait()

    async def _run(self, script: str, results: int) -> str:
        variables = self._folder / "variables"
        variables.write_text("".join(f"{name}={value}\n" for name, value in self._variables.items()))
        cdi = CdiCache(self._folder / "cdi")
        cdi.start()
        try:
            runtime = Runtime(self._folder, cdi, None, KINDS[0], with_pid_namespace=True)
            mounts = [*self.mounts, (str(VARIABLES_FILE), str(variables), True)]
            argv = ["sh", "-c", self._until_limited() + _HOLD + script]
            self._container = await runtime.start(Wanted("uid", "main", 0, argv, self._environment(), "/", mounts))
        finally:
            cdi.close()
        container = self._container
        if self._enforced.by != LIBRARY:
            await self._limit()

        def has_printed() -> bool:
            return len(_RESULT.findall(container.log.read_text())) >= results or not container.is_running

        await eventually(has_printed, f"{results} results of {script!r}", 60)
        assert container.is_running, container.log.read_text()
        return container.log.read_text()

    def _pid(self) -> int:
        """Return the pid of the container's first process on the Node."""
        return int((self._folder / "pods/uid/main/pid").read_text())

    async def remove(self) -> None:
        """Kill its processes, and remove its cgroup."""
        await self._end_lender()
        if self._container is not None:
            await self._container.stop(0)
        group = self._group
        if group is not None:

            def removed() -> bool:
                group.rmdir()
                return True

            await eventually(removed, f"{group} is removed")

    # --- who holds the limit -----------------------------------------------------------------------------------------

    def _preload_library(self) -> None:
        """Add what the device plugin mounts by identity."""
        self._region = self._folder / "region"
        self._region.touch()
        self._region.chmod(0o666)
        (self._folder / "limits").mkdir()
        limits = LimitsFile(
            {self._uuid: DeviceLimits(SHARE_MIB << 20, 100)}, {"CUDA_DEVICE_MEMORY_SHARED_CACHE": _REGION}
        )
        (self._folder / "limits/limits").write_bytes(encode_limits_file(limits))
        (self._folder / "preload").write_text(f"{_PLACE}/libvgpu.so\n")
        self.mounts += [
            (_PLACE, isolation.memory(["mode=0777"]), False),
            (f"{_PLACE}/libvgpu.so", str(NATIVE / "libvgpu.so"), True),
            (_REGION, str(self._region), False),
            (f"{_PLACE}/limits", str(self._folder / "limits"), True),
            (isolation.PRELOAD, str(self._folder / "preload"), True),
        ]

    def leave_out_library(self) -> None:
        """Mount no preload file, no library and no limits, as for a Pod that switched the library off."""
        self.mounts, self._region = [], None

    def _make_group(self) -> None:
        """Load a driver that holds limits, and make a cgroup for the container, or a folder where that cannot be."""
        driver = FakeDriver(self._folder / "hardware")
        driver.load(version=FIRST_DRIVER_WITH_LIMITS)
        if os.access(_GROUPS / "cgroup.procs", os.W_OK) and (_GROUPS / "cgroup.controllers").exists():
            self._group = _GROUPS / self._folder.name
            self._group.mkdir()
            driver.count_misc_as_there()
        else:
            stand_in = StandInCgroups(self._folder / "cgroup")
            stand_in.create(_STAND_IN)
            self._variables |= stand_in.variables(_STAND_IN)

    def _until_limited(self) -> str:
        """Return what the first process does before its first instruction of its own, as it would below runc."""
        if self._enforced.by == LIBRARY:
            return ""
        entering = f"echo $$ >{self._group}/cgroup.procs\n" if self._group else ""
        return f"{entering}until [ -e {self._folder}/limited ]; do sleep 0.02; done\n"

    async def _limit(self) -> None:
        """Run the hook that the container runtime would run now, and let the container go on."""
        pid = self._pid()
        command = [str(NATIVE / "hami-limit-hook"), "--driver-root", str(self._driver_root())]
        if self._group:
            group = self._group
            await eventually((group / "cgroup.procs").read_text, f"the container is in {group}")
        else:
            shown = self._folder / f"proc/{pid}/cgroup"
            shown.parent.mkdir(parents=True)
            shown.write_text(f"0::{_STAND_IN}\n")
            command += ["--proc", str(self._folder / "proc"), "--cgroup", str(self._folder / "cgroup")]
        self._on_host([*command, f"{self._uuid}={SHARE_MIB << 20}"], json.dumps({"pid": pid}))
        (self._folder / "limited").touch()

    def _driver_root(self) -> Path:
        root = self._folder / "driver"
        (root / "usr/lib64").mkdir(parents=True)
        (root / "usr/lib64/libnvidia-ml.so.1").symlink_to(DRIVER_LIBRARIES / "libnvidia-ml.so.1")
        return root

    # --- programs ----------------------------------------------------------------------------------------------------

    def _environment(self) -> dict[str, str]:
        programs, driver = self._programs, DRIVER_LIBRARIES / "libcuda.so.1"
        return {
            "PATH": os.environ["PATH"],
            "TAKE": f"{programs}/take {driver}",
            "STATIC": f"{programs}/static {driver}",
            "SETUID": f"{programs}/setuid {driver}",
            "LOADER": f"{programs}/loader {programs}/take {driver}",
            "DEEPBIND": f"{programs}/load deepbind {programs}/libtake.so {driver}",
            "DLMOPEN": f"{programs}/load namespace {programs}/libtake.so {driver}",
            "COPY": f"env LD_LIBRARY_PATH={driver.parent} {programs}/load copy {programs}/libtake.so {programs}/{COPY}",
            "REGION": _REGION,
            "FIRST": str(self._folder / "first"),
        }

    def _on_host(self, command: list[str], standard_input: str = "") -> str:
        """Run a program as the Node's root, and return what it prints."""
        as_root = [] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user"]
        done = subprocess.run(
            [*as_root, *command],
            env=self._host_environment(),
            input=standard_input,
            capture_output=True,
            text=True,
            check=False,
        )
        assert 0 == done.returncode, done.stderr
        return done.stdout

    def _host_environment(self) -> dict[str, str]:
        environment = {**os.environ, "LD_LIBRARY_PATH": str(DRIVER_LIBRARIES), **self._variables}
        environment.pop("FAKE_DRIVER_CGROUP", None)
        return environment


def build_programs(folder: Path) -> None:
    """Compile what takes memory. There is no program `static` if the compiler cannot link one."""
    sources = Path(__file__).with_name("programs")
    compiler: list[str | Path] = ["cc", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-O1"]
    for name, source, *options in (
        ("take", "take.c"),
        ("libtake.so", "take.c", "-shared", "-fPIC", "-DLIBRARY"),
        ("load", "load.c"),
    ):
        subprocess.run([*compiler, sources / source, *options, "-o", folder / name, "-ldl"], check=True)
    shutil.copy(DRIVER_LIBRARIES / "libcuda.so.1", folder / COPY)
    static = [*compiler, "-static", sources / "take.c", "-o", folder / "static"]
    subprocess.run(static, capture_output=True, check=False)
    shutil.copy(folder / "take", folder / "setuid")
    (folder / "setuid").chmod(0o4755)
    _write_loader(folder / "loader")


def _write_loader(path: Path) -> None:
    """Write a dynamic linker that reads no preload file, as musl's does not: glibc's with another file's name."""
    [own] = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "/ld-linux" in line}
    path.write_bytes(Path(own).read_bytes().replace(isolation.PRELOAD.encode(), b"/etc/no.so.preload"))
    path.chmod(0o755)
