"""
The image of Ray for KubeRay's Pods, built from the wheels of `requirements/ray.lock`.

Owns its archive in the cache of the real cluster's programs. Building needs root. Must never run Ray.
"""

import hashlib
import re
import tempfile
from pathlib import Path

from controlplane.programs import build
from harness.cluster import ROOT
from image.base import RUNTIME, make_python_image, python_image
from image.buildah import Buildah
from image.catalogue import OUR_ARCH
from image.settings import pip_options
from images import cache_folder
from testbed.debian import commands, ensure

DOCKERFILE = Path(__file__).with_name("modules") / "ray/Dockerfile"
LOCK = ROOT / "requirements/ray.lock"
[VERSION] = re.findall(r"^ray==(\S+)", LOCK.read_text(), re.MULTILINE)
IMAGE = f"localhost/ray:{VERSION}"
PACKAGES = (*RUNTIME, "bash", "python3-pip", "wget")


def archive() -> Path:
    """Return the OCI archive of the image, and build it if it is missing. Raises: BuildError, PackageError."""
    base = python_image(PACKAGES, OUR_ARCH)
    key = hashlib.sha256(base.encode() + DOCKERFILE.read_bytes() + LOCK.read_bytes()).hexdigest()[:12]
    place = build.cache() / f"ray-{VERSION}-{key}.tar"
    if not place.exists():
        ensure(commands(["buildah", "mmdebstrap"]), print)
        buildah = Buildah(cache_folder())
        with buildah.alone(print), tempfile.TemporaryDirectory(dir=build.cache(), prefix=".ray-") as scratch:
            make_python_image(buildah, PACKAGES, OUR_ARCH, print)
            draft = Path(scratch) / "ray.tar"
            arguments = {"PYTHON_IMAGE": buildah.identity(base)}
            options = pip_options(Path(scratch))
            buildah.build(DOCKERFILE, ROOT, IMAGE, OUR_ARCH, archive=draft, arguments=arguments, options=options)
            draft.rename(place)
    return place
