"""
Write, list and remove CDI spec files: one file for each device, one device for each Allocate answer.

Owns the names of the files. Neighbours: `cdi` makes their contents, `files` writes them.
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
    Write the spec of *device* into *root*, and return whether that changed it.

    The file is renamed inside *root*: containerd's watcher ignores a rename from another directory, and would read half
    of a file that is written in place.
    """
    root.mkdir(parents=True, exist_ok=True)
    path = root / f"{_PREFIX}{pod_uid}_{device}{_SUFFIX}"
    return write_atomically(path, orjson.dumps(spec(device, grant), option=orjson.OPT_INDENT_2))


def spec_files(root: Path) -> Iterator[SpecFile]:
    """
    Yield every spec of this plugin in *root*, which need not exist.
    """
    for path in root.glob(f"{_PREFIX}*{_SUFFIX}"):
        pod_uid, _, device = path.name.removeprefix(_PREFIX).removesuffix(_SUFFIX).partition("_")
        if device:
            yield SpecFile(path, pod_uid, device)


def remove_unfinished(root: Path) -> None:
    """
    Remove the temporary files that a process killed while writing a spec left in *root*.
    """
    remove_temporaries(root, _PREFIX)


def remove_specs(root: Path, is_stale: Callable[[SpecFile], bool]) -> int:
    """
    Remove the specs for which *is_stale* returns True, and return their number.
    """
    stale = [found for found in spec_files(root) if is_stale(found)]
    for found in stale:
        found.path.unlink(missing_ok=True)
    return len(stale)


def host_paths(root: Path) -> frozenset[str]:
    """
    Return the host path of every mount in this plugin's specs in *root*.
    """
    return frozenset(path for found in spec_files(root) for path in _mounted(found.path))


def _mounted(path: Path) -> list[str]:
    try:
        devices = orjson.loads(path.read_bytes())["devices"]
        return [mount["hostPath"] for device in devices for mount in device["containerEdits"].get("mounts", ())]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        # The runtime cannot read such a file either, so nothing that it names is in use.
        return []
