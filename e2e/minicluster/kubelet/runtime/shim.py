"""
The parent of one container, which starts it, outlives the kubelet, and records its end.

Owns the files beside its `<attempt>.spec.json`: `<attempt>.run.json` once the program runs, `<attempt>.exit.json` once
all processes of the container have ended, and `pid` in between. Must never depend on the kubelet, like containerd's
shim. It closes its standard output once the result of the start is written.
Neighbours: `containers` writes the spec and reads the other files, `isolation` does the system calls.
"""
# Importing pathlib would make the start of a container take half as long again.
# ruff: noqa: PTH104, PTH108, PTH118, PTH120, PTH123

from __future__ import annotations

import json
import os
import time

from minicluster.kubelet.runtime import isolation
from minicluster.pids import start_ticks

START_ERROR_CODE = 128
"""The exit code in Kubernetes of a container whose program could not be started."""


def main(spec_path: str) -> None:
    """Run the container described in the file *spec_path* to its end."""
    with open(spec_path, encoding="utf-8") as file:
        spec = json.load(file)
    prefix = spec_path.removesuffix(".spec.json")
    isolation.adopt_orphans()
    reader, writer = os.pipe()
    try:
        isolation.separate(spec["isolation"], spec["pid_namespace"])
        container = os.fork()
    except OSError as error:
        _write(f"{prefix}.exit.json", _start_error(error))
        return
    if container == 0:
        _become(spec, writer)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        problem = pipe.read().decode()
    if problem:
        os.waitpid(container, 0)
        _write(f"{prefix}.exit.json", json.loads(problem))
        return
    run = {"pid": container, "ticks": start_ticks(container), "shim_pid": os.getpid()}
    _write(f"{prefix}.run.json", {**run, "shim_ticks": start_ticks(os.getpid()), "started_at": time.time()})
    pid_path = os.path.join(os.path.dirname(prefix), "pid")
    with open(pid_path, "w", encoding="ascii") as file:
        file.write(f"{container}\n")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    code = _wait(container)
    os.unlink(pid_path)
    _write(f"{prefix}.exit.json", {"exit_code": code, "finished_at": time.time()})


def _become(spec: dict[str, object], writer: int) -> None:
    """Execute the container's program in this forked child, or write the problem to *writer*."""
    try:
        isolation.end_with_parent()
        os.setsid()
        log = os.open(str(spec["log"]), os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o644)
        for number, target in ((os.open(os.devnull, os.O_RDONLY), 0), (log, 1), (log, 2)):
            os.dup2(number, target)
        _execute(spec)
    except BaseException as error:
        os.write(writer, json.dumps(_start_error(error)).encode())
    os._exit(START_ERROR_CODE)


def _execute(spec: dict[str, object]) -> None:
    argv: list[str] = list(spec["argv"])  # type: ignore[call-overload]
    environment: dict[str, str] = dict(spec["environment"])  # type: ignore[call-overload]
    mounts: list[isolation.Mount] = [tuple(mount) for mount in spec["mounts"]]  # type: ignore[attr-defined]
    folder = str(spec["cwd"])
    if spec["isolation"] == isolation.MAPPING:
        mounts = isolation.without_memory(mounts)
        isolation.create_mapped_targets(mounts)
        argv = [isolation.map_text(argument, mounts) for argument in argv]
        environment = isolation.map_environment(environment, mounts)
        folder = isolation.map_path(folder, mounts)
    else:
        closed: list[str] = list(spec["closed"])  # type: ignore[call-overload]
        isolation.enter(mounts, str(spec["scratch"]), bool(spec["pid_namespace"]), closed)
    os.get_exec_path(environment)  # it imports a module, whose file another user may not read
    user = int(spec["uid"]), int(spec["gid"])  # type: ignore[call-overload]
    isolation.become(*user, no_new_privileges=bool(spec["no_new_privileges"]))
    os.chdir(folder)
    try:
        os.execvpe(argv[0], argv, environment)
    except FileNotFoundError as error:
        raise FileNotFoundError(f'exec: "{argv[0]}": executable file not found in $PATH') from error


def _wait(container: int) -> int:
    """Reap processes until *container* ends, kill the rest, and return its exit code, 128+n for signal n."""
    while True:
        pid, status = os.wait()
        if pid == container:
            break
    code = os.waitstatus_to_exitcode(status)
    while True:
        for child in _children():
            os.kill(child, 9)
        try:
            os.wait()
        except ChildProcessError:
            return code if code >= 0 else 128 - code


def _children() -> list[int]:
    with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:
        return [int(pid) for pid in file.read().split()]


def _start_error(error: BaseException) -> dict[str, object]:
    return {
        "exit_code": START_ERROR_CODE,
        "reason": "StartError",
        "message": f"unable to start container process: {error}",
        "finished_at": time.time(),
    }


def _write(path: str, content: dict[str, object]) -> None:
    draft = f"{path}.new"
    with open(draft, "w", encoding="utf-8") as file:
        json.dump(content, file)
    os.rename(draft, path)
