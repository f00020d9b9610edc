"""
Build the images of the services and of the tests' workloads, without a container engine, and push them.

    tools/images.py [build] [--tag TAG] [--arch ARCH] [--source CHECKOUT | --commit COMMIT] [--output FOLDER]
                    [--rebuild] [NAME...]
    tools/images.py push REGISTRY [--arch ARCH]... [--kubernetes VERSION] [--kube-scheduler-from REGISTRY] [NAME...]

An image is built once for the same input files, in any checkout and with any tag. Owns the output.
The Dockerfiles define the images. Building needs root, for buildah's storage and Debian's packages.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bootstrap import ROOT, fail, to_the_end
from controlplane.programs.build import BuildError as ProgramError
from image.base import BUILD, RUNTIME, make_python_image, python_image
from image.build import build
from image.buildah import Buildah, BuildError, last_step
from image.catalogue import ARCHES, DOCKERFILES, OUR_ARCH, Wanted, bases, wanted
from image.settings import go_options, pip_options
from image.store import Built, Store
from publish.kube_scheduler import REPOSITORY, VersionError, built_version, cluster_version, plain
from publish.kube_scheduler import make as make_kube_scheduler
from publish.registry import Pushed, Registry, RegistryError
from testbed.debian import PackageError, commands, ensure

PROGRESS_SECONDS = 20.0


class Step:
    """Prints progress, with the seconds since the start."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def __call__(self, sentence: str) -> None:
        print(f"images: {time.monotonic() - self._began:4.0f} s  {sentence}\n", end="", flush=True)


def cache_folder() -> Path:
    """Return the folder of built images and of buildah's storage."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hami-images"


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

        for image in images:
            (output / f"{image.name}.log").unlink(missing_ok=True)
        step(f"building {', '.join(image.name for image in images)}; {processors} at once")
        building = {pool.submit(into_store, image): image for image in images}
        try:
            while building:
                for done in wait(building, PROGRESS_SECONDS, FIRST_COMPLETED).done:
                    image = building.pop(done)
                    step(f"built {image.name} in {done.result().seconds:.0f} s; {len(building)} to go")
                for image in building.values():
                    if at := last_step(output / f"{image.name}.log"):
                        step(f"building {image.name}: {at}")
        except BuildError as error:
            raise BuildError(f"{image.name}: {error}") from error
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
    options = parse(sys.argv[1:])
    known = [*DOCKERFILES, *([REPOSITORY] if options.command == "push" else [])]
    unknown = sorted(set(options.names) - set(known))
    if unknown:
        fail(f"unknown image {', '.join(unknown)}; known are {', '.join(known)}")
    names, step = options.names or known, Step()
    try:
        with source_of(options) as source:
            if options.command == "push":
                show_pushed(list(pushed(options, source, names, step)), options.registry)
            else:
                images = [wanted(name, source, options.tag, options.arch) for name in names]
                show(built(images, options.output.resolve(), step, keeps=not options.rebuild))
    except (BuildError, PackageError, ProgramError, RegistryError, VersionError) as error:
        fail(str(error))


def parse(arguments: list[str]) -> argparse.Namespace:
    """Return the options of a command line, with the name of its command."""
    command = arguments.pop(0) if arguments[:1] in (["build"], ["push"]) else "build"
    parser = argparse.ArgumentParser(
        prog=f"images {command}", description="Build the images into OCI archives. `images push` pushes them, too."
    )
    {"build": add_build_options, "push": add_push_options}[command](parser)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"image: {', '.join(DOCKERFILES)} (default: all)")
    parser.add_argument("--tag", help="tag of the services' images (default: the version of each)")
    parser.add_argument("--source", type=Path, default=ROOT, help="checkout to build (default: this one)")
    parser.add_argument("--commit", help="build this commit of the checkout, such as HEAD^, instead of its files")
    return parser.parse_intermixed_args(arguments, argparse.Namespace(command=command))


def add_build_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `build`."""
    parser.add_argument(
        "--arch", choices=ARCHES.values(), default=OUR_ARCH, help="architecture (default: this machine's)"
    )
    parser.add_argument("--output", type=Path, default=ROOT / "build/images", help="folder of the archives")
    parser.add_argument("--rebuild", action="store_true", help="build all images again, and do not keep them")


