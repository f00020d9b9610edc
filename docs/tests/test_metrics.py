"""The README of each service, and the page of all, list the metrics of the programs."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from prometheus_client import Metric

from hamicommon.runtime.program.device_config import DeviceConfigFile
from metrics_page import PAGE, REGISTRIES, page

from .pages import ROOT

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
    """The README has their number. The server leaves out when they were created."""
    samples = [sample for family in scrape("webhook") for sample in family.samples]
    series = sum(not sample.name.endswith("_created") for sample in samples)

    assert f"\n{series} series: " in table("webhook")


def test_page_is_generated_from_the_code() -> None:
    """`.venv/bin/python tools/metrics_page.py` rewrites it."""
    assert page() == PAGE.read_text()
