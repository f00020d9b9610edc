"""
Read the kubelet's device checkpoint: which container has which replicas, from which Allocate answer.

The kubelet writes the file before a container can start. So it names the owner of ordinary init containers' replicas,
which the PodResources API leaves out. It also has the plugin's Allocate answers, so the plugin needs no record.
Must never write the file: it belongs to the kubelet.
Neighbours: `owner` decides from the entries.
Source: https://github.com/kubernetes/kubernetes/blob/v1.34.4/pkg/kubelet/cm/devicemanager/checkpoint/checkpoint.go
"""

import base64
import binascii
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import orjson
from google.protobuf.message import DecodeError as ProtobufError

from hami_device_plugin.decide.allocate.owner import Allocated
from hamicommon.errors import HamiError
from hamicommon.runtime.kubelet_api._proto import deviceplugin_v1beta1_pb2 as api

FILE_NAME = "kubelet_internal_checkpoint"
"""Beside kubelet.sock, a constant of the kubelet."""
ANSWERS_KEPT = 1024
"""More than the containers with devices of a Node: a kubelet has 110 Pods unless its settings say otherwise."""


class CheckpointError(HamiError):
    """The kubelet's checkpoint is missing, or in an unknown form."""


class Checkpoint:
    """The checkpoint at one path, which is decoded again only when its text has changed."""

    def __init__(self, path: Path) -> None:
        """Read *path* at each call of `read`."""
        self._path = path
        self._decoded: tuple[bytes, tuple[Allocated, ...]] = (b"", ())

    def read(self) -> tuple[Allocated, ...]:
        """
        Return the entries.

        Raises:
            CheckpointError: the file cannot be read or decoded.
        """
        try:
            text = self._path.read_bytes()
            if text != self._decoded[0]:
                self._decoded = (text, decode_checkpoint(text))
        except OSError as error:
            raise CheckpointError(f"kubelet checkpoint {self._path}: {error.strerror}") from error
        except CheckpointError as error:
            raise CheckpointError(f"kubelet checkpoint {self._path}: {error}") from error
        return self._decoded[1]

    def entries(self) -> tuple[Allocated, ...]:
        """
        Return the entries; none while there is no checkpoint, because the kubelet has given nobody a device yet.

        Raises:
            CheckpointError: the file exists, and cannot be read or decoded.
        """
        return self.read() if self._path.exists() else ()

    def of(self, resource: str) -> tuple[Allocated, ...]:
        """Return what containers have of *resource*; nothing if the file is missing or cannot be read."""
        try:
            return tuple(entry for entry in self.read() if entry.resource == resource)
        except CheckpointError:
            return ()


def decode_checkpoint(text: bytes) -> tuple[Allocated, ...]:
    """
    Return the entries in *text*, in file order.

    Raises:
        CheckpointError: *text* is not a checkpoint of kubelet 1.20 or newer.
    """
    try:
        rows = orjson.loads(text)["Data"]["PodDeviceEntries"] or ()
        return tuple(_entry(row) for row in rows)
    except (ValueError, KeyError, TypeError, AttributeError, binascii.Error, ProtobufError) as error:
        raise CheckpointError(f"unknown form: {error!r}") from error


def _entry(row: Mapping[str, Any]) -> Allocated:
    cdi_devices, host_paths = _answer(row["AllocResp"] or "")
    names, replicas = (row["PodUID"], row["ContainerName"], row["ResourceName"]), _replicas(row["DeviceIDs"])
    if not all(isinstance(text, str) for text in (*names, *replicas)):
        raise TypeError("a name is no text")
    return Allocated(*names, frozenset(replicas), cdi_devices, host_paths)


@lru_cache(ANSWERS_KEPT)
def _answer(text: str) -> tuple[tuple[str, ...], frozenset[str]]:
    """
    Return the CDI devices and the host paths of the mounts in an Allocate answer, which the kubelet keeps as it is.
    """
    answer = api.ContainerAllocateResponse.FromString(base64.b64decode(text, validate=True))
    devices = (*(device.name for device in answer.cdi_devices), *_annotated(answer))
    return tuple(dict.fromkeys(devices)), frozenset(mount.host_path for mount in answer.mounts)


def _annotated(answer: Any) -> list[str]:
    """Return the CDI names in the annotations of an Allocate answer; the plugin gives no other annotations."""
    return [name for value in answer.annotations.values() for name in value.split(",")]


def _replicas(device_ids: Mapping[str, list[str]] | list[str] | None) -> list[str]:
    """Return all IDs, which the kubelet groups by NUMA node; kubelets before 1.20 wrote one list."""
    if device_ids is None:
        return []
    groups = [device_ids] if isinstance(device_ids, list) else device_ids.values()
    return [replica for group in groups for replica in group]
