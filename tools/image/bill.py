"""
Write the bill of materials of an image, in CycloneDX's form.

Reads Debian's package database and Python's package metadata in the files of an image. Must never run anything of the
image. The result depends on the image only, not on its tag.
Source: https://cyclonedx.org/docs/1.6/json/
"""

import re
import tempfile
import uuid
from collections.abc import Iterator
from datetime import datetime
from importlib.metadata import Distribution, distributions
from pathlib import Path

from cyclonedx.factory.license import LicenseFactory
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.contact import OrganizationalEntity
from cyclonedx.model.license import DisjunctiveLicense, LicenseExpression
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL

from image.archive import Archive, unpack
from image.buildah import BuildError

VERSION = SchemaVersion.V1_6
_DPKG = "var/lib/dpkg/status"
_LIBRARY = "opt/hami/lib/libvgpu.so"
_SITE = "opt/hami/lib/python3.*/site-packages"
_READ = re.compile(rf"{_DPKG}|{_LIBRARY}|opt/hami/lib/python3\.\d+/site-packages/[^/]+\.dist-info/METADATA")
"""The files of an image that are read."""


def write_bill(archive: Path, image: Archive, path: Path) -> None:
    """
    Write the bill of materials of *image*, from the files in *archive*, to *path*.

    Raises:
        BuildError: the result does not match CycloneDX's schema.
    """
    labels = image.config["config"]["Labels"]
    name = image.reference.partition(":")[0]
    version = labels["org.opencontainers.image.version"]
    bill = Bom(serial_number=uuid.uuid5(uuid.NAMESPACE_URL, f"{name}@{image.digest}"))
    bill.metadata.timestamp = datetime.fromisoformat(
        labels.get("org.opencontainers.image.created") or image.config["created"]
    )
    bill.metadata.component = Component(
        type=ComponentType.CONTAINER,
        name=name,
        version=version,
        description=labels["org.opencontainers.image.description"],
        licenses=_licenses(labels["org.opencontainers.image.licenses"]),
        bom_ref=f"{name}@{image.digest}",
    )
    with tempfile.TemporaryDirectory() as folder:
        unpack(archive, _READ, root := Path(folder))
        parts = [*_debian_packages(root), *_python_packages(root), *_libraries(root, version)]
    bill.components.update(parts)
    bill.register_dependency(bill.metadata.component, parts)
    text = make_outputter(bill, OutputFormat.JSON, VERSION).output_as_string(indent=2)
    error = JsonStrictValidator(VERSION).validate_str(text)
    if error is not None:
        raise BuildError(f"{path.name} is not a valid bill of materials: {str(error).splitlines()[0]}")
    path.write_text(text + "\n")


def _debian_packages(root: Path) -> Iterator[Component]:
    """Yield the packages of dpkg's database. Source: dpkg-query(1), deb-control(5)."""
    for record in (root / _DPKG).read_text().split("\n\n"):
        fields = dict(re.findall(r"^([\w-]+): (.*)$", record, re.MULTILINE))
        if fields.get("Status", "").endswith(" installed"):
            name, version = fields["Package"], fields["Version"]
            purl = PackageURL("deb", "debian", name, version, {"arch": fields["Architecture"]})
            supplier = OrganizationalEntity(name=fields["Maintainer"])
            yield Component(name=name, version=version, purl=purl, bom_ref=str(purl), supplier=supplier)


def _python_packages(root: Path) -> Iterator[Component]:
    """Yield the packages of the image's Python environment."""
    (site,) = root.glob(_SITE)
    for package in distributions(path=[str(site)]):
        name = re.sub(r"[-_.]+", "-", package.name).lower()
        purl = PackageURL("pypi", None, name, package.version)
        licenses = _licenses(_license_of(package))
        yield Component(name=name, version=package.version, purl=purl, bom_ref=str(purl), licenses=licenses)


def _libraries(root: Path, version: str) -> Iterator[Component]:
    """Yield our library, if the image has it. It is built with the image."""
    if (root / _LIBRARY).exists():
        yield Component(name="libvgpu.so", version=version, bom_ref="libvgpu.so", licenses=_licenses("Apache-2.0"))


def _license_of(package: Distribution) -> str:
    """Return the licence of a package, as an SPDX expression if it has one. Empty if it states none."""
    metadata = package.metadata.json
    stated = str(metadata.get("license_expression") or metadata.get("license") or "")
    return "" if "\n" in stated else stated


def _licenses(stated: str) -> list[DisjunctiveLicense | LicenseExpression]:
    return [LicenseFactory().make_from_string(stated)] if stated else []
