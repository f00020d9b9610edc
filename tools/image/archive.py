"""
Read what an OCI archive holds: its digest, its configuration and the sizes of its layers.

Source: https://github.com/opencontainers/image-spec/blob/v1.1.0/image-layout.md
"""

import gzip
import json
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any


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

        def blob(digest: str) -> bytes:
            member = archive.extractfile(f"blobs/{digest.replace(':', '/')}")
            assert member is not None, f"{path}: blob {digest} is not a file"
            return member.read()

        index = archive.extractfile("index.json")
        assert index is not None, f"{path}: index.json is not a file"
        (entry,) = json.load(index)["manifests"]
        manifest = json.loads(blob(entry["digest"]))
        config = json.loads(blob(manifest["config"]["digest"]))
        sizes = [_unpacked_bytes(archive, layer) for layer in manifest["layers"]]
    layers = tuple(Layer(*pair) for pair in zip(config["rootfs"]["diff_ids"], sizes, strict=True))
    reference = entry["annotations"]["org.opencontainers.image.ref.name"]
    return Archive(reference, entry["digest"], config, layers, path.stat().st_size)


def _unpacked_bytes(archive: tarfile.TarFile, layer: dict[str, Any]) -> int:
    stream = archive.extractfile(f"blobs/{layer['digest'].replace(':', '/')}")
    assert stream is not None, f"layer {layer['digest']} is not a file"
    with tarfile.open(fileobj=gzip.open(stream) if layer["mediaType"].endswith("gzip") else stream) as files:
        return sum(member.size for member in files)
