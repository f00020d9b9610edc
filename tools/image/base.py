"""
Make the Python base images of the Dockerfiles from Debian packages.

Owns the replacement of `python:3.11-slim`, so that no registry is needed: Debian's essential packages and its Python,
once for the images, and once with venv for build stages. Their names in buildah's storage contain a digest of the
recipe, so a changed recipe makes new images.
Source: https://manpages.debian.org/bookworm/mmdebstrap/mmdebstrap.1.en.html
"""

import hashlib
import os
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from image.buildah import EPOCH, Buildah, BuildError

SUITE = "bookworm"
RUNTIME = ("python3", "python-is-python3", "libstdc++6", "usr-is-merged")
"""The packages of every image, beside the essential ones. The last replaces a package that needs Perl."""
BUILD = (*RUNTIME, "python3-venv")
"""The packages of a build stage."""
EXCLUDED = ("/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*", "/usr/share/doc/*")
INCLUDED = ("/usr/share/doc/*/copyright",)
HOOKS = (
    'find "$1/usr/lib" "$1/usr/share" -name __pycache__ -prune -exec rm -r {} +',
    'rm -rf "$1"/etc/hostname "$1"/etc/resolv.conf "$1"/var/log/* "$1"/var/cache/ldconfig "$1"/var/cache/debconf/*-old',
)
"""Removes files that differ between runs. Byte code contains the time of its source."""
DOCKERFILE = """\
FROM scratch
ADD root.tar /
ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
CMD ["python"]
"""


def python_image(packages: tuple[str, ...], arch: str) -> str:
    """Return the name of the image with *packages* for *arch*, which depends on the recipe."""
    recipe = repr((EPOCH, DOCKERFILE, _bootstrap(packages, arch)))
    return f"localhost/hami/python:{hashlib.sha256(recipe.encode()).hexdigest()[:12]}"


def make_python_image(buildah: Buildah, packages: tuple[str, ...], arch: str, step: Callable[[str], None]) -> None:
    """Make the image with *packages* if the storage lacks it. Raises: BuildError."""
    reference = python_image(packages, arch)
    if buildah.has(reference):
        return
    step(f"making {reference} of Debian {SUITE} for {arch}, half a minute to two: {', '.join(packages)}")
    with tempfile.TemporaryDirectory(dir=buildah.scratch) as scratch:
        folder = Path(scratch)
        command = [*_bootstrap(packages, arch), *apt_options(folder), SUITE, str(folder / "root.tar"), *mirrors()]
        environment = {**os.environ, "SOURCE_DATE_EPOCH": str(EPOCH), "TMPDIR": scratch}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise BuildError(f"mmdebstrap failed with {done.returncode}:\n{done.stderr[-2000:]}")
        (folder / "Dockerfile").write_text(DOCKERFILE)
        buildah.build(folder / "Dockerfile", folder, reference, arch)
    step(f"made {reference}")


def _bootstrap(packages: tuple[str, ...], arch: str) -> list[str]:
    return [
        *("mmdebstrap", "--mode=root", "--variant=essential", "--format=tar", f"--architectures={arch}"),
        f"--include={','.join(packages)}",
        "--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr",
        *(f"--dpkgopt=path-exclude={pattern}" for pattern in EXCLUDED),
        *(f"--dpkgopt=path-include={pattern}" for pattern in INCLUDED),
        *(f"--customize-hook={hook}" for hook in HOOKS),
    ]


def apt_options(folder: Path) -> list[str]:
    """Return the option that gives apt in the new root this machine's settings for downloads, such as a proxy."""
    command = ["apt-config", "dump", "--no-empty", "Acquire::http", "Acquire::https"]
    settings = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    (folder / "apt.conf").write_text(settings)
    return [f"--aptopt={folder / 'apt.conf'}"] if settings.strip() else []


def mirrors() -> list[str]:
    """Return this machine's Debian mirrors as apt lines. Without any, mmdebstrap uses its default."""
    command = ["apt-get", "indextargets", "--format", "$(LABEL) $(REPO_URI)", "Created-By: Packages"]
    known = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    suites = {"Debian": (SUITE, f"{SUITE}-updates"), "Debian-Security": (f"{SUITE}-security",)}
    found = sorted({tuple(line.split(maxsplit=1)) for line in known if line.split(maxsplit=1)[0] in suites})
    return [f"deb {uri} {suite} main" for label, uri in found for suite in suites[label]]
