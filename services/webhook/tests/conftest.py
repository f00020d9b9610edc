"""
What the webhook's tests build on: device configs as HAMi's chart renders them, and Pods with defaults.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hami_webhook.decide.admission import Policy
from hamicommon.config import DeviceConfig, load_device_config

CONFIGS = Path(__file__).parents[3] / "libs" / "hamicommon" / "vectors" / "device-config"


@pytest.fixture(scope="session")
def devices() -> dict[str, DeviceConfig]:
    """The chart's default device config, and one with everything turned on."""
    return {name: load_device_config((CONFIGS / f"{name}.yaml").read_text()) for name in ("default", "tuned")}


@pytest.fixture(scope="session")
def policy(devices: dict[str, DeviceConfig]) -> Policy:
    """What the chart's defaults decide."""
    return Policy.of(devices["default"], "hami-scheduler")


@pytest.fixture(scope="session")
def device_config_file() -> str:
    """The path of the chart's default device config."""
    return str(CONFIGS / "default.yaml")


@pytest.fixture(scope="session")
def a_pod() -> Callable[..., dict[str, Any]]:
    """Return a builder of Pods: one container with these limits, and what else is given."""

    def build(limits: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
        container: dict[str, Any] = {"name": "c0", "image": "busybox"}
        if limits is not None:
            container["resources"] = {"limits": {f"nvidia.com/{name}": amount for name, amount in limits.items()}}
        return {"metadata": {"name": "p", "namespace": "ns"}, "spec": {"containers": [container], **spec}}

    return build
