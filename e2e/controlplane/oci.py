"""
Images: packed from files of this machine, and read for their names.

Owns the form of an OCI archive as far as it is used here: one image, one uncompressed layer.
Source: https://github.com/opencontainers/image-spec, image-layout.md and manifest.md.
"""

import hashlib
import io
import json
import os
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
NAME_ANNOTATIONS = ("io.containerd.image.name", "org.opencontainers.image.ref.name")
"""Where an archive's index says what an image is called, the fullest first."""


@dataclass(frozen=True)
class Named:
    """An image of an archive."""

    name: str
    digest: str
    """Of what the index names, `sha256:...`."""


def pack(archive: Path, name: str, files: Mapping[str, Path], entrypoint: Sequence[str]) -> None:
    """Write the image *name* to *archive*: *files*, executable, by their path in the image, and what it runs."""
    layer = archive.with_name(archive.name + ".layer")
    draft = archive.with_name(archive.name + ".new")
    try:
        _write_layer(layer, files)
        digest = "sha256:" + _sha256(layer)
        architecture = ARCHITECTURES[os.uname().machine]
        config = {
            "architecture": architecture,
            "os": "linux",
            "config": {"Entrypoint": list(entrypoint), "Env": ["PATH=/usr/local/bin:/usr/bin:/bin"]},
            "rootfs": {"type": "layers", "diff_ids": [digest]},
        }
        with tarfile.open(draft, "w", format=tarfile.GNU_FORMAT) as tar:
            _add(tar, "oci-layout", json.dumps({"imageLayoutVersion": "1.0.0"}).encode())
            manifest: dict[str, Any] = {
                "schemaVersion": 2,
                "mediaType": "application/vnd.oci.image.manifest.v1+json",
                "config": _blob(tar, "application/vnd.oci.image.config.v1+json", config),
                "layers": [
                    {
                        "mediaType": "application/vnd.oci.image.layer.v1.tar",
                        "digest": digest,
                        "size": layer.stat().st_size,
                    }
                ],
            }
            tar.add(layer, _blob_path(digest), filter=_reproducible)
            described = _blob(tar, manifest["mediaType"], manifest)
            described["platform"] = {"architecture": architecture, "os": "linux"}
            described["annotations"] = dict.fromkeys(NAME_ANNOTATIONS, name)
            index = {"schemaVersion": 2, "manifests": [described]}
            _add(tar, "index.json", json.dumps(index).encode())
        draft.rename(archive)
    finally:
        layer.unlink(missing_ok=True)
        draft.unlink(missing_ok=True)


def images(archive: Path) -> list[Named]:
    """Return the images *archive* holds. Raises: ValueError when it is no OCI archive or an image has no name."""
    try:
        with tarfile.open(archive) as tar:
            file = tar.extractfile("index.json")
            assert file is not None
            index = json.load(file)
    except (tarfile.TarError, KeyError, ValueError) as error:
        raise ValueError(f"{archive} is no OCI archive: {error}") from error
    found = []
    for manifest in index["manifests"]:
        names = [manifest.get("annotations", {}).get(key) for key in NAME_ANNOTATIONS]
        name = next((name for name in names if name), None)
        if name is None:
            raise ValueError(f"{archive}: image {manifest['digest']} has none of the annotations {NAME_ANNOTATIONS}")
        found.append(Named(name, manifest["digest"]))
    return found


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
    """Forget whose a file is and how old, so that equal files make an equal image."""
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ""
    entry.mode = 0o755
    return entry


def _blob(tar: tarfile.TarFile, media_type: str, content: object) -> dict[str, Any]:
    """Add *content* as JSON and return its descriptor."""
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
