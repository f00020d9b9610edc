"""
What a container sees of the file system and of processes: namespaces and mounts, or path mapping in their place.

Runs in the shim and in the container's own process between fork and exec. Owns the system calls and the rule for mount
points that do not exist; must never change the host's file system, except where runc does too: a mount point missing
inside a mounted directory is created in that directory. Imports next to nothing, because it is paid for at every
container start. Neighbours: `shim` calls it, `containers` chooses the kind of isolation once with `probe`.

The image of every container is the host's root. A mount point that the host lacks (`/etc/ld.so.preload`, say) must not
appear there, so its directory is covered by a memory file system with the same entries, each bound from below.
"""
# Importing pathlib would add a half to the time a container takes to start.
# ruff: noqa: PTH102, PTH103, PTH112, PTH115, PTH116, PTH118, PTH120, PTH123, PTH208, PTH211

from __future__ import annotations

import ctypes
import os
import stat

MOUNT = "namespaces"
"""A mount namespace of its own, made with the privileges of root."""
USER = "user-namespaces"
"""The same inside a user namespace, made by an ordinary user."""
MAPPING = "mapping"
"""No namespace: paths in environment and arguments are rewritten to what would have been mounted there."""

Mount = tuple[str, str, bool]
"""Destination in the container, source on the host, read-only."""

PRELOAD = "/etc/ld.so.preload"

_CLONE_NEWNS, _CLONE_NEWUSER, _CLONE_NEWPID = 0x00020000, 0x10000000, 0x20000000
_MS_RDONLY, _MS_REMOUNT, _MS_BIND, _MS_REC, _MS_PRIVATE, _MS_RELATIME = 1, 32, 4096, 16384, 1 << 18, 1 << 21
_KEPT_FLAGS = 0x2 | 0x4 | 0x8 | 0x400 | 0x800
"""nosuid, nodev, noexec, noatime, nodiratime: a user namespace may not drop them when it remounts."""
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_SIGKILL, _SIGPIPE, _SIG_DFL = 9, 13, 0

_libc = ctypes.CDLL(None, use_errno=True)
_libc.signal.argtypes = (ctypes.c_int, ctypes.c_void_p)


def probe(kind: str, with_pids: bool) -> str | None:
    """Return why isolation of *kind* does not work here, or None if it does; tried in a child process."""
    if kind == MAPPING:
        return "path mapping has no process namespace" if with_pids else None
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        _try(kind, with_pids, writer)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        problem = pipe.read().decode()
    os.waitpid(child, 0)
    return problem or None


def _try(kind: str, with_pids: bool, writer: int) -> None:
    try:
        separate(kind, with_pids)
        child = os.fork()
        if child == 0:
            try:
                enter([], "", with_pids)
                _mount("tmpfs", "/", "tmpfs", 0, "")
            except OSError as error:
                os.write(writer, str(error).encode())
            os._exit(0)
        os.waitpid(child, 0)
    except OSError as error:
        os.write(writer, str(error).encode())
    os._exit(0)


def separate(kind: str, with_pids: bool) -> None:
    """Prepare this process so that its next child can `enter`: user namespace first, then that of processes."""
    if kind == USER:
        user, group = os.geteuid(), os.getegid()
        _unshare(_CLONE_NEWUSER)
        for name, text in (("setgroups", "deny"), ("uid_map", f"0 {user} 1"), ("gid_map", f"0 {group} 1")):
            with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
                file.write(text)
    if with_pids:
        _unshare(_CLONE_NEWPID)


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent ends, so that none outlives its container."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_with_parent() -> None:
    """Be killed when the shim dies, and take signals as a program expects them and not as Python set them."""
    _libc.prctl(_PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0)
    _libc.signal(_SIGPIPE, _SIG_DFL)


def enter(mounts: list[Mount], scratch: str, with_pids: bool) -> None:
    """
    Give this process a mount namespace of its own with *mounts* in it, parents first.

    *scratch* is an empty directory for the container's root, used only if a top-level directory must be added.
    """
    _unshare(_CLONE_NEWNS)
    _mount("none", "/", "", _MS_REC | _MS_PRIVATE, "")
    # All sources are opened before the first mount, which may hide the source of the next.
    sources = [os.open(source, os.O_PATH) for _, source, _ in mounts]
    if any(not os.path.lexists("/" + destination.split("/")[1]) for destination, _, _ in mounts):
        _view("/", scratch)
        os.chroot(scratch)
        os.chdir("/")
    volumes: list[str] = []
    for (destination, _, read_only), source in zip(mounts, sources, strict=True):
        target = os.path.realpath(destination)
        is_directory = stat.S_ISDIR(os.fstat(source).st_mode)
        _create(target, is_directory, volumes)
        _bind(f"/proc/self/fd/{source}", target, read_only)
        os.close(source)
        volumes.append(target)
    if with_pids:
        _mount("proc", "/proc", "proc", 0, "")


