"""
A container of a drill: its programs run in the embedded cluster's runtime, without a cluster.

Owns its files and processes. Neighbours: `holders` hold its share, `programs` are what tries to leave it, `memory` and
`compute` find out what it really got.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from drills.holders import DRIVER_LIBRARIES, REGION, Holder, Host, Library
from minicluster.kubelet.runtime import isolation
from minicluster.kubelet.runtime.cdi import CdiCache
from minicluster.kubelet.runtime.containers import RunningContainer, Runtime, Wanted
from minicluster.kubelet.runtime.isolation import Mount
from testbed.driver.hardware import VARIABLES_FILE
from testbed.waiting import eventually

KINDS = [kind for kind in (isolation.MOUNT, isolation.USER) if isolation.probe(kind, True) is None]
"""How containers can be made on this machine, best first. Empty if they cannot."""
COPY = "libcuda.so.570"
"""The driver's file again, under another name."""
_RESULT = re.compile(r"^\d+: \d+$", re.MULTILINE)
_HOLD = 'hold() { "$@" >$FIRST & until [ -s $FIRST ]; do sleep 0.05; done; cat $FIRST; }\n'
"""`hold PROGRAM...` goes on when the program has printed a result, and lets it run."""


class Container:
    """
    A container with a share of a device that *holders* hold.

    Its scripts have variables: TAKE, STATIC, SETUID, LOADER, DEEPBIND, DLMOPEN and COPY are commands that take what
    their arguments say, and REGION is the region file. `hold` lets a first program run beside a second.
    """

    def __init__(self, host: Host, programs: Path, holders: Sequence[Holder]) -> None:
        self.host = host
        self.holders = holders
        self.image: list[Mount] = []
        """What the image has, which holders may cover."""
        self._programs = programs
        self._container: RunningContainer | None = None

    def leave_out_library(self) -> None:
        """Mount no preload file, no library and no limits, as for a Pod that switched the library off."""
        self.holders = [holder for holder in self.holders if not isinstance(holder, Library)]

    @property
    def region(self) -> Path | None:
        """The region file on the Node; None without the library."""
        return next((holder.region for holder in self.holders if isinstance(holder, Library)), None)

    @property
    def pid(self) -> int:
        """The pid of its first process on the Node."""
        return int((self.host.folder / "pods/uid/main/pid").read_text())

    async def run(self, script: str, results: int) -> str:
        """Run a shell script until its programs have printed so many results, and return the log. They go on."""
        folder = self.host.folder
        (folder / "variables").write_text("".join(f"{name}={value}\n" for name, value in self.host.variables.items()))
        (folder / "first").touch()
        (folder / "first").chmod(0o666)
        cdi = CdiCache(folder / "cdi")
        cdi.start()
        try:
            runtime = Runtime(folder, cdi, None, KINDS[0], with_pid_namespace=True)
            mounts = [*self.image, *(mount for holder in self.holders for mount in holder.mounts)]
            mounts.append((str(VARIABLES_FILE), str(folder / "variables"), True))
            wanted = Wanted("uid", "main", 0, self._command(script), self._environment(), "/", mounts)
            self._container = await runtime.start(wanted)
        finally:
            cdi.close()
        container = self._container
        for holder in self.holders:
            await holder.limit(self.pid)

        def has_printed() -> bool:
            return len(_RESULT.findall(container.log.read_text())) >= results or not container.is_running

        await eventually(has_printed, f"{results} results of {script!r}", 60)
        assert container.is_running, container.log.read_text()
        return container.log.read_text()

    async def remove(self) -> None:
        """Kill its processes, and remove what its holders left."""
        if self._container is not None:
            await self._container.stop(0)
        for holder in self.holders:
            await holder.remove()

    def _command(self, script: str) -> list[str]:
        preludes = "".join(holder.prelude for holder in self.holders)
        user = " ".join(holder.user for holder in self.holders if holder.user)
        return ["sh", "-c", f'{preludes}exec {user} sh -c "$1"', "sh", _HOLD + script]

    def _environment(self) -> dict[str, str]:
        programs, driver = self._programs, DRIVER_LIBRARIES / "libcuda.so.1"
        environment = {
            "PATH": os.environ["PATH"],
            "TAKE": f"{programs}/take {driver}",
            "STATIC": f"{programs}/static {driver}",
            "SETUID": f"{programs}/setuid {driver}",
            "LOADER": f"{programs}/loader {programs}/take {driver}",
            "DEEPBIND": f"{programs}/load deepbind {programs}/libtake.so {driver}",
            "DLMOPEN": f"{programs}/load namespace {programs}/libtake.so {driver}",
            "COPY": f"env LD_LIBRARY_PATH={driver.parent} {programs}/load copy {programs}/libtake.so {programs}/{COPY}",
            "REGION": REGION,
            "FIRST": str(self.host.folder / "first"),
        }
        for holder in self.holders:
            environment |= holder.environment
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
