"""
Build the images of the services and of the tests' workloads into `build/images`; needs no engine and no registry.

    tools/images.py [--tag TAG] [--source CHECKOUT | --commit COMMIT] [--output FOLDER] [NAME...]

What has not changed since its archive was written is not built again. Owns the list of images, their order and what is
told of them; a Dockerfile says what is in one. Needs root to build, for buildah's storage and Debian's packages.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import yaml
from bootstrap import ROOT, fail, to_the_end
from image.archive import read_archive
from image.base import BUILD, RUNTIME, make_python_image, python_image
from image.bill import write_bill
from image.buildah import Buildah, BuildError
from image.pip_settings import pip_options
from image.recipe import Recipe
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(ROOT / "e2e"))
from controlplane.debian import PackageError, commands, ensure

DOCKERFILES = {
    "webhook": "services/webhook/Dockerfile",
    "scheduler": "services/scheduler/Dockerfile",
    "device-plugin": "services/device-plugin/Dockerfile",
    "monitor": "services/monitor/Dockerfile",
    "workloads": "e2e/workloads/Dockerfile",
}
"""Every image there is, by the name of its archive."""
WORKLOADS_TAG = "e2e"


class Step:
    """Tells a person what is being done, with the seconds since the beginning."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def __call__(self, sentence: str) -> None:
        print(f"images: {time.monotonic() - self._began:4.0f} s  {sentence}", flush=True)


@dataclass(frozen=True)
class Built:
    """What is told of an image; written beside its archive, to be told again while nothing changes."""

    key: str
    reference: str
    digest: str
    unpacked_bytes: int
    above_base_bytes: int
    archive_bytes: int
    seconds: float
    """What the build took."""


def cache_folder() -> Path:
    """Return where buildah's storage lives."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hami-images"


def recipe(name: str, source: Path, tag: str) -> Recipe:
    """Return what the image *name* of the checkout *source* is made of."""
    bases = (("PYTHON_IMAGE", python_image(RUNTIME)), ("BUILD_IMAGE", python_image(BUILD)))
    tag = WORKLOADS_TAG if name == "workloads" else tag
    return Recipe(name, f"localhost/hami/{name}:{tag}", source, DOCKERFILES[name], bases)


def chart_version(source: Path) -> str:
    """Return the version of the services that the chart of a checkout deploys."""
    return str(yaml.safe_load((source / "charts/hami/Chart.yaml").read_text())["appVersion"])


def known(wanted: Recipe, archive: Path) -> Built | None:
    """Return what was told of *archive* if it is what *wanted* would become, else None."""
    if not (archive.exists() and archive.with_suffix(".json").exists()):
        return None
    built = told(archive)
    return built if built.key == wanted.key() else None


def told(archive: Path) -> Built:
    """Return what was told of *archive* when it was built."""
    return Built(**json.loads(archive.with_suffix(".json").read_text()))


def build(wanted: Recipe, archive: Path, buildah: Buildah) -> Built:
    """Build *wanted* into *archive*. Raises: BuildError."""
    began = time.monotonic()
    key = wanted.key()
    archive.with_suffix(".json").unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(dir=buildah.folder) as scratch:
        buildah.build(
            wanted.source / wanted.dockerfile,
            wanted.source,
            wanted.reference,
            arguments=wanted.arguments(),
            options=pip_options(Path(scratch)),
            log=archive.with_suffix(".log"),
        )
    buildah.save(wanted.reference, archive)
    made = read_archive(archive)
    with buildah.root_of(wanted.reference) as root:
        write_bill(root, made, archive.with_suffix(".cdx.json"))
    buildah.remove(wanted.reference)
    sizes = [layer.size_bytes for layer in made.layers]
    seconds = round(time.monotonic() - began, 1)
    built = Built(key, made.reference, made.digest, sum(sizes), sum(sizes[1:]), made.size_bytes, seconds)
    archive.with_suffix(".json").write_text(json.dumps(asdict(built), indent=2) + "\n")
    return built


def build_missing(wanted: list[Recipe], output: Path, step: Step) -> None:
    """Build what is not known. Raises: BuildError, PackageError."""
    missing = [each for each in wanted if known(each, archive_of(each, output)) is None]
    if not missing:
        return
    if os.geteuid() != 0:
        fail(f"{missing[0].name} changed and must be built, which takes root: sudo .venv/bin/python tools/images.py")
    ensure(commands(["buildah", "mmdebstrap"]), step)
    buildah = Buildah(cache_folder())
    with buildah.alone(step):
        buildah.clean()
        for packages in (RUNTIME, BUILD):
            make_python_image(buildah, packages, step)
        for each in missing:
            if known(each, archive_of(each, output)) is not None:  # whoever was waited for has built it
                continue
            step(f"building {each.reference}")
            built = build(each, archive_of(each, output), buildah)
            step(f"built {each.reference} in {built.seconds:.0f} s")


def archive_of(image: Recipe, output: Path) -> Path:
    """Return where the archive of *image* is."""
    return output / f"{image.name}.tar"


def show(images: list[Built]) -> None:
    """Print a line for each image."""
    table = Table("image", "digest", box=None)
    for title in ("unpacked MB", "above base MB", "archive MB", "built in s"):
        table.add_column(title, justify="right")
    for image in images:
        sizes = (image.unpacked_bytes, image.above_base_bytes, image.archive_bytes)
        table.add_row(
            image.reference, image.digest[:19], *(f"{size / 1e6:.0f}" for size in sizes), f"{image.seconds:.0f}"
        )
    Console(width=140).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(prog="images", description="Build the images into OCI archives.")
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"which: {', '.join(DOCKERFILES)}; all if none is named"
    )
    parser.add_argument("--tag", help="the services' tag; the chart's appVersion if it is not given")
    parser.add_argument("--source", type=Path, default=ROOT, help="the checkout to build, this one if it is not given")
    parser.add_argument("--commit", help="build this commit of the checkout, such as HEAD^, in place of its files")
    parser.add_argument("--output", type=Path, default=ROOT / "build/images", help="where the archives go")
    options = parser.parse_args()
    unknown = sorted(set(options.names) - set(DOCKERFILES))
    if unknown:
        fail(f"there is no image {', '.join(unknown)}; there are {', '.join(DOCKERFILES)}")
    output = options.output.resolve()
    output.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        source = options.source.resolve()
        if options.commit:
            source = stack.enter_context(checked_out(source, options.commit))
        tag = options.tag or chart_version(source)
        wanted = [recipe(name, source, tag) for name in options.names or DOCKERFILES]
        try:
            build_missing(wanted, output, Step())
        except (BuildError, PackageError) as error:
            fail(str(error))
        show([told(archive_of(each, output)) for each in wanted])


@contextmanager
def checked_out(repository: Path, commit: str) -> Iterator[Path]:
    """A checkout of *commit* for the length of a block."""
    git = ["git", "-C", str(repository), "worktree"]
    with tempfile.TemporaryDirectory(prefix="hami-commit-") as folder:
        made = subprocess.run(
            [*git, "add", "--quiet", "--detach", folder, commit], capture_output=True, text=True, check=False
        )
        if made.returncode:
            fail(f"{repository} has no commit {commit}: {made.stderr.strip()}")
        try:
            yield Path(folder)
        finally:
            subprocess.run([*git, "remove", "--force", folder], check=True)


if __name__ == "__main__":
    to_the_end(main)
