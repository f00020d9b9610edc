"""
The README says what the program says of itself.
"""

import re
from pathlib import Path

from prometheus_client import CollectorRegistry

from hami_scheduler.serve.metrics import ClusterCollector, Observed, Problems, Refused, Verbs, woken_pods
from hami_scheduler.state.cluster import Cluster
from hamicommon.runtime.api_metrics import ApiMetrics
from hamicommon.runtime.device_config import DeviceConfigFile

from .builders import VECTORS

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


def test_outcomes_are_those_that_are_scraped() -> None:
    """Alerts are held against the README, and it against what there is from the start."""
    registry = CollectorRegistry()
    Verbs(registry)

    for family in registry.collect():
        assert label_values()[family.name, "outcome"] == {sample.labels["outcome"] for sample in family.samples}


def test_metrics_are_those_that_are_scraped() -> None:
    """Name by name, as Prometheus sees them."""
    registry = CollectorRegistry()
    Verbs(registry)
    Refused(registry)
    Problems(registry)
    woken_pods(registry)
    ApiMetrics(registry, "hami_scheduler")
    registry.register(DeviceConfigFile(str(VECTORS / "device-config-default.yaml")))
    observed, cluster = Observed(dict, lambda: 0), Cluster((), lambda *_: None)
    registry.register(ClusterCollector(lambda: cluster, observed, has_legacy_names=False, device_limit=0))
    families = list(registry.collect())

    assert {f.name + ("_total" if f.type == "counter" else "") for f in families} == set(
        re.findall(r"`(hami_[a-z_]+)[`{]", section("Metrics"))
    )
