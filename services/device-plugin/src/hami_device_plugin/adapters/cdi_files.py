"""
Keep the files of CDI specs that the container runtime reads: one file, one device, one Allocate answer.

Owns the names of the files of our kind. Neighbours: `cdi` says what is in them, `files` writes.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import orjson

from hami_device_plugin.adapters.files import remove_temporaries, write_atomically
from hami_device_plugin.decide.allocation import Grant
from hami_device_plugin.decide.cdi import KIND, spec

_PREFIX = KIND.replace("/", "-") + "_"
_SUFFIX = ".json"


@dataclass(frozen=True, slots=True)
class SpecFile:
    """One spec of this plugin in the CDI directory."""

    path: Path
    pod_uid: str
    device: str
    """Unqualified name."""


def write_spec(root: Path, pod_uid: str, device: str, grant: Grant) -> bool:
    """
    Put the spec of *device* into *root* and return whether that changed anything.

    The file appears by a rename inside *root*: containerd's watcher ignores a rename from another directory, and would
    read half a file that is written in place.
    """
    root.mkdir(parents=True, exist_ok=True)
    path = root / f"{_PREFIX}{pod_uid}_{device}{_SUFFIX}"
    return write_atomically(path, orjson.dumps(spec(device, grant), option=orjson.OPT_INDENT_2))


def spec_files(root: Path) -> Iterator[SpecFile]:
    """
    Yield every spec of this plugin in *root*; none where *root* does not exist.
    """
    for path in root.glob(f"{_PREFIX}*{_SUFFIX}"):
        pod_uid, _, device = path.name.removeprefix(_PREFIX).removesuffix(_SUFFIX).partition("_")
        if device:
            yield SpecFile(path, pod_uid, device)


def remove_unfinished(root: Path) -> None:
    """
    Remove what a process killed while it wrote a spec left in *root*.
    """
    remove_temporaries(root, _PREFIX)


def remove_specs(root: Path, is_stale: Callable[[SpecFile], bool]) -> int:
    """
    Remove the specs *is_stale* says so of, and return how many.
    """
    stale = [found for found in spec_files(root) if is_stale(found)]
    for found in stale:
        found.path.unlink(missing_ok=True)
    return len(stale)


def host_paths(root: Path) -> frozenset[str]:
    """
    Return the host side of every mount that this plugin's specs in *root* name.
    """
    return frozenset(path for found in spec_files(root) for path in _mounted(found.path))


def _mounted(path: Path) -> list[str]:
    try:
        devices = orjson.loads(path.read_bytes())["devices"]
        return [mount["hostPath"] for device in devices for mount in device["containerEdits"].get("mounts", ())]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        # A file nobody can read resolves no device either, so nothing it names is in use.
        return []
