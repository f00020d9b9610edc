"""The README of each service lists the metrics of its program."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Metric

from hami_device_plugin.metrics import Metrics
from hami_monitor.decide.observation import Observation
from hami_monitor.metrics.collector import MonitorCollector
from hami_monitor.metrics.status import MonitorStatus
from hami_scheduler.serve.listen.metrics import ClusterCollector, Observed, Problems, Refused, Verbs, woken_pods
from hami_scheduler.state.cluster import Cluster
from hami_webhook.adapters.http import AdmissionMetrics
from hami_webhook.adapters.kube import left_out_gauge, unapplied_gauge
from hami_webhook.certificates.certificate_loop import CertificateMetrics
from hamicommon.runtime.api_metrics import ApiMetrics
from hamicommon.runtime.device_config import DeviceConfigFile
from hamicommon.runtime.tls import Certificate

from .pages import ROOT


def device_plugin(device_config: DeviceConfigFile) -> CollectorRegistry:
    """Return the registry of the device plugin."""
    registry = Metrics().registry
    registry.register(device_config)
    return registry


def monitor(_device_config: DeviceConfigFile) -> CollectorRegistry:
    """Return the registry of the monitor, which reads no device config."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(MonitorCollector(lambda: Observation("n1", 0.0), MonitorStatus))
    return registry


def scheduler(device_config: DeviceConfigFile) -> CollectorRegistry:
    """Return the registry of the scheduler."""
    registry = CollectorRegistry()
    Verbs(registry)
    Refused(registry)
    Problems(registry)
    woken_pods(registry)
    ApiMetrics(registry, "hami_scheduler")
    registry.register(device_config)
    observed, cluster = Observed(dict, lambda: 0), Cluster((), lambda *_: None)
    registry.register(ClusterCollector(lambda: cluster, observed, has_legacy_names=False, device_limit=0))
    return registry


def webhook(device_config: DeviceConfigFile) -> CollectorRegistry:
    """Return the registry of the webhook."""
    registry = CollectorRegistry()
    registry.register(device_config)
    AdmissionMetrics(registry)
    CertificateMetrics(registry, Certificate())
    left_out_gauge(registry)
    unapplied_gauge(registry)
    return registry


REGISTRIES = {"device-plugin": device_plugin, "monitor": monitor, "scheduler": scheduler, "webhook": webhook}
each_service = pytest.mark.parametrize("service", REGISTRIES)
Scrape = Callable[[str], list[Metric]]


@pytest.fixture
def scrape(tmp_path: Path) -> Scrape:
    """Return what a first scrape of a service shows."""
    device_config = tmp_path / "device-config.yaml"
    device_config.write_text("nvidia: {resourceCountName: nvidia.com/gpu}\n")
    return lambda service: list(REGISTRIES[service](DeviceConfigFile(str(device_config))).collect())


def table(service: str) -> str:
    """Return the part of the README of *service* under the heading Metrics."""
    readme = (ROOT / "services" / service / "README.md").read_text()
    return re.split(r"^## ", readme.split("\n## Metrics\n")[1], flags=re.MULTILINE)[0]


def label_values(service: str) -> dict[tuple[str, str], set[str]]:
    """Return the values of each label in the table of *service*, where the table lists them."""
    return {
        (name, label): set(re.findall(r"`([^`]+)`", values))
        for row in table(service).splitlines()
        for name in re.findall(r"`(hami_[a-z_]+)`", row.split("|")[1] if row.startswith("| `") else "")
        for label, values in re.findall(r"`([a-z_]+)`: ((?:`[^`]+`(?:, )?)+)", row)
    }


@each_service
def test_table_has_the_metrics_that_are_scraped(service: str, scrape: Scrape) -> None:
    """Each name as Prometheus sees it."""
    names = {family.name + ("_total" if family.type == "counter" else "") for family in scrape(service)}

    assert names == set(re.findall(r"`(hami_[a-z_]+)[`{]", table(service)))


@pytest.mark.parametrize(
    ("service", "labels"), [("device-plugin", ("call", "result", "health")), ("scheduler", ("outcome",))]
)
def test_table_has_the_label_values_of_a_first_scrape(service: str, labels: tuple[str, ...], scrape: Scrape) -> None:
    """Alerts are checked against the README, and the README against the program."""
    scraped = {
        (family.name, label): {sample.labels[label] for sample in family.samples}
        for family in scrape(service)
        for label in labels
        if family.samples and label in family.samples[0].labels
    }

    assert scraped == {
        (name.removesuffix("_total"), label): values
        for (name, label), values in label_values(service).items()
        if label in labels
    }


def test_webhook_has_a_fixed_number_of_series(scrape: Scrape) -> None:
    """The README has their number."""
    series = sum(len(family.samples) for family in scrape("webhook"))

    assert f"\n{series} series: " in table("webhook")
