"""
The README agrees with the program.
"""

import re
from pathlib import Path

from prometheus_client import CollectorRegistry

from hami_webhook.adapters import http, kube
from hami_webhook.certificates.certificate_loop import CertificateMetrics
from hamicommon.runtime.device_config import DeviceConfigFile
from hamicommon.runtime.tls import Certificate

README = (Path(__file__).parents[1] / "README.md").read_text()


def section(title: str) -> str:
    """Return the part of the README under the heading *title*."""
    return re.split(r"^## ", README.split(f"\n## {title}\n")[1], flags=re.MULTILINE)[0]


def test_metrics_are_those_that_are_scraped(device_config_file: str) -> None:
    """The table has the names that Prometheus sees."""
    registry = CollectorRegistry()
    registry.register(DeviceConfigFile(device_config_file))
    http.AdmissionMetrics(registry)
    CertificateMetrics(registry, Certificate())
    kube.left_out_gauge(registry)
    kube.unapplied_gauge(registry)
    families = list(registry.collect())
    series = sum(len(family.samples) for family in families)

    assert f"\n{series} series: " in section("Metrics")
    assert {f.name + ("_total" if f.type == "counter" else "") for f in families} == set(
        re.findall(r"`(hami_[a-z_]+)[`{]", section("Metrics"))
    )
