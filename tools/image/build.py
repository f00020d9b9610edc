"""
Build one image from its recipe: the archive, its bill of materials, its figures.

Neighbours: `buildah` runs the Dockerfile, `store` keeps the result.
"""

import json
import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from image.archive import read_archive
from image.bill import write_bill
from image.buildah import Buildah, BuildError
from image.recipe import Recipe
from image.store import Built


def build(recipe: Recipe, key: str, buildah: Buildah, options: Sequence[str], archive: Path, log: Path) -> Built:
    """
    Build *recipe* into *archive*, with a name without a tag, and write the bill of materials beside it.

    key         key of the recipe
    options     further options of buildah
    log         output of buildah, also after a failure

    Raises:
        BuildError: a step failed, or the recipe's files changed meanwhile.
    """
    began = time.monotonic()
    bases = {argument: buildah.identity(reference) for argument, reference in recipe.bases}
    buildah.build(
        recipe.source / recipe.dockerfile,
        recipe.source,
        recipe.repository,
        recipe.arch,
        archive=archive,
        arguments={**recipe.arguments(), **bases},
        options=options,
        log=log,
    )
    if recipe.key() != key:
        raise BuildError("its input files changed during the build; build it again")
    image = read_archive(archive)
    write_bill(archive, image, archive.with_suffix(".cdx.json"))
    shutil.copyfile(log, archive.with_suffix(".log"))
    sizes = [layer.size_bytes for layer in image.layers]
    seconds = round(time.monotonic() - began, 1)
    built = Built(image.digest, sum(sizes), sum(sizes[1:]), image.size_bytes, seconds)
    archive.with_suffix(".json").write_text(json.dumps(asdict(built)) + "\n")
    return built
