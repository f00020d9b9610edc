"""
Whether a device plugin is alive, beside HAMi's answers in `vectors/nodes/health.json`.
"""

import pytest

from hami_scheduler.state.health import plugin_is_alive

from ..support.hami_vectors import Case, by_name, cases
from ..support.vector_times import unmasked

COUNTED = {
    "NVIDIA": "nvidia.com/gpu",
    "DCU": "hygon.com/dcunum",
    "Ascend910B3": "huawei.com/Ascend910B3",
    "MR-V100": "iluvatar.ai/MR-V100-vgpu",
    "XPU": "kunlunxin.com/vxpu",
    "Vastai": "vastaitech.com/va",
    "Biren": "birentech.com/gpu",
}
"""Vendors with a handshake, and the resource the kubelet counts for them."""
HEALTH = cases("nodes/health")


@pytest.mark.parametrize("case", by_name([case for case in HEALTH if case["vendor"] in COUNTED]))
def test_plugin_is_alive_where_hami_calls_it_healthy(case: Case) -> None:
    """
    Step after step. Only a plugin that offers nothing may count as dead where HAMi still calls it healthy.

    HAMi waits 60 seconds for the answer to its request; we write no request and wait for none.
    """
    had_replicas = False
    for step in case["steps"]:
        handshake = next((unmasked(text) for key, text in step["annotations"].items() if "handshake" in key), None)
        replica_count = int(step["allocatable"].get(COUNTED[case["vendor"]], "0"))
        is_alive = plugin_is_alive(handshake, replica_count, had_replicas=had_replicas)
        is_healthy = step["out"]["healthy"]
        may_differ = replica_count == 0 and (had_replicas or "Requesting" in (handshake or ""))
        assert is_alive == (is_healthy and not may_differ)
        had_replicas |= replica_count > 0


@pytest.mark.parametrize("case", by_name([case for case in HEALTH if case["vendor"] not in COUNTED]))
def test_vendor_without_handshake_writes_none(case: Case) -> None:
    """HAMi writes none for these vendors, and no plugin does."""
    for step in case["steps"]:
        assert [] == step["out"]["patched"]
        assert not any("handshake" in key for key in step["annotations"])
