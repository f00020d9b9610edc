"""
The kubelet's calls of the device plugin: answers, or the error of the call that the API has for it.

An input has the Pods of the Node, the kubelet's checkpoint and calls with any replica IDs, by identity or under the
lock. Never is an error one of the plugin's own, and what it prefers is what the kubelet has offered. The names of Pods
and containers are those that an API server accepts, because they become names of files.
"""

import asyncio
import base64
import re
import shutil
import sys
import tempfile
from asyncio import AbstractEventLoop
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import grpc
import orjson

from fuzz.targets.forms import DEVICE_PLUGIN, some
from hami_device_plugin.adapters.checkpoint import Checkpoint
from hami_device_plugin.adapters.kube import PodUnknownError
from hami_device_plugin.adapters.kubelet import PluginServer
from hami_device_plugin.config.loader import load
from hami_device_plugin.config.settings import parser
from hami_device_plugin.decide.allocate.cdi.driver import DriverSpec
from hami_device_plugin.decide.allocate.owner import Listed
from hami_device_plugin.decide.probe.enforcement import Enforcement
from hami_device_plugin.decide.probe.strategy import Strategy
from hami_device_plugin.metrics import Metrics
from hami_device_plugin.serve.allocate import calls, identity, kubelet_records
from hamicommon.model import Device
from hamicommon.pod.reading import Pod, read_pod
from hamicommon.pod.shape import POD, check_shape
from hamicommon.runtime.kubelet_api._proto import deviceplugin_v1beta1_pb2 as api
from hamicommon.vendors import nvidia
from hamicommon.wire.errors import DecodeError

INPUTS: Final = 2_000
IS_JSON: Final = True
_NODE: Final = "n1"
_RESOURCE: Final = "nvidia.com/gpu"
_GPU: Final = "GPU-736e040b-3a71-a5e7-2235-eb9c1bd980a8"
_NO_NAME: Final = re.compile(r"[^a-z0-9-]")
_IDS_MAX: Final = 4096

for _module, _name in (
    (calls, "HINT_SECONDS"),
    (identity, "NOTICE_SECONDS"),
    (kubelet_records, "CHECKPOINT_PAUSE_SECONDS"),
    (kubelet_records, "LIST_PAUSE_SECONDS"),
):
    # Nobody else is waited for here. A name that is gone is an error.
    setattr(_module, _name, 0.0 * getattr(_module, _name))


class _AbortError(Exception):
    """The call has ended with a status."""


class _Call:
    """A call of gRPC, which may end only with the status that says why."""

    async def abort(self, code: Any, message: str) -> None:
        if code is not grpc.StatusCode.FAILED_PRECONDITION:
            raise sys.exc_info()[1] or AssertionError(message)
        raise _AbortError(message)


def check(data: bytes) -> None:
    """Answer the calls of an input."""
    try:
        scene = orjson.loads(data)
    except orjson.JSONDecodeError:
        return
    if isinstance(scene, dict):
        _loop().run_until_complete(_answer(scene))


def seeds() -> Iterator[bytes]:
    """Return the calls of HAMi's vectors, and containers that start by identity."""
    for case in some(DEVICE_PLUGIN / "allocate.json", 10):
        lock = case["node"]["metadata"]["annotations"].get("hami.io/mutex.lock")
        made = [{"allocate": call} for call in case["calls"]]
        yield orjson.dumps({"lock": lock, "pods": case["pods"], "calls": made})
    granted = {"hami.io/vgpu-devices-allocated": f"{_GPU},NVIDIA,700,5:;", "hami.io/vgpu-node": _NODE}
    container = {"name": "main", "resources": {"limits": {_RESOURCE: "1"}}}
    pod: dict[str, Any] = {"metadata": {"uid": "u", "name": "p", "namespace": "default", "annotations": granted}}
    pod |= {"spec": {"nodeName": _NODE, "containers": [container]}, "status": {"phase": "Pending"}}
    entry = {"uid": "u", "container": "main", "replicas": [f"{_GPU}-0"], "cdi": ["hami.io/vgpu=a-1"]}
    asked = {"available": [f"{_GPU}-{number}" for number in range(4)], "must": [f"{_GPU}-0"], "size": 2}
    made = [{"preferred": [asked | {"must": [], "size": 1}]}, {"allocate": [[f"{_GPU}-0"]]}, {"start": [f"{_GPU}-0"]}]
    listed = [{"namespace": "default", "pod": "p", "container": "main", "replicas": [f"{_GPU}-0"]}]
    for policy in ("annotation", "aligned", "distributed", "packed"):
        scene = {
            "identity": True,
            "policy": policy,
            "pods": [pod],
            "entries": [entry],
            "calls": [*made, {"preferred": [asked]}],
        }
        yield orjson.dumps(scene | {"listed": listed})


