"""
The bill of materials of an image, from the packages of this machine and of `.venv`. Needs no root, and builds nothing.
"""

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from bootstrap import ROOT, VENV

GIVEN = ("hami/webhook", "0.2.0", "1f0c", "2026-01-02T03:04:05+00:00")
DPKG = """\
Package: libc6
Status: install ok installed
Maintainer: GNU Libc Maintainers <debian-glibc@lists.debian.org>
Architecture: amd64
Version: 2.36-9+deb12u14

Package: gone
Status: deinstall ok config-files
Maintainer: Nobody
Architecture: amd64
Version: 1
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script, with an image of two Debian packages, the Python packages of `.venv` and two Go modules."""
    spec = importlib.util.spec_from_file_location("bill", ROOT / "services/bill.py")
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/libvgpu.so").touch()
    (tmp_path / "lib/python3.11").symlink_to(next((VENV / "lib").glob("python3.*")))
    (tmp_path / "status").write_text(DPKG)
    (tmp_path / "go-modules.txt").write_text("github.com/NVIDIA/go-nvml v0.13.2\ngolang.org/x/sys v0.46.0\n")
    monkeypatch.setattr(found, "OURS", tmp_path)
    monkeypatch.setattr(found, "DPKG", tmp_path / "status")
    monkeypatch.setattr(found, "GO_MODULES", tmp_path / "go-modules.txt")
    return found


def parts(module: ModuleType) -> dict[str, dict[str, Any]]:
    """Return the components by name."""
    return {part["name"]: part for part in module.bill(*GIVEN)["components"]}


def test_bill_follows_the_schema(module: ModuleType) -> None:
    """So scanners can read it."""
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(json.dumps(module.bill(*GIVEN))) is None


def test_bill_lists_what_is_installed(module: ModuleType) -> None:
    """By package URLs, which scanners look up."""
    found = parts(module)

    assert "pkg:deb/debian/libc6@2.36-9%2Bdeb12u14?arch=amd64" == found["libc6"]["purl"]
    assert found["aiohttp"]["purl"].startswith("pkg:pypi/aiohttp@")
    assert "pkg:golang/github.com/nvidia/go-nvml@v0.13.2" == found["github.com/NVIDIA/go-nvml"]["purl"]
    assert "0.2.0" == found["libvgpu.so"]["version"]
    assert "gone" not in found


def test_same_image_has_the_same_bill(module: ModuleType) -> None:
    """Its bytes are part of the image's digest."""
    assert module.bill(*GIVEN) == module.bill(*GIVEN)
    assert module.bill(*GIVEN)["serialNumber"] != module.bill("hami/webhook", "0.2.1", *GIVEN[2:])["serialNumber"]


def test_licence_of_a_python_package_is_what_it_states(module: ModuleType) -> None:
    """As an SPDX expression, or as its name."""
    found = parts(module)

    assert [{"expression": "Apache-2.0"}] == found["hami-webhook"]["licenses"]
    assert [] == [name for name, part in found.items() if "pkg:pypi" in part.get("purl", "") and "licenses" not in part]
