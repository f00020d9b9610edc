"""
OCI archives: packed from files of this machine, and read for the names of images.

Owns the form of the packed archives: one image, one uncompressed layer.
Source: https://github.com/opencontainers/image-spec, image-layout.md and manifest.md.
"""

import hashlib
import io
import json
import os
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

OUR_ARCH = {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine)
"""This machine's architecture, by its name in OCI."""
NAME_ANNOTATIONS = ("io.containerd.image.name", "org.opencontainers.image.ref.name")
"""The annotations in an archive's index that name an image, the most complete first."""

_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar"


@dataclass(frozen=True)
class Named:
    """An image of an archive."""

    name: str
    digest: str
    """Of the manifest, `sha256:...`."""


def packed(
    archive: Path, name: str, files: Mapping[str, Path], entrypoint: Sequence[str], arch: str = OUR_ARCH
) -> Path:
    """
    Make *archive* with the image *name* if it is missing, and return it.

    *files* maps paths in the image to executable files of this machine, built for *arch*. The image runs *entrypoint*.
    """
    if not archive.exists():
        with tempfile.TemporaryDirectory(dir=archive.parent, prefix=".pack-") as draft:
            layer = Path(draft, "layer.tar")
            _write_layer(layer, files)
            _write_archive(Path(draft, "image.tar"), name, layer, entrypoint, arch)
            Path(draft, "image.tar").rename(archive)
    return archive


def images(archive: Path) -> list[Named]:
    """Return the images in *archive*. Raises: ValueError if it is not an OCI archive, or an image has no name."""
    try:
        with tarfile.open(archive) as tar:
            file = tar.extractfile("index.json")
            assert file is not None
            index = json.load(file)
    except (tarfile.TarError, KeyError, ValueError) as error:
        raise ValueError(f"{archive} is not an OCI archive: {error}") from error
    found = []
    for manifest in index["manifests"]:
        names = [manifest.get("annotations", {}).get(key) for key in NAME_ANNOTATIONS]
        name = next((name for name in names if name), None)
        if name is None:
            raise ValueError(f"{archive}: image {manifest['digest']} has none of the annotations {NAME_ANNOTATIONS}")
        found.append(Named(name, manifest["digest"]))
    return found


def _write_archive(archive: Path, name: str, layer: Path, entrypoint: Sequence[str], arch: str) -> None:
    digest = "sha256:" + _sha256(layer)
    platform = {"architecture": arch, "os": "linux"}
    config = {
        **platform,
        "config": {"Entrypoint": list(entrypoint), "Env": ["PATH=/usr/local/bin:/usr/bin:/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [digest]},
    }
    with tarfile.open(archive, "w", format=tarfile.GNU_FORMAT) as tar:
        _add(tar, "oci-layout", json.dumps({"imageLayoutVersion": "1.0.0"}).encode())
        tar.add(layer, _blob_path(digest), filter=_reproducible)
        manifest = {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": _blob(tar, "application/vnd.oci.image.config.v1+json", config),
            "layers": [{"mediaType": _LAYER, "digest": digest, "size": layer.stat().st_size}],
        }
        described = _blob(tar, _MANIFEST, manifest)
        described |= {"platform": platform, "annotations": dict.fromkeys(NAME_ANNOTATIONS, name)}
        _add(tar, "index.json", json.dumps({"schemaVersion": 2, "manifests": [described]}).encode())


def _write_layer(path: Path, files: Mapping[str, Path]) -> None:
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as tar:
        folders = {str(folder) for place in files for folder in Path(place.lstrip("/")).parents} - {"."}
        for folder in sorted(folders):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(entry)
        for place, source in sorted(files.items()):
            tar.add(source.resolve(), place.lstrip("/"), filter=_reproducible)


def _reproducible(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Remove owner and time of a file, so that equal files make an equal image."""
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ""
    entry.mode = 0o755
    return entry


def _blob(tar: tarfile.TarFile, media_type: str, content: object) -> dict[str, Any]:
    """Add *content* as JSON, and return its descriptor."""
    encoded = json.dumps(content).encode()
    digest = "sha256:" + hashlib.sha256(encoded).hexdigest()
    _add(tar, _blob_path(digest), encoded)
    return {"mediaType": media_type, "digest": digest, "size": len(encoded)}


def _add(tar: tarfile.TarFile, path: str, content: bytes) -> None:
    entry = tarfile.TarInfo(path)
    entry.size = len(content)
    tar.addfile(entry, io.BytesIO(content))


def _blob_path(digest: str) -> str:
    return "blobs/" + digest.replace(":", "/")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
