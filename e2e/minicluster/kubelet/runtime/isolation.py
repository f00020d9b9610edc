"""
Isolate a container's files and processes: namespaces and mounts, or path mapping instead.

Runs in the shim, and in the container's process between fork and exec. Owns the system calls, and the rule for missing
mount points. Must never change the host's file system, except like runc: a mount point that is missing inside a mounted
directory is created there. Imports little, because every start of a container pays for it. Neighbours: `shim` calls it,
`containers` chooses the kind of isolation once with `probe`.

The image of every container is the host's root. A mount point that the host lacks, such as `/etc/ld.so.preload`, must
not appear on the host. So a memory file system with the same entries, each a bind mount, covers its directory.
"""
# Importing pathlib would make the start of a container take half as long again.
# ruff: noqa: PTH102, PTH103, PTH112, PTH115, PTH116, PTH118, PTH120, PTH123, PTH208, PTH211

from __future__ import annotations

import ctypes
import os
import stat
from collections.abc import Iterable

MOUNT = "namespaces"
"""A mount namespace, made by root."""
USER = "user-namespaces"
"""A mount namespace in a user namespace, made by an ordinary user."""
MAPPING = "mapping"
"""No namespace. Paths in environment and arguments are rewritten to the sources of mounts."""

Mount = tuple[str, str, bool]
"""Destination in the container, source on the host or `memory`, read-only."""
_MEMORY = "tmpfs:"

PRELOAD = "/etc/ld.so.preload"

_CLONE_NEWNS, _CLONE_NEWUSER, _CLONE_NEWPID = 0x00020000, 0x10000000, 0x20000000
_MS_RDONLY, _MS_REMOUNT, _MS_BIND, _MS_REC, _MS_PRIVATE, _MS_RELATIME = 1, 32, 4096, 16384, 1 << 18, 1 << 21
_KEPT_FLAGS = 0x2 | 0x4 | 0x8 | 0x400 | 0x800
"""nosuid, nodev, noexec, noatime, nodiratime, which a remount in a user namespace must keep."""
OPEN_TO_ALL = stat.S_IXGRP | stat.S_IXOTH
"""The mode bits of a folder that every user may enter, of whatever group."""
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 1, 36, 38
_SIGKILL, _SIGPIPE, _SIG_DFL = 9, 13, 0

_libc = ctypes.CDLL(None, use_errno=True)
_libc.signal.argtypes = (ctypes.c_int, ctypes.c_void_p)


def memory(options: Iterable[str]) -> str:
    """Return the source of a memory file system with those of *options* that have a value."""
    return _MEMORY + ",".join(option for option in options if "=" in option)


def probe(kind: str, with_pids: bool) -> str | None:
    """Try isolation of *kind* in a child process, and return why it does not work, or None."""
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
    """Prepare this process so that its next child can `enter`: first the user namespace, then that of processes."""
    if kind == USER:
        user, group = os.geteuid(), os.getegid()
        _unshare(_CLONE_NEWUSER)
        for name, text in (("setgroups", "deny"), ("uid_map", f"0 {user} 1"), ("gid_map", f"0 {group} 1")):
            with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
                file.write(text)
    if with_pids:
        _unshare(_CLONE_NEWPID)


