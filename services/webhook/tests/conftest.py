"""
Fixtures of the webhook's tests: device configs as HAMi's chart renders them, and a builder of Pods.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hami_webhook.decide.admission import Policy
from hamicommon.config.device_config import DeviceConfig, load_device_config

CONFIGS = Path(__file__).parents[3] / "libs" / "hamicommon" / "vectors" / "device-config"


@pytest.fixture(scope="session")
def devices() -> dict[str, DeviceConfig]:
    """Return the chart's default device config, and one with every setting changed."""
    return {name: load_device_config((CONFIGS / f"{name}.yaml").read_text()) for name in ("default", "tuned")}


@pytest.fixture(scope="session")
def policy(devices: dict[str, DeviceConfig]) -> Policy:
    """Return the policy of the chart's defaults."""
    return Policy.of(devices["default"], "hami-scheduler")


@pytest.fixture(scope="session")
def device_config_file() -> str:
    """Return the path of the chart's default device config."""
    return str(CONFIGS / "default.yaml")


@pytest.fixture(scope="session")
def a_pod() -> Callable[..., dict[str, Any]]:
    """Return a builder of Pods with one container: its limits, and other fields of the spec."""

    def build(limits: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
        container: dict[str, Any] = {"name": "c0", "image": "busybox"}
        if limits is not None:
            container["resources"] = {"limits": {f"nvidia.com/{name}": amount for name, amount in limits.items()}}
        return {"metadata": {"name": "p", "namespace": "ns"}, "spec": {"containers": [container], **spec}}

    return build
