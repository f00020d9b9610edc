"""
The images of this repository: their Dockerfiles, bases, versions and names.

Must never build. Neighbours: `recipe` finds the inputs of an image, `tools/images.py` builds what is wanted.
"""

import os
import tomllib
from dataclasses import dataclass
from pathlib import Path

from image.base import BUILD, RUNTIME, python_image
from image.recipe import Recipe

DOCKERFILES = {
    "webhook": "services/webhook/Dockerfile",
    "scheduler": "services/scheduler/Dockerfile",
    "device-plugin": "services/device-plugin/Dockerfile",
    "monitor": "services/monitor/Dockerfile",
    "workloads": "e2e/workloads/Dockerfile",
}
"""The Dockerfile of each image, by the name of its archive."""
WORKLOADS_TAG = "e2e"
ARCHES = {"x86_64": "amd64", "aarch64": "arm64"}
"""The names of architectures in OCI and Debian, by the kernel's names."""
OUR_ARCH = ARCHES.get(os.uname().machine, os.uname().machine)


@dataclass(frozen=True)
class Wanted:
    """A requested image."""

    recipe: Recipe
    key: str
    """The key of the recipe at the time of the request."""
    reference: str
    """The name in a Pod, e.g. `localhost/hami/webhook:0.1.0`."""

    @property
    def name(self) -> str:
        """The name of its archive."""
        return self.recipe.name


def bases(name: str, arch: str) -> dict[str, tuple[tuple[str, ...], str]]:
    """Return packages and architecture of the Python images of *name*, by arguments of its Dockerfile."""
    ours = {"LIBRARY_IMAGE": (BUILD, OUR_ARCH)} if name == "device-plugin" else {}
    return {"PYTHON_IMAGE": (RUNTIME, arch), "BUILD_IMAGE": (BUILD, arch), **ours}


def recipe(name: str, source: Path, arch: str = OUR_ARCH) -> Recipe:
    """Return the recipe of the image *name* of the checkout *source*."""
    images = tuple((argument, python_image(*base)) for argument, base in bases(name, arch).items())
    return Recipe(name, version(name, source), source, DOCKERFILES[name], images, arch)


def wanted(name: str, source: Path, tag: str | None, arch: str = OUR_ARCH) -> Wanted:
    """Return the image *name* of the checkout *source*. The default *tag* is its version."""
    found = recipe(name, source, arch)
    tag = WORKLOADS_TAG if name == "workloads" else tag or found.version
    return Wanted(found, found.key(), f"{found.repository}:{tag}")


def version(name: str, source: Path) -> str:
    """Return the version of what the image *name* runs: `0.2.0`, or `0.2.1-dev` between releases."""
    folders = (source / DOCKERFILES[name]).parents
    project = next(path for folder in folders if (path := folder / "pyproject.toml").exists())
    return str(tomllib.loads(project.read_text())["project"]["version"]).replace(".dev0", "-dev")
