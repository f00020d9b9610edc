"""
Build the newest release of each service, with its chart, for the tests of upgrades.

    tools/released.py FOLDER

FOLDER gets an archive for each service, and the chart in `chart`. Must never build anything else: a release is found in
the history of the checkout. A shallow clone has none, so nothing is built there.
"""

import argparse
import shutil
from pathlib import Path

from bootstrap import ROOT, fail, to_the_end
from image.buildah import BuildError
from image.catalogue import wanted
from images import Step, built, checked_out, show
from publish.parts import CHART, PARTS, SERVICES
from publish.release import Release, git, newest
from testbed.debian import PackageError


def found(name: str) -> Release:
    """Return the newest release of the part *name*, or end with what is missing."""
    made = newest(PARTS[name], ROOT)
    if made is None:
        fail(f"this checkout's history has no release of {name}")
    return made


def write_chart(made: Release, folder: Path) -> None:
    """Write the released chart to *folder*."""
    shutil.rmtree(folder, ignore_errors=True)
    with checked_out(ROOT, made.commit) as source:
        shutil.copytree(source / made.part.folder, folder)


def main() -> None:
    parser = argparse.ArgumentParser(prog="released", description="Build the newest release of each service.")
    parser.add_argument("folder", metavar="FOLDER", type=Path, help="folder of the archives and the chart")
    folder = parser.parse_args().folder.resolve()
    if git(ROOT, "rev-parse", "--is-shallow-repository") == "true":
        print("nothing is built: a shallow clone has no history to find releases in; git fetch --unshallow gets it")
        return
    releases = {name: found(name) for name in (*SERVICES, CHART)}
    step = Step()
    for name in SERVICES:
        step(f"{releases[name].tag} is {releases[name].commit[:12]}")
        try:
            with checked_out(ROOT, releases[name].commit) as source:
                show(built([wanted(name, source, None)], folder, step))
        except (BuildError, PackageError) as error:
            fail(str(error))
    write_chart(releases[CHART], folder / "chart")


if __name__ == "__main__":
    to_the_end(main)
