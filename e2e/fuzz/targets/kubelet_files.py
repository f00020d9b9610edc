"""
What the kubelet says of its containers: its checkpoint, and the answer of its PodResources API.

Entries, or CheckpointError, which the plugin takes for a kubelet that it does not know. The first byte of an input
chooses one of the two.
"""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import orjson
from google.protobuf.message import DecodeError as ProtobufError

from hami_device_plugin.adapters.checkpoint import CheckpointError, decode_checkpoint
from hami_device_plugin.adapters.kubelet import PodResources
from hami_device_plugin.decide.allocate.owner import Listed, OwnerError, contradiction, owner
from hamicommon.runtime.kubelet_api._proto import deviceplugin_v1beta1_pb2 as api
from hamicommon.runtime.kubelet_api._proto import podresources_v1_pb2 as resources

INPUTS: Final = 8_000
IS_JSON: Final = True
_RESOURCE: Final = "nvidia.com/gpu"


def check(data: bytes) -> None:
    """Read a checkpoint, or an answer if it begins like none."""
    if data[:1] in (b"{", b"["):
        with suppress(CheckpointError):
            entries = decode_checkpoint(data)
            for entry in entries[:4]:
                with suppress(OwnerError):
                    owner(entry.replicas, entry.resource, entries)
    else:
        with suppress(ProtobufError):
            answer = resources.ListPodResourcesResponse.FromString(data)
            listed = PodResources._listed(_POD_RESOURCES, answer)
            assert all(each.replicas for each in listed)
            _contradict(listed)


def seeds() -> Iterator[bytes]:
    """Return checkpoints of several kubelets, and an answer."""
    answer = api.ContainerAllocateResponse(
        cdi_devices=[api.CDIDevice(name="hami.io/vgpu=a-1")], annotations={"a": "b,c"}
    )
    row = {
        "PodUID": "u",
        "ContainerName": "c",
        "ResourceName": _RESOURCE,
        "AllocResp": _base64(answer.SerializeToString()),
    }
    for ids in ({"-1": ["GPU-a-0"]}, {"0": ["a"], "1": ["b", "b"]}, ["a"], None):
        yield orjson.dumps({"Data": {"PodDeviceEntries": [row | {"DeviceIDs": ids}] * 2}, "Checksum": 1})
    yield orjson.dumps({"Data": {"PodDeviceEntries": None, "RegisteredDevices": {_RESOURCE: ["a"]}}})
    devices = resources.ContainerDevices(resource_name=_RESOURCE, device_ids=["GPU-a-0", "GPU-a-1"])
    container = resources.ContainerResources(name="c", devices=[devices])
    pod = resources.PodResources(name="p", namespace="ns", containers=[container])
    yield resources.ListPodResourcesResponse(pod_resources=[pod, pod]).SerializeToString()


def _contradict(listed: list[Listed]) -> None:
    for each in listed[:4]:
        contradiction(each.replicas, each.namespace, each.pod, listed)


def _base64(data: bytes) -> str:
    import base64

    return base64.b64encode(data).decode()


_POD_RESOURCES: Final = PodResources.__new__(PodResources)
_POD_RESOURCES._path, _POD_RESOURCES._resource = Path("socket"), _RESOURCE
