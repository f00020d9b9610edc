"""
Allocation under the Node's lock: the answers of HAMi 2.10's plugin to generated calls.
"""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest
from device_plugin_apiserver import ApiServer

from hami_device_plugin.adapters.kube import NodeKube
from hami_device_plugin.decide.allocate.allocation import DEVICE_UUIDS, LOCK_DIRECTORY, Grant, GrantPolicy
from hami_device_plugin.decide.allocate.cdi.spec import LimitHook
from hami_device_plugin.decide.probe.enforcement import Enforcement
from hami_device_plugin.serve.allocate.lock import LockAllocator
from hami_device_plugin.serve.allocate.served_node import ServedNode
from hamicommon.config.device_config import DeviceConfig
from hamicommon.errors import HamiError
from hamicommon.runtime.api.kube import Kube
from hamicommon.vendors import nvidia
from hamicommon.vendors.nvidia import NvidiaConfig

CASES = json.loads((Path(__file__).parent / "vectors/allocate.json").read_text())
CONFIG = DeviceConfig().replaced(nvidia.SECTION, NvidiaConfig(resource_count_name="nvidia.com/gpu"))
SHOWN_ANNOTATIONS = (
    "hami.io/bind-phase",
    "hami.io/vgpu-devices-to-allocate",
    "hami.io/vgpu-devices-allocated",
)
UUID4 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


def an_allocator(case: dict[str, Any], view: NodeKube, hook_path: Path) -> LockAllocator:
    """Return the allocator of a plugin with the settings of *case*."""
    policy = GrantPolicy(
        hook_path=str(hook_path),
        lock_directory=f"{hook_path}/lock",
        list_strategies=tuple(case["device_list_strategy"]),
        is_oversubscribed=case["device_memory_scaling"] > 1,
        lib_cuda_log_level=case["lib_cuda_log_level"],
        is_core_limit_disabled=case["disable_core_limit"],
        **case["flags"],
    )
    node = ServedNode(
        name="n1",
        resource="nvidia.com/gpu",
        vendor=nvidia.vendor(CONFIG[nvidia.SECTION]),
        policy=policy,
        enforcement=Enforcement("library", "r"),
        devices={},
        cdi_root=hook_path,
        limit_hook=LimitHook("", "", ""),
        memory_bytes={},
        vendor_keys=tuple(vendor.key for vendor in CONFIG.vendors()),
    )
    kubelet = Mock(served=Mock(return_value=None))
    return LockAllocator(node, api=view, kubelet=kubelet, last_line=AsyncMock(), mig=AsyncMock(), instances=None)


def as_in_vectors(grants: Sequence[Grant], hook_path: Path) -> Any:
    """Return *grants* in the vectors' form, without our own variable, and with random values masked."""
    answers = [
        {
            "envs": {name: value for name, value in grant.env.items() if name != DEVICE_UUIDS},
            "mounts": [
                {"container_path": mount.container_path, "host_path": mount.host_path, "read_only": mount.is_read_only}
                for mount in grant.mounts
            ],
        }
        for grant in grants
    ]
    text = json.dumps(answers).replace(f"{hook_path}/lock", LOCK_DIRECTORY).replace(str(hook_path), "<HOOK_PATH>")
    return json.loads(re.sub(rf"/vgpu/{UUID4.pattern}\.cache", "/vgpu/<uuid>.cache", text))


def without_devices(answer: dict[str, Any]) -> dict[str, Any]:
    """Return *answer* with every device masked."""
    responses = re.sub(r"GPU-[0-9a-f-]+", "GPU", json.dumps(answer.get("responses")))
    return answer | {"responses": json.loads(responses)}


@pytest.mark.parametrize("case", CASES, ids=[case["case"] for case in CASES])
async def test_allocation_under_the_lock_answers_as_hami_does(case: dict[str, Any], api: ApiServer, host: Path) -> None:
    """
    Environment, mounts and their order, the Pods' annotations and the Node's lock are HAMi's after each call.

    The devices are not, where HAMi's takes those of the kubelet's replicas: nobody granted them.
    """
    api.put("nodes", case["node"])
    for pod in case["pods"]:
        api.put("pods", pod)
    async with await Kube.connect(str(api.kubeconfig(host / "kubeconfig")), "test") as kube:
        vendor = nvidia.vendor(CONFIG[nvidia.SECTION])
        allocator = an_allocator(case, NodeKube(kube, "n1", vendor), host)
        for call, expected in zip(case["calls"], case["out"], strict=True):
            try:
                answer = {"responses": as_in_vectors(await allocator.allocate(call), host)}
            except HamiError as error:
                answer = {"error": str(error)}
            # The kubelet shows whatever an error says; only that there is one is HAMi's.
            assert ("error" in expected) == ("error" in answer), answer
            shown_devices = without_devices if case["enable_get_preferred_allocation"] else dict
            assert shown_devices(expected).get("responses") == shown_devices(answer).get("responses"), answer
            shown = {
                f"default/{pod['metadata']['name']}": {
                    key: value
                    for key, value in api.annotations("pods", "default", pod["metadata"]["name"]).items()
                    if key in SHOWN_ANNOTATIONS
                }
                for pod in case["pods"]
            }
            assert expected["pod_annotations_after"] == shown
            assert expected["node_lock_after"] == api.annotations("nodes", "", "n1").get("hami.io/mutex.lock")
