"""
Write the bill of materials of an image into it, in CycloneDX's form, with our licence beside it.

    bill.py NAME

It runs in the last stage of every image, with VERSION, REVISION and CREATED in the environment. Reads Debian's package
database, Python's package metadata and the list of Go modules. Must never need more than the standard library. The same
image gives the same bytes.
Source: https://cyclonedx.org/docs/1.6/json/
"""

import json
import os
import re
import shutil
import sys
import uuid
from collections.abc import Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any
from urllib.parse import quote

OURS = Path("/opt/hami")
SHARE = OURS / "share"
BILL = SHARE / "sbom.cdx.json"
DPKG = Path("/var/lib/dpkg/status")
GO_MODULES = SHARE / "go-modules.txt"
"""A module and its version in each line. Only images with Go programs have it."""
LIBRARIES = ("libvgpu.so", "hami-limit-hook")
LICENCE = Path("/mnt/LICENSE")

Part = dict[str, Any]


def debian_packages() -> Iterator[Part]:
    """Yield the packages of dpkg's database. Source: dpkg-query(1), deb-control(5)."""
    for record in DPKG.read_text().split("\n\n"):
        fields = dict(re.findall(r"^([\w-]+): (.*)$", record, re.MULTILINE))
        if fields.get("Status", "").endswith(" installed"):
            name, version = fields["Package"], fields["Version"]
            purl = f"pkg:deb/debian/{quote(name)}@{quote(version, safe='')}?arch={fields['Architecture']}"
            yield part(name, version, purl) | {"supplier": {"name": fields["Maintainer"]}}


def python_packages() -> Iterator[Part]:
    """Yield the packages of the image's Python environment."""
    (site,) = OURS.glob("lib/python3.*/site-packages")
    for package in distributions(path=[str(site)]):
        name = re.sub(r"[-_.]+", "-", package.name).lower()
        found = part(name, package.version, f"pkg:pypi/{name}@{quote(package.version, safe='')}")
        yield found | licences(package)


def licences(package: Distribution) -> Part:
    """Return the licence that a package states: an SPDX expression, or a name."""
    metadata = package.metadata.json
    if stated := metadata.get("license_expression"):
        return {"licenses": [{"expression": str(stated)}]}
    named = str(metadata.get("license") or "")
    classified = [text.rpartition(":: ")[2] for text in metadata.get("classifier", []) if "License" in text]
    names = [named] if named and "\n" not in named else classified
    return {"licenses": [{"license": {"name": name}} for name in names]} if names else {}


def go_modules() -> Iterator[Part]:
    """Yield the modules of the image's Go programs."""
    for line in GO_MODULES.read_text().splitlines() if GO_MODULES.exists() else ():
        path, version = line.split()
        yield part(path, version, f"pkg:golang/{path.lower()}@{quote(version, safe='')}")


def libraries(version: str) -> Iterator[Part]:
    """Yield our programs that are built with the image."""
    for name in LIBRARIES:
        if (OURS / "lib" / name).exists():
            yield {
                "type": "library",
                "bom-ref": name,
                "name": name,
                "version": version,
                "licenses": [{"expression": "Apache-2.0"}],
            }


def part(name: str, version: str, purl: str) -> Part:
    """Return a component that scanners find by its package URL."""
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}


def bill(name: str, version: str, revision: str, created: str) -> Part:
    """Return the bill of materials of the image *name*."""
    found = [*debian_packages(), *python_packages(), *go_modules(), *libraries(version)]
    parts = sorted(found, key=lambda each: str(each["bom-ref"]))
    reference = f"{name}@{version}"
    identity = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps([reference, revision, parts]))
    whole: Part = {"type": "container", "bom-ref": reference, "name": name, "version": version}
    whole |= {"licenses": [{"expression": "Apache-2.0"}]}
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{identity}",
        "version": 1,
        "metadata": {"timestamp": created, "component": whole},
        "components": parts,
        "dependencies": [{"ref": reference, "dependsOn": [each["bom-ref"] for each in parts]}],
    }


def main() -> None:
    (name,) = sys.argv[1:]
    given = (os.environ[variable] for variable in ("VERSION", "REVISION", "CREATED"))
    SHARE.mkdir(exist_ok=True)
    shutil.copyfile(LICENCE, SHARE / "LICENSE")
    BILL.write_text(json.dumps(bill(name, *given), indent=1) + "\n")


if __name__ == "__main__":
    main()
