"""
The README says what the program says of itself.
"""

import doctest
import importlib
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

import hami_webhook
from hami_webhook import http, upkeep
from hamicommon.runtime.device_config import DeviceConfigFile
from hamicommon.runtime.tls import Certificate

README = (Path(__file__).parents[1] / "README.md").read_text()
PROGRAM = Path(sys.executable).with_name("hami-webhook")
MODULES = [module.name for module in pkgutil.walk_packages(hami_webhook.__path__, "hami_webhook.")]


def section(title: str) -> str:
    """Return the part of the README under the heading *title*."""
    return re.split(r"^## ", README.split(f"\n## {title}\n")[1], flags=re.MULTILINE)[0]


def test_flags_are_those_of_the_program() -> None:
    """Every flag with an effect is in the table, and none that is not there."""
    shown = subprocess.run([PROGRAM, "--help"], capture_output=True, text=True, check=True).stdout
    effective = shown.split("accepted without effect:")[0]
    flags = {found[1] for found in re.finditer(r"^  (?:-\w\b.*?, )?(--[a-z_-]+)", effective, re.MULTILINE)}
    first_cells = "".join(line.split("|")[1] for line in section("Flags").splitlines() if line.startswith("|"))

    assert flags - {"--help", "--v"} == set(re.findall(r"`(--[a-z_-]+)`", first_cells))


def test_metrics_are_those_that_are_scraped(device_config_file: str) -> None:
    """Name by name, as Prometheus sees them."""
    registry = CollectorRegistry()
    registry.register(DeviceConfigFile(device_config_file))
    http.Metrics(registry)
    upkeep.Metrics(registry, Certificate())
    families = list(registry.collect())
    series = sum(len(family.samples) for family in families)

    assert f"\n{series} series, whatever is asked" in section("Metrics")
    assert {f.name + ("_total" if f.type == "counter" else "") for f in families} == set(
        re.findall(r"`(hami_[a-z_]+)[`{]", section("Metrics"))
    )


@pytest.mark.parametrize("name", MODULES)
def test_examples_of_a_module_hold(name: str) -> None:
    """What a docstring shows is what happens."""
    assert 0 == doctest.testmod(importlib.import_module(name)).failed
