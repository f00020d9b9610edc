"""
The README agrees with the program.
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
    """Return the values of each label in the table, where the table lists them."""
    return {
        (name, label): set(re.findall(r"`([^`]+)`", values))
        for row in section("Metrics").splitlines()
        for name in re.findall(r"`(hami_[a-z_]+)`", row.split("|")[1] if row.startswith("| `") else "")
        for label, values in re.findall(r"`([a-z_]+)`: ((?:`[^`]+`(?:, )?)+)", row)
    }


def test_label_values_are_those_that_are_scraped() -> None:
    """Alerts are checked against the README, and the README against the metrics."""
    families = {family.name: family for family in Metrics().registry.collect()}

    assert ("hami_device_plugin_registrations_total", "result") in label_values()
    for (name, label), values in label_values().items():
        samples = families[name.removesuffix("_total")].samples
        assert values == {sample.labels[label] for sample in samples}, name


def test_metrics_are_those_that_are_scraped(tmp_path: Path) -> None:
    """The table has the names that Prometheus sees."""
    device_config = tmp_path / "device-config.yaml"
    device_config.write_text("nvidia: {resourceCountName: nvidia.com/gpu}\n")
    registry = Metrics().registry
    registry.register(DeviceConfigFile(str(device_config)))
    families = list(registry.collect())

    assert {f.name + ("_total" if f.type == "counter" else "") for f in families} == set(
        re.findall(r"`(hami_[a-z_]+)[`{]", section("Metrics"))
    )
