"""
The descriptions of all vendors: keys as HAMi spells them, and none that two share.
"""

import json
from pathlib import Path

import pytest

from hamicommon.config import load_device_config
from hamicommon.vendors import Vendor, all_vendors, request_parsers

VECTORS = Path(__file__).parents[1] / "vectors"
CONFIG = load_device_config((VECTORS / "device-config" / "tuned.yaml").read_text())
KEYS = json.loads((VECTORS / "vendors" / "keys.json").read_text())
KEY_FIELDS = sorted({name for row in KEYS for name in row})
VENDORS = {vendor.key: vendor for vendor in all_vendors(CONFIG)}


def test_every_vendor_and_every_chip_is_there() -> None:
    """One entry a chip where a vendor has several, and one each way its devices are shared."""
    ascend = ["Ascend910A", "Ascend910B2", "Ascend910B3", "Ascend910B4-1", "Ascend910B4", "Ascend310P", "Ascend910C"]
    iluvatar = ["MR-V100", "MR-V50", "BI-V150", "BI-V100"]

    first = ["NVIDIA", *ascend, "MLU", "DCU", *iluvatar, "Mthreads", "Metax-GPU", "Metax-SGPU"]

    assert [*first, "GCU", "Enflame", "kunlun", "XPU", "AWSNeuron", "AMD", "Vastai", "Biren"] == list(VENDORS)
    assert list(VENDORS) == list(request_parsers(CONFIG))


@pytest.mark.parametrize("expected", KEYS, ids=lambda row: row["key"])
def test_keys_are_hamis(expected: dict[str, str]) -> None:
    """A key that is misspelt is a device that nobody finds; what the row leaves out the vendor does not have."""
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
    vendors: tuple[Vendor, ...] = all_vendors(config)

    assert {()} == {vendor.resource_names for vendor in vendors if vendor.key != "AMD"}
