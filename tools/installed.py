"""
Install every release of each part, for the tests of services of different versions.

    tools/installed.py FOLDER

FOLDER gets a checkout of each release, such as `scheduler-0.1.0`, with the part in its `.venv` and, for the device
plugin, the library in its `build/native`. Each is made once. Must never install this tree. A shallow clone has no
releases.
"""

import argparse
import io
import shutil
import subprocess
import tarfile
from pathlib import Path

from bootstrap import BUILD, ROOT, alone, fail, to_the_end
from build_native import run, tool, toolchain
from installer import Installer, InstallError
from publish.parts import CLIENT, PARTS, SERVICES
from publish.release import Release, git, releases

LIBRARY = "device-plugin"
"""The part whose image has the library."""
STAMP = "installed"
"""The file in a checkout that is written last."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="installed", description="Install every release of each part.")
    parser.add_argument("folder", metavar="FOLDER", type=Path, help="folder of the checkouts")
    folder = parser.parse_args().folder.resolve()
    if git(ROOT, "rev-parse", "--is-shallow-repository") == "true":
        fail("a shallow clone has no history to find releases in; git fetch --unshallow gets it")
    with alone("installed") as lock:
        for made in (each for name in (*SERVICES, CLIENT) for each in releases(PARTS[name], ROOT)):
            checkout = folder / f"{made.part.name}-{made.version}"
            stamp = checkout / STAMP
            if not stamp.exists() or stamp.read_text() != made.commit:
                print(f"installed: {made.tag}", flush=True)
                install(made, checkout, lock)
                stamp.write_text(made.commit)


def install(made: Release, checkout: Path, lock: int) -> None:
    """Install a release in place, in a *checkout* that is made from nothing."""
    shutil.rmtree(checkout, ignore_errors=True)
    (checkout / "build").mkdir(parents=True)
    archive = subprocess.run(
        ["git", "-C", str(ROOT), "archive", made.commit], stdout=subprocess.PIPE, check=True
    ).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(checkout, filter="data")
    installer = Installer(checkout, lock)
    try:
        installer.make_venv()
        installer.install_uv()
        installer.install_locked([made.part.name, "setuptools"])
        installer.install_editable(["libs/hamicommon", str(made.part.folder)])
    except InstallError as error:
        fail(str(error))
    if made.part.name == LIBRARY:
        build_library(checkout)


def build_library(checkout: Path) -> None:
    """Build the library and the hook of a *checkout* with the tools of this one."""
    BUILD.mkdir(exist_ok=True)
    output = checkout / "build/native"
    source = ("-S", str(checkout / "native/hami-core"), "-B", str(output), "-G", "Ninja")
    ninja = f"-DCMAKE_MAKE_PROGRAM={tool('ninja')}"
    run(tool("cmake"), *source, *toolchain(), ninja, "-DCMAKE_BUILD_TYPE=RelWithDebInfo", "-DBUILD_TESTING=OFF")
    run(tool("ninja"), "-C", str(output))


if __name__ == "__main__":
    to_the_end(main)