async def _answer(scene: Mapping[str, Any]) -> None:
    for folder in ("vgpu", "cdi"):
        shutil.rmtree(_host() / folder, ignore_errors=True)  # What an earlier input has left changes no answer.
    pods = _pods(scene.get("pods"))
    (_host() / "checkpoint").write_bytes(_checkpoint(scene.get("entries")))
    server = PluginServer(_host() / "socket", _calls(scene, pods), ())
    for call in _dicts(scene.get("calls"))[:8]:
        try:
            if "allocate" in call:
                await _allocate(server, call["allocate"])
            if "preferred" in call:
                await _prefer(server, call["preferred"])
            if "start" in call:
                await server.PreStartContainer(api.PreStartContainerRequest(devices_ids=_ids(call["start"])), _Call())
        except _AbortError:
            continue


async def _allocate(server: PluginServer, wanted: Any) -> None:
    requests = [api.ContainerAllocateRequest(devices_ids=_ids(ids)) for ids in _list(wanted)]
    answer = await server.Allocate(api.AllocateRequest(container_requests=requests), _Call())
    assert len(answer.container_responses) == len(requests)


async def _prefer(server: PluginServer, wanted: Any) -> None:
    requests = [
        api.ContainerPreferredAllocationRequest(
            available_deviceIDs=_ids(each.get("available")),
            must_include_deviceIDs=_ids(each.get("must")),
            allocation_size=_number(each.get("size")),
        )
        for each in _dicts(wanted)
    ]
    message = api.PreferredAllocationRequest(container_requests=requests)
    answer = await server.GetPreferredAllocation(message, _Call())
    assert len(answer.container_responses) <= len(requests)
    offered = {replica for each in requests for replica in (*each.available_deviceIDs, *each.must_include_deviceIDs)}
    assert all(set(each.deviceIDs) <= offered for each in answer.container_responses)


def _calls(scene: Mapping[str, Any], pods: Mapping[str, Pod]) -> calls.Calls:
    """Return the plugin's answers on a Node with one device."""
    config = _config(
        scene.get("policy") if scene.get("policy") in ("aligned", "distributed", "packed") else "annotation"
    )
    context: Any = SimpleNamespace(
        config=config,
        vendor=nvidia.vendor(config.device_config[nvidia.SECTION]),
        view=_View(pods, scene.get("lock")),
        nvml=None,
        resources=SimpleNamespace(listed=lambda: _listed(scene.get("listed"))),
        checkpoint=Checkpoint(_host() / "checkpoint"),
        conditions={},
        metrics=_metrics(),
    )
    offered = tuple(Device(f"{_GPU[:-1]}{last}", 4, 16384, 100, "NVIDIA A10") for last in "89")
    devices: Any = SimpleNamespace(
        by=lambda *_: offered,
        instances=lambda _: None,
        memory_bytes=lambda: {device.id: device.memory_mib << 20 for device in offered},
        offered=SimpleNamespace(found=(), by_resource=()),
    )
    found: Any = SimpleNamespace(
        mode=SimpleNamespace(is_identity=bool(scene.get("identity"))),
        driver_cdi=_Driver(),
        enforcement=Enforcement("library", "the settings say so"),
        is_cdi_named=True,
    )
    links: Any = SimpleNamespace(scores=None)
    return calls.Calls(context, devices, found, links)


class _Driver:
    """The driver's part of a spec, which is empty."""

    strategy = Strategy(("envvar",), "the settings say so")
    hook = ""

    async def part(self, _uuids: Sequence[str]) -> DriverSpec:
        return DriverSpec()

    def expect(self, *_arguments: object) -> None:
        pass


