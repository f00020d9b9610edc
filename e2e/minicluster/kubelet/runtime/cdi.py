"""
Container Device Interface: the edits in the spec files of one directory, cached like in containerd.

Owns the directory watch, the cache and the rules of the CDI specification. Must never read the directory during an
injection, because containerd does not, and a plugin must not rely on it.
Neighbours: `containers` injects. Measured on containerd 2.1.8 (CDI library 1.0.1).
Source: https://github.com/cncf-tags/container-device-interface/blob/v1.0.1/pkg/cdi/cache.go
"""

import asyncio
import ctypes
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml

from minicluster.kubelet.runtime import hooks
from minicluster.kubelet.runtime.isolation import memory

VERSIONS = frozenset({"0.1.0", "0.2.0", "0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0", "1.0.0"})
ANNOTATION_PREFIX = "cdi.k8s.io/"
"""Container annotations with this prefix name devices too, separated by commas."""

_VENDOR = re.compile(r"[A-Za-z]([A-Za-z0-9_.-]*[A-Za-z0-9])?")
_CLASS = re.compile(r"[A-Za-z]([A-Za-z0-9_.-]*[A-Za-z0-9])?")
_DEVICE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?")

_IN_NONBLOCK, _IN_CLOEXEC = 0o4000, 0o2000000
_REFRESHING = 0x2 | 0x40 | 0x200
"""
IN_MODIFY, IN_MOVED_FROM and IN_DELETE, which are Write, Rename and Remove in fsnotify. IN_MOVED_TO is Create in
fsnotify, which the cache ignores. So it does not notice a file that is renamed into the directory from another one.
"""


class CdiError(Exception):
    """A spec file is invalid, or a device cannot be injected."""


class RuntimePanicError(CdiError):
    """A spec file makes the real container runtime crash."""


@dataclass(frozen=True)
class Edits:
    """The changes that a spec makes to a container."""

    environment: tuple[tuple[str, str], ...] = ()
    mounts: tuple[tuple[str, str, bool], ...] = ()
    """Destination, source, read-only. Device files are mounted too."""
    modes: tuple[tuple[str, int], ...] = ()
    """
    Path and mode of each `chmod` hook of NVIDIA's.

    Other hooks are left out: containers here have the machine's root, and a hook would change the machine.
    """
    limits: tuple[tuple[str, ...], ...] = ()
    """The command line of each hook that limits the container."""

    def __add__(self, other: "Edits") -> "Edits":
        """Return these edits followed by *other*."""
        return Edits(
            self.environment + other.environment,
            self.mounts + other.mounts,
            self.modes + other.modes,
            self.limits + other.limits,
        )


@dataclass(frozen=True)
class Spec:
    """A spec file: its kind, the edits for all its devices, and the edits of each device by name."""

    kind: str
    edits: Edits
    devices: dict[str, Edits]


class CdiCache:
    """
    The devices of one directory at the last noticed change.

    `panic` says why a real runtime would have crashed. It stays set from the first such spec file on.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.panic: str | None = None
        self.problems: dict[str, str] = {}
        """The reason why a file is not used, by file name."""
        self._devices: dict[str, tuple[Spec, Edits]] = {}
        self._inotify = -1

    def start(self) -> None:
        """Create and read the directory, and watch its changes in the running event loop."""
        self.directory.mkdir(parents=True, exist_ok=True)
        libc = ctypes.CDLL(None, use_errno=True)
        self._inotify = libc.inotify_init1(_IN_NONBLOCK | _IN_CLOEXEC)
        if libc.inotify_add_watch(self._inotify, bytes(self.directory), _REFRESHING) == -1:
            raise OSError(ctypes.get_errno(), f"cannot watch {self.directory}")
        asyncio.get_running_loop().add_reader(self._inotify, self._follow)
        self._refresh()

    def close(self) -> None:
        """Stop watching the directory."""
        asyncio.get_running_loop().remove_reader(self._inotify)
        os.close(self._inotify)

    def inject(self, names: Iterable[str]) -> Edits:
        """
        Return the edits for the devices *names*. Those of a spec come once, before those of its first device.

        Raises: CdiError with the runtime's text.
        """
        self._follow()
        if self.panic:
            raise RuntimePanicError(self.panic)
        wanted = list(names)
        unresolvable = [name for name in wanted if name not in self._devices]
        if unresolvable:
            raise CdiError(f"CDI device injection failed: unresolvable CDI devices {', '.join(unresolvable)}")
        edits, used = Edits(), set[int]()
        for name in wanted:
            spec, device = self._devices[name]
            if id(spec) not in used:
                edits += spec.edits
                used.add(id(spec))
            edits += device
        return edits

    def _follow(self) -> None:
        """Read the kernel's events, and read the directory again after a change."""
        try:
            changes = os.read(self._inotify, 65536)
        except BlockingIOError:
            return
        if changes:
            self._refresh()

    def _refresh(self) -> None:
        self.problems = {}
        found: dict[str, list[tuple[Spec, Edits]]] = {}
        for path in sorted(self.directory.iterdir()):
            if path.suffix not in {".json", ".yaml"}:
                continue
            try:
                spec = read_spec(path)
            except RuntimePanicError as error:
                self.panic = self.panic or str(error)
            except CdiError as error:
                self.problems[path.name] = str(error)
            except FileNotFoundError:
                continue
            else:
                for name, edits in spec.devices.items():
                    found.setdefault(f"{spec.kind}={name}", []).append((spec, edits))
        # A device in two files is a conflict, and neither is used.
        self._devices = {name: places[0] for name, places in found.items() if len(places) == 1}


