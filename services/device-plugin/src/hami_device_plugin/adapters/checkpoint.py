"""
Read the kubelet's device checkpoint: which container holds which replicas, from which Allocate answer.

The kubelet writes the file before a container can start. So it names the owner of ordinary init containers' replicas,
which the PodResources API leaves out. It also holds the plugin's Allocate answers, so the plugin needs no record.
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

from hami_device_plugin.decide.owner import Entry
from hamicommon.errors import HamiError
from hamicommon.runtime.kubelet_api._proto import deviceplugin_v1beta1_pb2 as api

FILE_NAME = "kubelet_internal_checkpoint"
"""Beside kubelet.sock, a constant of the kubelet."""
ANSWERS_KEPT = 1024
"""More than the containers with devices of a Node: a kubelet has 110 Pods unless its settings say otherwise."""


class CheckpointError(HamiError):
    """The kubelet's checkpoint is missing, or in an unknown form."""


def read_checkpoint(path: Path) -> tuple[Entry, ...]:
    """
    Return the entries of the checkpoint at *path*.

    Raises:
        CheckpointError: the file cannot be read or decoded.
    """
    return _decoded(path, _text(path))


class Checkpoint:
    """The checkpoint at one path, which is decoded again only when its text has changed."""

    def __init__(self, path: Path) -> None:
        """Read *path* at each call of `read`."""
        self._path = path
        self._decoded: tuple[bytes, tuple[Entry, ...]] = (b"", ())

    def read(self) -> tuple[Entry, ...]:
        """
        Return the entries.

        Raises:
            CheckpointError: the file cannot be read or decoded.
        """
        text = _text(self._path)
        if text != self._decoded[0]:
            self._decoded = (text, _decoded(self._path, text))
        return self._decoded[1]


def check_form(path: Path) -> None:
    """
    Return if the checkpoint at *path* has a known form, or does not exist yet.

    Raises:
        CheckpointError: it cannot be read or decoded.
    """
    if path.exists():
        read_checkpoint(path)


def held_replicas(path: Path, resource: str) -> frozenset[str]:
    """
    Return the replicas of *resource* that Pods hold; none if the checkpoint at *path* cannot be read.
    """
    try:
        entries = read_checkpoint(path)
    except CheckpointError:
        return frozenset()
    return frozenset(replica for entry in entries if entry.resource == resource for replica in entry.replicas)


def decode_checkpoint(text: bytes) -> tuple[Entry, ...]:
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


def _text(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"kubelet checkpoint {path}: {error.strerror}") from error


def _decoded(path: Path, text: bytes) -> tuple[Entry, ...]:
    try:
        return decode_checkpoint(text)
    except CheckpointError as error:
        raise CheckpointError(f"kubelet checkpoint {path}: {error}") from error


def _entry(row: Mapping[str, Any]) -> Entry:
    cdi_devices, host_paths = _answer(row["AllocResp"] or "")
    return Entry(
        pod_uid=row["PodUID"],
        container=row["ContainerName"],
        resource=row["ResourceName"],
        replicas=frozenset(_replicas(row["DeviceIDs"])),
        cdi_devices=cdi_devices,
        host_paths=host_paths,
    )


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
    """
    Return all IDs, which the kubelet groups by NUMA node; kubelets before 1.20 wrote one list.
    """
    if device_ids is None:
        return []
    groups = [device_ids] if isinstance(device_ids, list) else device_ids.values()
    return [replica for group in groups for replica in group]
