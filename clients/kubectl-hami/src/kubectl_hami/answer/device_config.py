"""
The device config of the services, from their ConfigMap.
"""

from collections.abc import Iterable
from typing import Final

from hamicommon.config.device_config import ConfigError, DeviceConfig, load_device_config
from hamicommon.model import Object

_KEY: Final = "device-config.yaml"
USUAL_NAMES: Final = load_device_config(
    "nvidia:\n"
    "  resourceCountName: nvidia.com/gpu\n"
    "  resourceMemoryName: nvidia.com/gpumem\n"
    "  resourceCoreName: nvidia.com/gpucores\n"
)
"""The names that the chart gives NVIDIA's resources, for people who may not read the ConfigMap."""


def device_config(config_maps: Iterable[Object]) -> DeviceConfig | None:
    """Return the device config in one of *config_maps*, None if there is none that can be read."""
    texts = (text for one in config_maps if (text := (one.get("data") or {}).get(_KEY)))
    try:
        return next((load_device_config(text) for text in texts), None)
    except ConfigError:
        return None