def read_spec(path: Path) -> Spec:
    """
    Read and validate one spec file.

    Raises: CdiError with the file and the field; FileNotFoundError if the file is gone.
    """
    try:
        content = yaml.safe_load(path.read_bytes())
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise CdiError(f"{path.name}: not JSON or YAML: {error}") from error
    try:
        return _spec(content)
    except RuntimePanicError as error:
        raise RuntimePanicError(f"the container runtime is down: {path.name}: {error}") from error
    except CdiError as error:
        raise CdiError(f"{path.name}: {error}") from error
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CdiError(f"{path.name}: not of the form of a CDI spec: {error!r}") from error


def _spec(content: dict[str, Any]) -> Spec:
    version, kind = content.get("cdiVersion"), str(content.get("kind", ""))
    if version not in VERSIONS:
        raise CdiError(f"cdiVersion {version!r} is none of {', '.join(sorted(VERSIONS))}")
    vendor, separator, class_name = kind.partition("/")
    if len(vendor) == 1 or (separator and len(class_name) == 1):
        raise RuntimePanicError(f"kind {kind!r}: containerd 2.1.8 panics on a vendor or class of one character")
    if not _VENDOR.fullmatch(vendor) or not _CLASS.fullmatch(class_name):
        raise CdiError(f"kind {kind!r} is not vendor/class with letters, digits, '-', '_' and '.'")
    if not content.get("devices"):
        raise CdiError("invalid spec, no devices")
    devices: dict[str, Edits] = {}
    for device in content["devices"]:
        name = str(device.get("name", ""))
        if not _DEVICE.fullmatch(name):
            raise CdiError(f"device name {name!r} is not of letters, digits, '-', '_', '.' and ':'")
        if name in devices:
            raise CdiError(f"invalid spec, multiple device {name!r}")
        if not any((device.get("containerEdits") or {}).values()):
            raise CdiError(f"device {name!r}: invalid device, empty device edits")
        devices[name] = _edits(device["containerEdits"])
    return Spec(kind, _edits(content.get("containerEdits") or {}), devices)


def _edits(content: dict[str, Any]) -> Edits:
    environment = []
    for entry in content.get("env") or ():
        name, separator, value = entry.partition("=")
        if not separator or not name:
            raise CdiError(f"invalid environment variable {entry!r}, want NAME=VALUE")
        environment.append((name, value))
    mounts = []
    for mount in content.get("mounts") or ():
        if not mount.get("hostPath") or not mount.get("containerPath"):
            raise CdiError(f"invalid mount {mount!r}: hostPath and containerPath must not be empty")
        options = mount.get("options") or ()
        source = memory(options) if mount.get("type") == "tmpfs" else mount["hostPath"]
        mounts.append((mount["containerPath"], source, "ro" in options))
    for node in content.get("deviceNodes") or ():
        if not node.get("path"):
            raise CdiError("invalid (empty) device path")
        mounts.append((node["path"], node.get("hostPath") or node["path"], False))
    modes = [mode for hook in content.get("hooks") or () for mode in _modes(hook.get("args") or ())]
    return Edits(tuple(environment), tuple(mounts), tuple(modes), tuple(_limits(content.get("hooks") or ())))


def _limits(found: Iterable[dict[str, Any]]) -> Iterator[tuple[str, ...]]:
    """Yield the command line of each hook of *found* that limits a container."""
    for hook in found:
        arguments = hook.get("args") or ()
        if hook["hookName"] == "createRuntime" and tuple(arguments[:1]) == (hooks.NAME,):
            yield hook["path"], *arguments[1:]


def _modes(arguments: Sequence[str]) -> Iterator[tuple[str, int]]:
    """Yield each path and its mode in the *arguments* of a hook, which has none unless it is `chmod`."""
    if "chmod" in arguments[1:2]:
        flags = list(pairwise(arguments))
        modes = [int(value, 8) for flag, value in flags if flag == "--mode"]
        yield from ((value, mode) for flag, value in flags if flag == "--path" for mode in modes)
