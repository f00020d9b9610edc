"""
The file `kubelet_internal_checkpoint`: which container owns which device ids.

Owns the format, byte for byte that of kubelet 1.34, with its checksum, because device plugins read the file. Must never
decide anything about devices. Neighbours: `manager` has the state that is written here.
Source: https://github.com/kubernetes/kubernetes/blob/v1.34.4/pkg/kubelet/cm/devicemanager/checkpoint/checkpoint.go
"""

import base64
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import orjson

FILE_NAME = "kubelet_internal_checkpoint"
WITHOUT_TOPOLOGY = -1
"""The NUMA node of devices without topology."""


@dataclass(frozen=True)
class Entry:
    """The ids of one resource that a container owns, and the plugin's answer to Allocate."""

    pod_uid: str
    container: str
    resource: str
    ids_by_numa_node: Mapping[int, tuple[str, ...]]
    response: bytes
    """The ContainerAllocateResponse, serialised."""

    @property
    def ids(self) -> frozenset[str]:
        """All ids, of all NUMA nodes."""
        return frozenset(device for ids in self.ids_by_numa_node.values() for device in ids)


@dataclass(frozen=True)
class Checkpoint:
    """The content of the file: all entries, and the healthy ids of each registered resource."""

    entries: tuple[Entry, ...]
    registered: Mapping[str, tuple[str, ...]]


class CheckpointError(Exception):
    """The file is not a checkpoint, or its checksum is wrong."""


def write_checkpoint(directory: Path, entries: Iterable[Entry], registered: Mapping[str, Iterable[str]]) -> None:
    """Replace the checkpoint in *directory* atomically."""
    checkpoint = Checkpoint(tuple(entries), {resource: tuple(ids) for resource, ids in registered.items()})
    content = {
        "Data": {
            "PodDeviceEntries": [_entry_as_json(entry) for entry in checkpoint.entries] or None,
            "RegisteredDevices": {resource: list(ids) for resource, ids in checkpoint.registered.items()},
        },
        "Checksum": checksum(checkpoint),
    }
    draft = directory / f".{FILE_NAME}.new"
    draft.write_bytes(orjson.dumps(content, option=orjson.OPT_NON_STR_KEYS | orjson.OPT_SORT_KEYS))
    draft.replace(directory / FILE_NAME)


def read_checkpoint(directory: Path) -> Checkpoint | None:
    """
    Return the checkpoint in *directory*, or None if there is none.

    Raises: CheckpointError if it is damaged.
    """
    try:
        content = orjson.loads((directory / FILE_NAME).read_bytes())
        entries = tuple(_entry_of_json(entry) for entry in content["Data"]["PodDeviceEntries"] or ())
        registered = {name: tuple(ids or ()) for name, ids in (content["Data"]["RegisteredDevices"] or {}).items()}
        expected = content["Checksum"]
    except FileNotFoundError:
        return None
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError, ValueError) as error:
        raise CheckpointError(f"{directory / FILE_NAME}: {error!r}") from error
    checkpoint = Checkpoint(entries, registered)
    if checksum(checkpoint) != expected:
        raise CheckpointError(f"{directory / FILE_NAME}: Checksum {expected} is not that of Data")
    return checkpoint


def checksum(checkpoint: Checkpoint) -> int:
    """
    Return the kubelet's Checksum: 32-bit FNV-1a over go-spew's `%#v` of the data.

    Source: https://github.com/kubernetes/kubernetes/blob/v1.34.4/pkg/util/hash/hash.go
    """
    value = 0x811C9DC5
    for byte in _as_go_prints(checkpoint).encode():
        value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    return value


def _as_go_prints(checkpoint: Checkpoint) -> str:
    entries = " ".join(_entry_as_go_prints(entry) for entry in checkpoint.entries)
    registered = " ".join(f"{name}:[{' '.join(ids)}]" for name, ids in sorted(checkpoint.registered.items()))
    return (
        "(checkpoint.checkpointData){PodDeviceEntries:([]checkpoint.PodDevicesEntry)"
        + (f"[{entries}]" if entries else "<nil>")
        + f" RegisteredDevices:(map[string][]string)map[{registered}]}}"
    )


def _entry_as_go_prints(entry: Entry) -> str:
    ids = " ".join(f"{node}:[{' '.join(found)}]" for node, found in sorted(entry.ids_by_numa_node.items()))
    return (
        f"{{PodUID:(string){entry.pod_uid} ContainerName:(string){entry.container} "
        f"ResourceName:(string){entry.resource} DeviceIDs:(checkpoint.DevicesPerNUMA)map[{ids}] "
        f"AllocResp:([]uint8)[{' '.join(str(byte) for byte in entry.response)}]}}"
    )


def _entry_as_json(entry: Entry) -> dict[str, object]:
    return {
        "PodUID": entry.pod_uid,
        "ContainerName": entry.container,
        "ResourceName": entry.resource,
        "DeviceIDs": {node: list(ids) for node, ids in entry.ids_by_numa_node.items()},
        "AllocResp": base64.b64encode(entry.response).decode(),
    }


def _entry_of_json(content: dict[str, object]) -> Entry:
    ids = content["DeviceIDs"]
    response = content["AllocResp"] or ""
    if not isinstance(ids, dict) or not isinstance(response, str):
        raise TypeError("DeviceIDs must be an object and AllocResp a string")
    return Entry(
        str(content["PodUID"]),
        str(content["ContainerName"]),
        str(content["ResourceName"]),
        {int(node): tuple(found) for node, found in ids.items()},
        base64.b64decode(response),
    )
