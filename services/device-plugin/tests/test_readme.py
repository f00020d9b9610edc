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


def label_values() -> dict[tuple[str, str], set[str]]:
    """Return what the table says each label of a metric can be, where it says so."""
    return {
        (name, label): set(re.findall(r"`([^`]+)`", values))
        for row in section("Metrics").splitlines()
        for name in re.findall(r"`(hami_[a-z_]+)`", row.split("|")[1] if row.startswith("| `") else "")
        for label, values in re.findall(r"`([a-z_]+)`: ((?:`[^`]+`(?:, )?)+)", row)
    }


def test_label_values_are_those_that_are_scraped() -> None:
    """Alerts are held against the README, and it against what there is from the start."""
    families = {family.name: family for family in Metrics().registry.collect()}

    assert ("hami_device_plugin_registrations_total", "result") in label_values()
    for (name, label), values in label_values().items():
        samples = families[name.removesuffix("_total")].samples
        assert values == {sample.labels[label] for sample in samples}, name


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
