"""
Fixtures: each image, unpacked from the archive of `tools/images.py`.
"""

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from image.archive import read_archive
from image.buildah import Buildah
from image.catalogue import DOCKERFILES
from images_tests.unpacked import Image, root_of

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def buildah() -> Iterator[Buildah]:
    """A separate storage, so that images can be built at the same time."""
    if os.geteuid() != 0 or shutil.which("buildah") is None:
        pytest.skip("unpacking an image needs root and buildah: tox -e images")
    with tempfile.TemporaryDirectory(prefix="hami-images-") as folder:
        yield Buildah(Path(folder))


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option for images of other architectures."""
    parser.addoption("--images", type=Path, default=ROOT / "build/images", help="the folder of the archives")


@pytest.fixture(scope="session")
def image_of(buildah: Buildah, pytestconfig: pytest.Config) -> Iterator[Callable[[str], Image]]:
    """A function that returns an image by name. Each is unpacked once."""
    with ExitStack() as unpacked:
        images: dict[str, Image] = {}

        def image(name: str) -> Image:
            if name not in images:
                path = pytestconfig.getoption("images") / f"{name}.tar"
                root = unpacked.enter_context(root_of(buildah, path))
                bill = json.loads(path.with_suffix(".cdx.json").read_text())
                images[name] = Image(name, root, read_archive(path), bill)
            return images[name]

        yield image


@pytest.fixture(params=DOCKERFILES)
def image(request: pytest.FixtureRequest, image_of: Callable[[str], Image]) -> Image:
    """Each image in turn."""
    return image_of(request.param)


@pytest.fixture(params=["webhook", "scheduler", "device-plugin", "monitor"])
def service(request: pytest.FixtureRequest, image_of: Callable[[str], Image]) -> Image:
    """Each service's image in turn."""
    return image_of(request.param)
