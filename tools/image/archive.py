"""
Read an OCI archive: digest, configuration, sizes of layers, some files. Join archives of several architectures.

The name of an image is in the archive's index, not in the image, so the same image can be written with any name.
Source: https://github.com/opencontainers/image-spec/blob/v1.1.0/image-layout.md
"""

import gzip
import hashlib
import io
import json
import re
import shutil
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

_INDEX = "index.json"
_INDEX_TYPE = "application/vnd.oci.image.index.v1+json"
_NAME = "org.opencontainers.image.ref.name"


@dataclass(frozen=True)
class Layer:
    """A layer, uncompressed."""

    diff_id: str
    """The digest of its uncompressed bytes."""
    size_bytes: int
    """The total size of its files."""


@dataclass(frozen=True)
class Archive:
    """The content of an archive with one image."""

    reference: str
    digest: str
    """The digest of the manifest, which identifies the image in a registry."""
    config: dict[str, Any]
    """Source: https://github.com/opencontainers/image-spec/blob/v1.1.0/config.md"""
    layers: tuple[Layer, ...]
    """The layer of the base is first."""
    size_bytes: int
    """The size of the archive."""


def read_archive(path: Path) -> Archive:
    """Return the content of the archive at *path*."""
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
    """Write the files of an image whose path below `/` matches *wanted* to *folder*, without their modes."""
    with tarfile.open(path) as archive:
        for layer in _manifest(archive)[1]["layers"]:
            with _files(archive, layer) as files:
                for member in files:
                    name = member.name.removeprefix("./")
                    if wanted.fullmatch(name) and (content := files.extractfile(member)) is not None:
                        (folder / name).parent.mkdir(parents=True, exist_ok=True)
                        (folder / name).write_bytes(content.read())


def rename(path: Path, reference: str, renamed: Path) -> None:
    """Write the image of the archive at *path* to *renamed*, byte for byte, with the name *reference*."""
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


def config_digest(path: Path) -> str:
    """Return the digest of the image's configuration, which names its layers, however they are compressed."""
    with tarfile.open(path) as archive:
        return str(_manifest(archive)[1]["config"]["digest"])


def write_layout(archives: Mapping[str, Path], folder: Path) -> str:
    """
    Write the images of *archives*, by architecture, to *folder* as one image, and return its name for skopeo.

    One image stays as it is. Several become the manifests of an index.
    Source: https://github.com/opencontainers/image-spec/blob/v1.1.0/image-index.md
    """
    entries = []
    (folder / "blobs/sha256").mkdir(parents=True)
    for arch, path in sorted(archives.items()):
        with tarfile.open(path) as archive:
            entry, manifest = _manifest(archive)
            entries.append({key: entry[key] for key in ("mediaType", "digest", "size")})
            entries[-1]["platform"] = {"architecture": arch, "os": "linux"}
            for descriptor in (entry, manifest["config"], *manifest["layers"]):
                with (folder / _path(descriptor)).open("wb") as copy:
                    shutil.copyfileobj(_blob(archive, descriptor), copy)
    if len(entries) > 1:
        entries = [
            _write_blob(folder, _INDEX_TYPE, {"schemaVersion": 2, "mediaType": _INDEX_TYPE, "manifests": entries})
        ]
    entries[0]["annotations"] = {_NAME: "image"}
    (folder / "oci-layout").write_text(json.dumps({"imageLayoutVersion": "1.0.0"}))
    (folder / _INDEX).write_text(json.dumps({"schemaVersion": 2, "manifests": entries}))
    return f"oci:{folder}:image"


def _write_blob(folder: Path, media_type: str, content: object) -> dict[str, Any]:
    """Write *content* as a blob of the layout, and return its descriptor."""
    encoded = json.dumps(content, sort_keys=True).encode()
    digest = f"sha256:{hashlib.sha256(encoded).hexdigest()}"
    descriptor = {"mediaType": media_type, "digest": digest, "size": len(encoded)}
    (folder / _path(descriptor)).write_bytes(encoded)
    return descriptor


def _index(archive: tarfile.TarFile) -> dict[str, Any]:
    content = archive.extractfile(_INDEX)
    assert content is not None, f"{archive.name!r}: {_INDEX} is not a file"
    index: dict[str, Any] = json.load(content)
    return index


def _manifest(archive: tarfile.TarFile) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the only entry of the index, and its manifest."""
    (entry,) = _index(archive)["manifests"]
    return entry, json.loads(_blob(archive, entry).read())


def _blob(archive: tarfile.TarFile, descriptor: dict[str, Any]) -> IO[bytes]:
    blob = archive.extractfile(_path(descriptor))
    assert blob is not None, f"{archive.name!r}: blob {descriptor['digest']} is not a file"
    return blob


def _path(descriptor: dict[str, Any]) -> str:
    """Return the path of a blob in an archive or a layout."""
    return f"blobs/{descriptor['digest'].replace(':', '/')}"


@contextmanager
def _files(archive: tarfile.TarFile, layer: dict[str, Any]) -> Iterator[tarfile.TarFile]:
    """Open a layer. Its members must be read in order."""
    blob = _blob(archive, layer)
    with tarfile.open(fileobj=gzip.open(blob) if layer["mediaType"].endswith("gzip") else blob) as files:
        yield files
