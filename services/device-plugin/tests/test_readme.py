"""
The README says what the program says of itself.
"""

import re
from pathlib import Path

from hami_device_plugin.metrics import Metrics
from hamicommon.runtime.device_config import DeviceConfigFile

README = (Path(__file__).parents[1] / "README.md").read_text()


def section(title: str) -> str:
    """Return the part of the README under the heading *title*."""
    return re.split(r"^## ", README.split(f"\n## {title}\n")[1], flags=re.MULTILINE)[0]


def test_metrics_are_those_that_are_scraped(tmp_path: Path) -> None:
    """Name by name, as Prometheus sees them."""
    device_config = tmp_path / "device-config.yaml"
    device_config.write_text("nvidia: {resourceCountName: nvidia.com/gpu}\n")
    registry = Metrics().registry
    registry.register(DeviceConfigFile(str(device_config)))
    families = list(registry.collect())

    assert {f.name + ("_total" if f.type == "counter" else "") for f in families} == set(
        re.findall(r"`(hami_[a-z_]+)[`{]", section("Metrics"))
    )
