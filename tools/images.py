"""
Build the images of the services and of the tests' workloads into `build/images`, without an engine or a registry.

    tools/images.py [--tag TAG] [--arch ARCH] [--source CHECKOUT | --commit COMMIT] [--output FOLDER] [--rebuild]
                    [NAME...]

An image is built once for the same input files, in any checkout and with any tag. Owns the list of images and the
output. The Dockerfiles define the images. Building needs root, for buildah's storage and Debian's packages.
"""

import argparse
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml
from rich.console import Console
from rich.table import Table

from bootstrap import ROOT, fail, to_the_end
from image.base import BUILD, RUNTIME, make_python_image, python_image
from image.build import build
from image.buildah import Buildah, BuildError
from image.go_settings import go_options
from image.pip_settings import pip_options
from image.recipe import Recipe
from image.store import Built, Store
from testbed.debian import PackageError, commands, ensure

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


class Step:
    """Prints progress, with the seconds since the start."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def __call__(self, sentence: str) -> None:
        print(f"images: {time.monotonic() - self._began:4.0f} s  {sentence}\n", end="", flush=True)


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


def cache_folder() -> Path:
    """Return the folder of built images and of buildah's storage."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hami-images"


def bases(name: str, arch: str) -> dict[str, tuple[tuple[str, ...], str]]:
    """Return packages and architecture of the Python images of *name*, by arguments of its Dockerfile."""
    ours = {"LIBRARY_IMAGE": (BUILD, OUR_ARCH)} if name == "device-plugin" else {}
    return {"PYTHON_IMAGE": (RUNTIME, arch), "BUILD_IMAGE": (BUILD, arch), **ours}


def wanted(name: str, source: Path, tag: str | None, arch: str = OUR_ARCH) -> Wanted:
    """Return the image *name* of the checkout *source*. The default *tag* is the chart's version."""
    version = chart_version(source)
    images = tuple((argument, python_image(*base)) for argument, base in bases(name, arch).items())
    recipe = Recipe(name, version, source, DOCKERFILES[name], images, arch)
    tag = WORKLOADS_TAG if name == "workloads" else tag or version
    return Wanted(recipe, recipe.key(), f"{recipe.repository}:{tag}")


def chart_version(source: Path) -> str:
    """Return the version of the services in the chart of a checkout."""
    return str(yaml.safe_load((source / "charts/hami/Chart.yaml").read_text())["appVersion"])


def prepare(arch: str, step: Callable[[str], None]) -> None:
    """Install the programs that build for *arch*. Raises: PackageError."""
    ensure(commands(["buildah", "mmdebstrap", *(["arch-test"] if arch != OUR_ARCH else [])]), step)
    if arch != OUR_ARCH and subprocess.run(["arch-test", arch], capture_output=True, check=False).returncode != 0:
        fail(f"programs for {arch} do not run here: apt-get install qemu-user-static binfmt-support")


def build_missing(images: list[Wanted], store: Store, output: Path, step: Step) -> None:
    """Build the images that are not in *store*. Raises: BuildError, PackageError."""
    missing = [image for image in images if not store.has(image.name, image.key)]
    if not missing:
        return
    if os.geteuid() != 0:
        fail(f"{missing[0].name} changed and must be built, which needs root: sudo .venv/bin/python tools/images.py")
    arch = missing[0].recipe.arch
    prepare(arch, step)
    buildah = Buildah(cache_folder())
    with buildah.alone(step):
        missing = [image for image in missing if not store.has(image.name, image.key)]
        if not missing:  # another process has built them meanwhile
            return
        store.prune()
        buildah.clean(kept=[python_image(packages, each) for packages in (RUNTIME, BUILD) for each in ARCHES.values()])
        needed = {base for image in missing for base in bases(image.name, arch).values()}
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda base: make_python_image(buildah, base[0], base[1], step), needed))
        build_all(missing, store, buildah, output, step)


def build_all(images: list[Wanted], store: Store, buildah: Buildah, output: Path, step: Step) -> None:
    """Build *images* into the store, one for each processor at a time. Raises: BuildError."""
    processors = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory(dir=buildah.scratch) as scratch, ThreadPoolExecutor(processors) as pool:
        options = [*pip_options(Path(scratch)), *go_options(Path(scratch))]

        def into_store(image: Wanted) -> Built:
            with store.adding(image.name, image.key) as archive:
                return build(image.recipe, image.key, buildah, options, archive, output / f"{image.name}.log")

        step(f"building {', '.join(image.name for image in images)}; {processors} at once")
        building = {pool.submit(into_store, image): image for image in images}
        try:
            for done in as_completed(building):
                step(f"built {building[done].name} in {done.result().seconds:.0f} s")
        except BuildError as error:
            raise BuildError(f"{building[done].name}: {error}") from error
        finally:
            pool.shutdown(cancel_futures=True)


def show(images: dict[str, Built]) -> None:
    """Print a line for each image, by its reference."""
    table = Table("image", "digest", box=None)
    for title in ("unpacked MB", "above base MB", "archive MB", "built in s"):
        table.add_column(title, justify="right")
    for reference, image in images.items():
        sizes = (image.unpacked_bytes, image.above_base_bytes, image.archive_bytes)
        table.add_row(reference, image.digest[:19], *(f"{size / 1e6:.0f}" for size in sizes), f"{image.seconds:.0f}")
    Console(width=140).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(prog="images", description="Build the images into OCI archives.")
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"image to build: {', '.join(DOCKERFILES)} (default: all)"
    )
    parser.add_argument("--tag", help="tag of the services' images (default: the chart's appVersion)")
    parser.add_argument(
        "--arch", choices=ARCHES.values(), default=OUR_ARCH, help="architecture (default: this machine's)"
    )
    parser.add_argument("--source", type=Path, default=ROOT, help="checkout to build (default: this one)")
    parser.add_argument("--commit", help="build this commit of the checkout, such as HEAD^, instead of its files")
    parser.add_argument("--output", type=Path, default=ROOT / "build/images", help="folder of the archives")
    parser.add_argument("--rebuild", action="store_true", help="build all images again, and do not keep them")
    options = parser.parse_args()
    unknown = sorted(set(options.names) - set(DOCKERFILES))
    if unknown:
        fail(f"unknown image {', '.join(unknown)}; known are {', '.join(DOCKERFILES)}")
    output = options.output.resolve()
    output.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        source = options.source.resolve()
        if options.commit:
            source = stack.enter_context(checked_out(source, options.commit))
        kept = cache_folder() / "archives"
        if options.rebuild:
            kept = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        store = Store(kept)
        images = [wanted(name, source, options.tag, options.arch) for name in options.names or DOCKERFILES]
        try:
            build_missing(images, store, output, Step())
        except (BuildError, PackageError) as error:
            fail(str(error))
        show({each.reference: store.deliver(each.key, each.reference, output / f"{each.name}.tar") for each in images})


@contextmanager
def checked_out(repository: Path, commit: str) -> Iterator[Path]:
    """During a block, check out *commit* into a temporary folder."""
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
