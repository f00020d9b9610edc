"""
Read what an OCI archive holds: its digest, its configuration, the sizes of its layers and some of its files.

An archive's name stands beside the image, not in it, so that one image can be written under any.
Source: https://github.com/opencontainers/image-spec/blob/v1.1.0/image-layout.md
"""

import gzip
import io
import json
import re
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

_INDEX = "index.json"
_NAME = "org.opencontainers.image.ref.name"


@dataclass(frozen=True)
class Layer:
    """One layer, as it lies on a node's disk."""

    diff_id: str
    """The digest of its uncompressed bytes."""
    size_bytes: int
    """The sum of its files."""


@dataclass(frozen=True)
class Archive:
    """What is in an archive of one image."""

    reference: str
    digest: str
    """Of the manifest, by which a registry knows the image."""
    config: dict[str, Any]
    """Source: https://github.com/opencontainers/image-spec/blob/v1.1.0/config.md"""
    layers: tuple[Layer, ...]
    """The base's comes first."""
    size_bytes: int
    """Of the archive itself."""


def read_archive(path: Path) -> Archive:
    """Return what the archive at *path* holds."""
    with tarfile.open(path) as archive:
        entry, manifest = _manifest(archive)
        config = json.loads(_blob(archive, manifest["config"]).read())
        sizes = []
        for layer in manifest["layers"]:
            with _files(archive, layer) as files:
                sizes.append(sum(member.size for member in files))
    layers = tuple(Layer(*pair) for pair in zip(config["rootfs"]["diff_ids"], sizes, strict=True))
    return Archive(entry["annotations"][_NAME], entry["digest"], config, layers, path.stat().st_size)


def unpack(path: Path, wanted: re.Pattern[str], folder: Path) -> None:
    """Write to *folder* those files of an image, modes aside, whose whole path below `/` matches *wanted*."""
    with tarfile.open(path) as archive:
        for layer in _manifest(archive)[1]["layers"]:
            with _files(archive, layer) as files:
                for member in files:
                    name = member.name.removeprefix("./")
                    if wanted.fullmatch(name) and (content := files.extractfile(member)) is not None:
                        (folder / name).parent.mkdir(parents=True, exist_ok=True)
                        (folder / name).write_bytes(content.read())


def rename(path: Path, reference: str, renamed: Path) -> None:
    """Write to *renamed* the image of the archive at *path*, byte for byte, under the name *reference*."""
    part = renamed.with_suffix(".part")
    with tarfile.open(path) as archive, tarfile.open(part, "w") as copy:
        for member in archive:
            content = archive.extractfile(member)
            if member.name == _INDEX:
                index = _index(archive)
                index["manifests"][0]["annotations"][_NAME] = reference
                content = io.BytesIO(json.dumps(index).encode())
                member.size = len(content.getvalue())
            copy.addfile(member, content)
    part.replace(renamed)


def _index(archive: tarfile.TarFile) -> dict[str, Any]:
    content = archive.extractfile(_INDEX)
    assert content is not None, f"{archive.name!r}: {_INDEX} is not a file"
    index: dict[str, Any] = json.load(content)
    return index


def _manifest(archive: tarfile.TarFile) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the index's only entry, and the manifest it names."""
    (entry,) = _index(archive)["manifests"]
    return entry, json.loads(_blob(archive, entry).read())


def _blob(archive: tarfile.TarFile, descriptor: dict[str, Any]) -> IO[bytes]:
    blob = archive.extractfile(f"blobs/{descriptor['digest'].replace(':', '/')}")
    assert blob is not None, f"{archive.name!r}: blob {descriptor['digest']} is not a file"
    return blob


@contextmanager
def _files(archive: tarfile.TarFile, layer: dict[str, Any]) -> Iterator[tarfile.TarFile]:
    """Open a layer; its members are to be read in order."""
    blob = _blob(archive, layer)
    with tarfile.open(fileobj=gzip.open(blob) if layer["mediaType"].endswith("gzip") else blob) as files:
        yield files
