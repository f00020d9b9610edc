"""
The first process of a guest: `python -m controlplane.guest.boot GUEST.json`.

Mounts the guest's file systems, and then runs the programs that it finds as `<number>.job` in the channel, a folder
that the guest shares with the machine. When this process ends, the kernel does. Must never know what the programs are
for. Neighbour: `kernel` is the outside, and describes the files.
"""

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from controlplane.machines import linux

MODULES = Path("/usr/lib/uml/modules")
OVERLAY = "kernel/fs/overlayfs/overlay.ko"
GROUPS = Path("/sys/fs/cgroup")
POLL_SECONDS = 0.05


def main(description: Path) -> None:
    """Boot, and serve until the kernel ends. Never returns."""
    try:
        guest = json.loads(description.read_text())
        _mount(description.parent / "own", guest)
        socket.sethostname(guest["name"])
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        linux.load_module(MODULES / os.uname().release / OVERLAY)
        channel = Path(guest["channel"])
        (channel / "ready").touch()
        _serve(channel)
    except BaseException as error:
        print(f"boot of the guest: {type(error).__name__}: {error}", flush=True)
        linux.power_off()


def _mount(files: Path, guest: dict[str, Any]) -> None:
    """Mount what a kernel provides, copies of the machine's `own` folders, which are below *files*, and the channel."""
    linux.mount("proc", "/proc", "proc")
    linux.mount("sysfs", "/sys", "sysfs")
    linux.mount("cgroup2", GROUPS, "cgroup2")
    controllers = (GROUPS / "cgroup.controllers").read_text().split()
    (GROUPS / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in controllers))
    # All are opened before the first mount, which may hide the next.
    originals = {path: os.open(files / path.lstrip("/"), os.O_PATH) for path in guest["own"]}
    for path, handle in originals.items():
        linux.mount("tmpfs", path, "tmpfs", options="mode=755")
        subprocess.run(["cp", "--archive", f"/proc/self/fd/{handle}/.", path], check=True, pass_fds=[handle])
        os.close(handle)
    for path in guest["visible"]:
        if any(path.startswith(f"{own}/") for own in guest["own"]):
            Path(path).mkdir(parents=True, exist_ok=True)
            linux.mount("none", path, "hostfs", linux.MS_RDONLY, path)
    linux.mount("none", guest["channel"], "hostfs", options=guest["channel"])
    _name_frequency()
    linux.mount("none", "/", flags=linux.MS_REC | linux.MS_SHARED)


def _name_frequency() -> None:
    """Add the processor's frequency to /proc/cpuinfo, because a kubelet ends without it."""
    copy = Path("/run/cpuinfo")
    shown = Path("/proc/cpuinfo").read_text()
    copy.write_text(shown.replace("processor\t", "cpu MHz\t\t: 1000.000\nprocessor\t", 1))
    linux.mount(copy, "/proc/cpuinfo", flags=linux.MS_BIND)


def _serve(channel: Path) -> None:
    """Start new jobs, and write the exit status of each."""
    running: dict[int, Path] = {}
    started: set[Path] = set()
    while True:
        for path in sorted(set(channel.glob("*.job")) - started):
            started.add(path)
            running[_spawn(path)] = path
        while (ended := _ended()) is not None:
            pid, status = ended
            if pid in running:
                _answer(running.pop(pid).with_suffix(".exit"), status)
        time.sleep(POLL_SECONDS)


def _spawn(path: Path) -> int:
    job = json.loads(path.read_text())
    # Without O_SYNC, the other side would see the output only when the file is closed.
    output = os.open(path.with_suffix(".out"), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_SYNC, 0o644)
    try:
        # `env` finds the program by the job's PATH, and exits with 127 if there is none.
        return os.posix_spawn(
            "/usr/bin/env",
            ["env", *job["argv"]],
            {**os.environ, **job["environment"]},
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, output, 1),
                (os.POSIX_SPAWN_DUP2, output, 2),
            ],
            setsid=True,
        )
    finally:
        os.close(output)


def _ended() -> tuple[int, int] | None:
    """Reap a process that has ended, and return its pid and exit status. Orphans are reaped as well."""
    try:
        pid, status = os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return None
    return (pid, os.waitstatus_to_exitcode(status)) if pid else None


def _answer(path: Path, status: int) -> None:
    draft = path.with_suffix(".status")
    draft.write_text(str(status))
    draft.rename(path)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