class _View:
    """The Node's Pods, as its watch has shown them, which are those that the API server has."""

    def __init__(self, pods: Mapping[str, Pod], lock: object) -> None:
        self.pods = pods
        self.changed = asyncio.Event()
        self._lock = lock if isinstance(lock, str) else None

    async def wait_pod(self, uid: str) -> Pod:
        if uid not in self.pods:
            raise PodUnknownError(f"Pod {uid} is unknown")
        return self.pods[uid]

    async def wait_pods(self, _seconds: float) -> None:
        pass

    async def wait_seen(self, _uid: str) -> None:
        pass

    async def read_lock(self) -> str | None:
        return self._lock

    async def read_pod(self, namespace: str, name: str) -> Pod:
        found = [pod for pod in self.pods.values() if (pod.namespace, pod.name) == (namespace, name)]
        if not found:
            raise PodUnknownError(f"Pod {namespace}/{name} is unknown")
        return found[0]

    async def read_pods(self) -> list[Pod]:
        return list(self.pods.values())

    async def annotate_pod(self, *_arguments: object) -> None:
        pass

    async def release_lock(self, *_arguments: object) -> None:
        pass

    def report_pod(self, *_arguments: object) -> None:
        pass


def _pods(found: Any) -> dict[str, Pod]:
    pods: dict[str, Pod] = {}
    for item in _dicts(found)[:8]:
        try:
            check_shape(item, POD, "Pod")
            pod = read_pod(item, (nvidia.vendor(nvidia.NvidiaConfig(resource_count_name=_RESOURCE)),))
        except DecodeError:
            continue
        names = (pod.uid, *(container.name for container in pod.containers))
        if all(isinstance(name, str) and name and not _NO_NAME.search(name) for name in names):
            pods[pod.uid] = pod
    return pods


def _checkpoint(found: Any) -> bytes:
    """Return the checkpoint with the given entries, as a kubelet writes it."""
    rows = []
    for entry in _dicts(found)[:64]:
        answer = api.ContainerAllocateResponse(
            cdi_devices=[api.CDIDevice(name=name) for name in _ids(entry.get("cdi")) if not _NO_NAME.search(name[13:])]
        )
        rows.append(
            {
                "PodUID": str(entry.get("uid")),
                "ContainerName": _NO_NAME.sub("-", str(entry.get("container")).lower())[:63] or "c",
                "ResourceName": _RESOURCE,
                "DeviceIDs": {"0": _ids(entry.get("replicas"))},
                "AllocResp": base64.b64encode(answer.SerializeToString()).decode(),
            }
        )
    return orjson.dumps({"Data": {"PodDeviceEntries": rows, "RegisteredDevices": {}}, "Checksum": 1})


async def _listed(found: Any) -> tuple[Listed, ...]:
    return tuple(
        Listed(
            str(each.get("namespace")),
            str(each.get("pod")),
            str(each.get("container")),
            frozenset(_ids(each.get("replicas"))),
        )
        for each in _dicts(found)
    )


def _list(found: Any) -> list[Any]:
    return found[:64] if isinstance(found, list) else []


def _dicts(found: Any) -> list[dict[str, Any]]:
    return [each for each in _list(found) if isinstance(each, dict)]


def _ids(found: Any) -> list[str]:
    """Return the texts in *found*; a number in front of one says how often, because the kubelet may send thousands."""
    texts: list[str] = []
    for each in found if isinstance(found, list) else ():
        if isinstance(each, str):
            texts.append(each)
        elif isinstance(each, int) and texts:
            texts += [f"{texts[-1]}{number}" for number in range(min(max(each, 0), _IDS_MAX - len(texts)))]
    return texts[:_IDS_MAX]


def _number(found: Any) -> int:
    return min(max(int(found), -(2**31)), 2**31 - 1) if isinstance(found, int) else 0


@cache
def _config(policy: str) -> Any:
    environ = {"NODE_NAME": _NODE, "HOOK_PATH": str(_host())}
    flags = [
        "--config-file=/c",
        "--node-config-file=/n",
        f"--shared-devices-allocation-policy={policy}",
        f"--cdi-root={_host()}/cdi",
    ]
    text = f"nvidia:\n  resourceCountName: {_RESOURCE}\n"
    return load(parser().parse_args(flags), environ, {"/c": text, "/n": ""})


@cache
def _metrics() -> Metrics:
    return Metrics()


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory()


def _host() -> Path:
    """Return the folder that stands for the host's; it ends with this process."""
    return Path(_folder().name)


@cache
def _loop() -> AbstractEventLoop:
    return asyncio.new_event_loop()