def adopt_orphans() -> None:
    """Become the parent of orphaned descendants, so that none outlives its container."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_with_parent() -> None:
    """Let the kernel kill this process when the shim ends, and reset the signals that Python changed."""
    _libc.prctl(_PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0)
    _libc.signal(_SIGPIPE, _SIG_DFL)


def become(uid: int, gid: int, *, no_new_privileges: bool) -> None:
    """Continue as the user *uid* of the group *gid*, without the capabilities of root."""
    if (uid, gid) != (0, 0):
        os.setgroups([gid])
        os.setgid(gid)
        os.setuid(uid)
    if no_new_privileges:
        _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    end_with_parent()  # the kernel forgets it for another user


def enter(mounts: list[Mount], scratch: str, with_pids: bool, closed: Iterable[str] = ()) -> None:
    """
    Move this process to a new mount namespace with *mounts*, parents first.

    In it all users may enter the folders *closed*, outermost first: as in an image, whose programs are for all users.
    *scratch* is an empty directory for the container's root. It is used only if a top-level directory must be added.
    """
    _unshare(_CLONE_NEWNS)
    _mount("none", "/", "", _MS_REC | _MS_PRIVATE, "")
    # All sources are opened before the first mount, which may hide the source of the next.
    sources = [-1 if source.startswith(_MEMORY) else os.open(source, os.O_PATH) for _, source, _ in mounts]
    if any(not os.path.lexists("/" + destination.split("/")[1]) for destination, _, _ in mounts):
        _view("/", scratch)
        os.chroot(scratch)
        os.chdir("/")
    for folder in closed:
        _view(folder, folder, OPEN_TO_ALL)
    volumes: list[str] = []
    for (destination, name, read_only), source in zip(mounts, sources, strict=True):
        target = os.path.realpath(destination)
        if source == -1:
            _create(target, True, volumes)
            _mount("tmpfs", target, "tmpfs", 0, name.removeprefix(_MEMORY))
            volumes.append(target)
            continue
        is_directory = stat.S_ISDIR(os.fstat(source).st_mode)
        _create(target, is_directory, volumes)
        _bind(f"/proc/self/fd/{source}", target, read_only)
        os.close(source)
        volumes.append(target)
    if with_pids:
        _mount("proc", "/proc", "proc", 0, "")


def sort_mounts(mounts: list[Mount]) -> list[Mount]:
    """Return *mounts* sorted parents first, and otherwise in the given order, like containerd."""
    return sorted(mounts, key=lambda mount: len(mount[0].strip("/").split("/")))


def without_memory(mounts: list[Mount]) -> list[Mount]:
    """Return *mounts* without memory file systems: no path of the host stands for them."""
    return [mount for mount in mounts if not mount[1].startswith(_MEMORY)]


def map_path(path: str, mounts: list[Mount]) -> str:
    """Return the host's path for *path* of the container, below the deepest mount that contains it."""
    for destination, source, _ in reversed(sort_mounts(mounts)):
        if path == destination or path.startswith(destination.rstrip("/") + "/"):
            return source + path[len(destination.rstrip("/")) :]
    return path


def map_text(text: str, mounts: list[Mount]) -> str:
    """Map each absolute path in *text*, a path or a colon-separated list."""
    return ":".join(map_path(part, mounts) if part.startswith("/") else part for part in text.split(":"))


def map_environment(environment: dict[str, str], mounts: list[Mount]) -> dict[str, str]:
    """Return the environment with host paths, and with `LD_PRELOAD` instead of the preload file."""
    mapped = {name: map_text(value, mounts) for name, value in environment.items()}
    preload = map_path(PRELOAD, mounts)
    if preload != PRELOAD:
        with open(preload, encoding="utf-8") as file:
            libraries = file.read().replace(":", " ").split()
        mapped["LD_PRELOAD"] = ":".join(map_path(library, mounts) for library in libraries)
    return mapped


def create_mapped_targets(mounts: list[Mount]) -> None:
    """Create the mount points inside mounted directories, as `enter` would."""
    for index, (destination, source, _) in enumerate(mounts):
        target = map_path(destination, mounts[:index])
        if target != destination:
            _make(target, os.path.isdir(source))


def _create(target: str, is_directory: bool, volumes: list[str]) -> None:
    """Create the mount point *target*. The host does not see it, unless it lies in one of the *volumes*."""
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
"""The device numbers of the file systems that `_view` made in this process."""


def _is_view(directory: str) -> bool:
    return os.stat(directory).st_dev in _views


def _view(directory: str, place: str, more_mode: int = 0) -> None:
    """Mount a memory file system at *place* with the entries of *directory*, and *more_mode* beside its mode."""
    names = os.listdir(directory)
    below = os.open(directory, os.O_PATH)
    mode = stat.S_IMODE(os.fstat(below).st_mode) | more_mode
    _mount("tmpfs", place, "tmpfs", 0, f"mode={mode:o}")
    _views.add(os.stat(place).st_dev)
    for name in names:
        try:
            _show(f"/proc/self/fd/{below}/{name}", os.path.join(place, name))
        except FileNotFoundError:
            continue  # removed meanwhile
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
