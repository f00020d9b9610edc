"""
Write, list and remove CDI spec files: one file for each device, one device for each Allocate answer or claim's result.

Owns the names of the files. Neighbours: `allocate.cdi.spec` makes their contents, `files` writes them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from hami_device_plugin.decide.allocate.cdi.edits import Edits
from hami_device_plugin.decide.allocate.cdi.spec import CLAIM_PREFIX, KIND, spec
from hamicommon.errors import HamiError
from hamicommon.runtime.host.atomic_file import remove_temporaries, write_atomically

_NAME = KIND.replace("/", "-")
_PREFIX = f"{_NAME}_"
_CLAIM_PREFIX = f"{_NAME}-claim_"
_SUFFIX = ".json"
_TRIAL = f"{_NAME}.trial{_SUFFIX}"


class CdiDirectoryError(HamiError):
    """The CDI directory cannot be used."""


@dataclass(frozen=True, slots=True)
class SpecFile:
    """One spec of this plugin in the CDI directory."""

    path: Path
    pod_uid: str
    device: str
    """Unqualified name."""


def write_spec(path: Path, content: Mapping[str, Any]) -> bool:
    """
    Write *content*, the spec of one device, to *path*, and return whether that changed it.

    The file is renamed inside its directory: containerd's watcher ignores a rename from another one, and would read
    half of a file that is written in place. Every start writes it again.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    return write_atomically(path, _encoded(content), is_durable=False)


def spec_path(root: Path, pod_uid: str, device: str) -> Path:
    """Return the path in *root* of the spec of *device*, which a container of the Pod gets."""
    return root / f"{_PREFIX}{pod_uid}_{device}{_SUFFIX}"


def claim_spec_path(root: Path, claim_uid: str, device: str) -> Path:
    """Return the path in *root* of the spec of *device*, which containers with a ResourceClaim get."""
    return root / f"{_CLAIM_PREFIX}{claim_uid}_{device}{_SUFFIX}"


def claim_specs(root: Path, claim_uid: str) -> list[Path]:
    """Return the specs in *root* of the devices of a ResourceClaim."""
    return list(root.glob(f"{_CLAIM_PREFIX}{claim_uid}_*{_SUFFIX}"))


def token_specs(root: Path, claim_uid: str) -> list[Path]:
    """Return the specs in *root* of Pods' containers that have tokens of a ResourceClaim."""
    return list(root.glob(f"{_PREFIX}*_{CLAIM_PREFIX}{claim_uid}_*{_SUFFIX}"))


def prepared_claims(root: Path) -> frozenset[str]:
    """Return the UIDs of the ResourceClaims that have specs in *root*, which need not exist."""
    names = [path.name.removeprefix(_CLAIM_PREFIX) for path in root.glob(f"{_CLAIM_PREFIX}*{_SUFFIX}")]
    devices = [found.device for found in spec_files(root)]
    names += [device.removeprefix(CLAIM_PREFIX) for device in devices if device.startswith(CLAIM_PREFIX)]
    return frozenset(name.partition("_")[0] for name in names)


def try_directory(root: Path) -> None:
    """
    Write a spec into *root*, read it back, and remove it.

    Raises:
        CdiDirectoryError: that does not work.
    """
    path, content = root / _TRIAL, spec("trial", Edits(env={"HAMI_TRIAL": "1"}))
    try:
        root.mkdir(parents=True, exist_ok=True)
        write_atomically(path, _encoded(content))
        found = orjson.loads(path.read_bytes())
        path.unlink(missing_ok=True)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise CdiDirectoryError(f"--cdi-root {root}: a spec cannot be written and read there: {reason}") from error
    if found != content:
        raise CdiDirectoryError(f"--cdi-root {root}: a spec that was written there reads differently")


def spec_files(root: Path) -> Iterator[SpecFile]:
    """Yield every spec in *root* of a Pod's container; *root* need not exist."""
    for path in root.glob(f"{_PREFIX}*{_SUFFIX}"):
        pod_uid, _, device = path.name.removeprefix(_PREFIX).removesuffix(_SUFFIX).partition("_")
        if device:
            yield SpecFile(path, pod_uid, device)


def remove_unfinished(root: Path) -> None:
    """Remove the temporary files that a process killed while writing a spec left in *root*."""
    remove_temporaries(root, _NAME)


def host_paths(root: Path) -> frozenset[str]:
    """Return the host path of every mount and hook in this plugin's specs in *root*."""
    return frozenset(path for spec in root.glob(f"{_NAME}*{_SUFFIX}") for path in _named(spec))


def _encoded(content: Mapping[str, Any]) -> bytes:
    return orjson.dumps(content, option=orjson.OPT_INDENT_2)


def _named(path: Path) -> list[str]:
    try:
        edits = [device["containerEdits"] for device in orjson.loads(path.read_bytes())["devices"]]
        mounts = [mount["hostPath"] for each in edits for mount in each.get("mounts", ())]
        return mounts + [hook["path"] for each in edits for hook in each.get("hooks", ())]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        # The runtime cannot read such a file either, so nothing that it names is in use.
        return []