def sort_mounts(mounts: list[Mount]) -> list[Mount]:
    """Return *mounts* parents first, otherwise in the order given, as containerd does."""
    return sorted(mounts, key=lambda mount: len(mount[0].strip("/").split("/")))


def map_path(path: str, mounts: list[Mount]) -> str:
    """Return what *path* of the container is called on the host: below the deepest mount that holds it."""
    for destination, source, _ in reversed(sort_mounts(mounts)):
        if path == destination or path.startswith(destination.rstrip("/") + "/"):
            return source + path[len(destination.rstrip("/")) :]
    return path


def map_text(text: str, mounts: list[Mount]) -> str:
    """Map each absolute path in a colon-separated list, or the one path that *text* is."""
    return ":".join(map_path(part, mounts) if part.startswith("/") else part for part in text.split(":"))


def map_environment(environment: dict[str, str], mounts: list[Mount]) -> dict[str, str]:
    """Return the environment with host paths for container paths, `LD_PRELOAD` in the place of the preload file."""
    mapped = {name: map_text(value, mounts) for name, value in environment.items()}
    preload = map_path(PRELOAD, mounts)
    if preload != PRELOAD:
        with open(preload, encoding="utf-8") as file:
            libraries = file.read().replace(":", " ").split()
        mapped["LD_PRELOAD"] = ":".join(map_path(library, mounts) for library in libraries)
    return mapped


def create_mapped_targets(mounts: list[Mount]) -> None:
    """Create mount points that lie inside mounted directories, as entering the namespace would have."""
    for index, (destination, source, _) in enumerate(mounts):
        target = map_path(destination, mounts[:index])
        if target != destination:
            _make(target, os.path.isdir(source))


def _create(target: str, is_directory: bool, volumes: list[str]) -> None:
    """Make the mount point *target* exist without a trace on the host, unless it lies in one of the *volumes*."""
    if os.path.lexists(target):
        return
    ancestor = os.path.dirname(target)
    while not os.path.isdir(ancestor):
        ancestor = os.path.dirname(ancestor)
    is_in_volume = any(ancestor == volume or ancestor.startswith(volume + "/") for volume in volumes)
    if not is_in_volume and not _is_view(ancestor):
        _view(ancestor, ancestor)
    _make(target, is_directory)


def _make(target: str, is_directory: bool) -> None:
    os.makedirs(target if is_directory else os.path.dirname(target), exist_ok=True)
    if not is_directory:
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))


_views: set[int] = set()
"""The file systems `_view` made in this process, by device number."""


def _is_view(directory: str) -> bool:
    return os.stat(directory).st_dev in _views


def _view(directory: str, place: str) -> None:
    """Mount a memory file system at *place* that shows what *directory* holds."""
    names = os.listdir(directory)
    below = os.open(directory, os.O_PATH)
    mode = stat.S_IMODE(os.fstat(below).st_mode)
    _mount("tmpfs", place, "tmpfs", 0, f"mode={mode:o}")
    _views.add(os.stat(place).st_dev)
    for name in names:
        try:
            _show(f"/proc/self/fd/{below}/{name}", os.path.join(place, name))
        except FileNotFoundError:
            continue  # gone since it was listed
    os.close(below)


def _show(source: str, target: str) -> None:
    mode = os.lstat(source).st_mode
    if stat.S_ISLNK(mode):
        os.symlink(os.readlink(source), target)
        return
    if stat.S_ISDIR(mode):
        os.mkdir(target)
    else:
        os.mknod(target)
    _bind(source, target, read_only=False)


def _bind(source: str, target: str, read_only: bool) -> None:
    _mount(source, target, "", _MS_BIND | _MS_REC, "")
    if read_only:
        found = os.statvfs(target).f_flag
        relative = _MS_RELATIME if found & 0x1000 else 0
        _mount("none", target, "", _MS_REMOUNT | _MS_BIND | _MS_RDONLY | (found & _KEPT_FLAGS) | relative, "")


def _unshare(flags: int) -> None:
    if _libc.unshare(flags) == -1:
        raise _system_error("unshare")


def _mount(source: str, target: str, kind: str, flags: int, options: str) -> None:
    arguments = [text.encode() if text else None for text in (source, target, kind)]
    if _libc.mount(*arguments, ctypes.c_ulong(flags), options.encode() or None) == -1:
        raise _system_error(f"mount {kind or 'bind'}", target)


def _system_error(call: str, path: str = "") -> OSError:
    number = ctypes.get_errno()
    return OSError(number, f"{call}: {os.strerror(number)}", path or None)
