"""
The descriptions of all vendors: HAMi's keys, none used twice.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from hamicommon.config.device_config import load_device_config
from hamicommon.vendors import descriptions
from hamicommon.vendors.description import Vendor

VECTORS = Path(__file__).parents[1] / "vectors"
CONFIG = load_device_config((VECTORS / "device-config" / "tuned.yaml").read_text())
KEYS = json.loads((VECTORS / "vendors" / "keys.json").read_text())
KEY_FIELDS = sorted({name for row in KEYS for name in row})
VENDORS = {vendor.key: vendor for vendor in CONFIG.vendors()}


def test_every_vendor_and_every_chip_is_there() -> None:
    """A vendor with several chips has an entry for each, and one for each way to share devices."""
    ascend = ["Ascend910A", "Ascend910B2", "Ascend910B3", "Ascend910B4-1", "Ascend910B4", "Ascend310P", "Ascend910C"]
    iluvatar = ["MR-V100", "MR-V50", "BI-V150", "BI-V100"]

    first = ["NVIDIA", *ascend, "MLU", "DCU", *iluvatar, "Mthreads", "Metax-GPU", "Metax-SGPU"]

    assert [*first, "GCU", "Enflame", "kunlun", "XPU", "AWSNeuron", "AMD", "Vastai", "Biren"] == list(VENDORS)


@pytest.mark.parametrize("expected", KEYS, ids=lambda row: row["key"])
def test_keys_are_hamis(expected: dict[str, str]) -> None:
    """Devices under a misspelt key would not be found. The vendor has no keys that the row leaves out."""
    vendor = VENDORS[expected["key"]]
    found = {name: getattr(vendor, name) for name in KEY_FIELDS}

    assert expected == {name: value for name, value in found.items() if value}


@pytest.mark.parametrize("field", ["to_allocate_key", "allocated_key", "register_key", "handshake_key"])
def test_no_two_vendors_share_a_key(field: str) -> None:
    """One vendor's annotation must not be read as another's."""
    keys = [getattr(vendor, field) for vendor in VENDORS.values() if getattr(vendor, field)]

    assert len(set(keys)) == len(keys)


def test_no_two_vendors_share_a_resource() -> None:
    """A container's amount belongs to one vendor."""
    names = [name for vendor in VENDORS.values() for name in vendor.resource_names]

    assert len(set(names)) == len(names)
    assert "nvidia.com/gpu" == VENDORS["NVIDIA"].resource_names[0]
    assert 1024 == VENDORS["NVIDIA"].memory_factor


def test_a_config_without_sections_names_no_resource() -> None:
    """The keys stay known, so grants of a vendor that was switched off are still read."""
    config = load_device_config("amd: {resourceCountName: amd.com/gpu}")
    vendors: tuple[Vendor, ...] = config.vendors()

    assert {()} == {vendor.resource_names for vendor in vendors if vendor.key != "AMD"}


A_VENDOR = """
from dataclasses import dataclass
from functools import partial

from hamicommon.vendors.amounts import request_of, whole_amount
from hamicommon.vendors.description import Description, Section, Vendor, resource_name


@dataclass(frozen=True, slots=True)
class AcmeConfig:
    resource_count_name: str = resource_name("resourceCountName", "acme.example/gpu")


def vendor(config):
    return Vendor(
        "ACME",
        (config.resource_count_name,),
        "hami.io/acme-devices-to-allocate",
        "hami.io/acme-devices-allocated",
        parse_request=partial(parse_request, config=config),
        config=config,
    )


def parse_request(resources, config):
    return request_of("ACME", whole_amount(resources, config.resource_count_name), 0, 0)


DESCRIPTION = Description("Acme", Section("acme", AcmeConfig()), lambda config: (vendor(config),))
"""
USE = """
import hamicommon.vendors
hamicommon.vendors.__path__.append({folder!r})
from hamicommon.config.device_config import load_device_config
config = load_device_config("acme: {{resourceCountName: acme.example/gpu}}")
vendor = config.vendors()[-1]
print(vendor.name, vendor.parse_request({{"limits": {{"acme.example/gpu": "2"}}}}).count, *config.warnings)
"""


def test_one_file_is_enough_to_add_a_vendor(tmp_path: Path) -> None:
    """Its section of the device config is read, and its requests are understood; it comes after HAMi's vendors."""
    (tmp_path / "acme.py").write_text(A_VENDOR)
    code = USE.format(folder=str(tmp_path))

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert "acme 2\n" == done.stdout


def test_vendors_are_asked_in_hamis_order() -> None:
    """No two have the same place."""
    orders = [description.order for description in descriptions().values()]

    assert sorted(set(orders)) == orders
