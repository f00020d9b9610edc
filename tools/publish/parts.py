"""
The parts that are released: their folders, their versions, what belongs to each.

Owns how a version is written in a file and in the tag of an image. A part between two releases has the next version
with `-dev`. Neighbours: `release` changes versions, `image.catalogue` names the images.
"""

import re
from dataclasses import dataclass
from pathlib import Path

import yaml

from image.catalogue import DOCKERFILES, recipe

SERVICES = ("webhook", "scheduler", "device-plugin", "monitor")
CHART = "chart"
CLIENT = "kubectl-hami"
PARTS_FILE = Path("charts/hami/parts.yaml")
"""The version of each service that the chart installs."""
_PYPROJECT = re.compile(r'^version = "(?P<version>[^"]+)"$', re.MULTILINE)
_CHART = re.compile(r"^(?P<key>version|appVersion): (?P<version>\S+)$", re.MULTILINE)


@dataclass(frozen=True)
class Part:
    """One part with its own versions."""

    name: str
    folder: Path
    """Relative to the checkout."""

    @property
    def changelog(self) -> Path:
        """The file of its changes, relative to the checkout."""
        return self.folder / "CHANGELOG.md"

    @property
    def fragments(self) -> Path:
        """The folder of its changes that are not released yet, relative to the checkout."""
        return Path("changelog.d") / self.name

    @property
    def version_file(self) -> Path:
        """The file with its version, relative to the checkout."""
        return self.folder / ("Chart.yaml" if self.name == CHART else "pyproject.toml")

    def inputs(self, root: Path) -> list[str]:
        """Return the files and folders that decide what it is, relative to the checkout *root*."""
        return recipe(self.name, root).inputs() if self.name in DOCKERFILES else [str(self.folder)]


PARTS = {
    part.name: part
    for part in (
        *(Part(name, Path("services") / name) for name in SERVICES),
        Part(CHART, Path("charts/hami")),
        Part(CLIENT, Path("clients") / CLIENT),
    )
}


def version_of(part: Part, root: Path) -> str:
    """Return the version of *part* in the checkout *root*, as images and charts spell it: `0.2.0`, `0.2.1-dev`."""
    text = (root / part.version_file).read_text()
    found = (_CHART if part.name == CHART else _PYPROJECT).search(text)
    assert found is not None, f"{part.version_file} has no line with a version"
    return found["version"].replace(".dev0", "-dev")


def write_version(part: Part, root: Path, version: str) -> None:
    """Set the version of *part*, spelled as `version_of` does, and what the chart says of it."""
    path = root / part.version_file
    text = path.read_text()
    if part.name == CHART:
        path.write_text(_CHART.sub(rf"\g<key>: {version}", text))
        return
    path.write_text(_PYPROJECT.sub(f'version = "{version.replace("-dev", ".dev0")}"', text, count=1))
    if part.name in SERVICES:
        write_parts(root, {**read_parts(root), part.name: version})


def read_parts(root: Path) -> dict[str, str]:
    """Return the version of each service that the chart of the checkout *root* installs."""
    return {name: str(version) for name, version in yaml.safe_load((root / PARTS_FILE).read_text()).items()}


def write_parts(root: Path, versions: dict[str, str]) -> None:
    """Set the version of each service that the chart installs. The comment at the head of the file stays."""
    path = root / PARTS_FILE
    head = [line for line in path.read_text().splitlines() if line.startswith("#")]
    path.write_text("\n".join([*head, *(f"{name}: {version}" for name, version in versions.items()), ""]))