def add_push_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `push`."""
    parser.add_argument(
        "registry", metavar="REGISTRY", help="such as registry.example.com or registry.example.com/team"
    )
    parser.add_argument(
        "--arch",
        dest="arches",
        action="append",
        choices=ARCHES.values(),
        help="architecture of the Nodes; given twice, each image is for both (default: this machine's)",
    )
    parser.add_argument("--kubernetes", metavar="VERSION", help="version of the cluster (default: kubectl asks it)")
    parser.add_argument(
        "--kube-scheduler-from", metavar="REGISTRY", help="copy kube-scheduler, such as from registry.k8s.io"
    )
    parser.add_argument("--replace", action="store_true", help="overwrite tags that have another content")


@contextmanager
def source_of(options: argparse.Namespace) -> Iterator[Path]:
    """During a block, have the checkout that is built."""
    source = options.source.resolve()
    with checked_out(source, options.commit) if options.commit else nullcontext(source) as found:
        yield found


def built(images: list[Wanted], output: Path, step: Step, *, keeps: bool = True) -> dict[str, Built]:
    """Build *images* into archives in the folder *output*, and return each by its reference."""
    output.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        temporary = None if keeps else stack.enter_context(tempfile.TemporaryDirectory())
        store = Store(Path(temporary) if temporary else cache_folder() / "archives")
        build_missing(images, store, output, step)
        return {each.reference: store.deliver(each.key, each.reference, output / f"{each.name}.tar") for each in images}


def pushed(options: argparse.Namespace, source: Path, names: list[str], step: Step) -> Iterator[Pushed]:
    """Build *names* for all architectures, push them, and yield each as it is in the registry."""
    ensure(commands(["skopeo"]), step)
    registry, arches = Registry(options.registry), sorted(set(options.arches or [OUR_ARCH]))
    version = plain(options.kubernetes or cluster_version()) if REPOSITORY in names else ""
    with tempfile.TemporaryDirectory(prefix="hami-push-") as scratch:
        archives: dict[str, dict[str, Path]] = {}
        for arch in arches:
            images = [wanted(name, source, options.tag, arch) for name in names if name != REPOSITORY]
            built(images, Path(scratch, arch), step)
            for image in images:
                archives.setdefault(image.reference, {})[arch] = Path(scratch, arch, f"{image.name}.tar")
        for reference, each in archives.items():
            repository, tag = reference.removeprefix("localhost/").split(":")
            step(f"pushing {registry.name}/{repository}:{tag}")
            yield registry.push(repository, tag, each, replaces=options.replace)
    if version and options.kube_scheduler_from:
        step(f"copying kube-scheduler {version} from {options.kube_scheduler_from}")
        yield registry.copy(f"{options.kube_scheduler_from}/{REPOSITORY}:{version}", REPOSITORY, version)
    elif version:
        ours = built_version(version)
        made = {arch: make_kube_scheduler(ours, arch, step) for arch in arches}
        step(f"pushing {registry.name}/{REPOSITORY}:{ours}")
        yield registry.push(REPOSITORY, ours, made, replaces=options.replace)
        if ours != version:
            step(f"the cluster has {version}: add --set scheduler.kubeScheduler.image.tag={ours} to helm install")


def show_pushed(images: list[Pushed], registry: str) -> None:
    """Print a line for each image in the registry, and how the chart gets them."""
    table = Table("image", "digest", "", box=None)
    for image in images:
        table.add_row(image.reference, image.digest, "pushed" if image.is_new else "was there")
    Console(width=200).print(table)
    print(f"\nthe chart pulls them with --set image.registry={registry}")


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
