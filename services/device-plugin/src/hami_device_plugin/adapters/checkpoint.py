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
from pathlib import Path
from typing import Any

import orjson
from google.protobuf.message import DecodeError as ProtobufError

from hami_device_plugin.decide.owner import Entry
from hamicommon.errors import HamiError
from hamicommon.runtime.kubelet_api._proto import deviceplugin_v1beta1_pb2 as api

FILE_NAME = "kubelet_internal_checkpoint"
"""Beside kubelet.sock, a constant of the kubelet."""


class CheckpointError(HamiError):
    """The kubelet's checkpoint is missing, or in an unknown form."""


def read_checkpoint(path: Path) -> tuple[Entry, ...]:
    """
    Return the entries of the checkpoint at *path*.

    Raises:
        CheckpointError: the file cannot be read or decoded.
    """
    try:
        text = path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"kubelet checkpoint {path}: {error.strerror}") from error
    try:
        return decode_checkpoint(text)
    except CheckpointError as error:
        raise CheckpointError(f"kubelet checkpoint {path}: {error}") from error


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


def _entry(row: Mapping[str, Any]) -> Entry:
    answer = api.ContainerAllocateResponse.FromString(base64.b64decode(row["AllocResp"] or "", validate=True))
    return Entry(
        pod_uid=row["PodUID"],
        container=row["ContainerName"],
        resource=row["ResourceName"],
        replicas=frozenset(_replicas(row["DeviceIDs"])),
        cdi_devices=tuple(dict.fromkeys((*(device.name for device in answer.cdi_devices), *_annotated(answer)))),
        host_paths=frozenset(mount.host_path for mount in answer.mounts),
    )


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
