"""
The files of `kubectl hami` for Krew: an archive for each platform, and the manifest that names them.

Owns their form. Must never build the client or upload anything.
Source: https://krew.sigs.k8s.io/docs/developer-guide/plugin-manifest/
"""

import gzip
import hashlib
import io
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

PLUGIN = "hami"
PROGRAM = "kubectl-hami"
DESCRIPTION = (
    "Answers who has which share of which device, what it uses, who waits and why, and whether every part of HAMi is "
    "as it should be. It reads with your kubeconfig and your rights, through the API server alone."
)


def write_archive(program: Path, licence: Path, archive: Path) -> None:
    """Write *archive*, a `.tar.gz` with the *program* and its *licence*. Equal files make an equal archive."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        for name, source, mode in ((PROGRAM, program, 0o755), ("LICENSE", licence, 0o644)):
            data = source.read_bytes()
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), mode
            tar.addfile(entry, io.BytesIO(data))
    archive.write_bytes(gzip.compress(content.getvalue(), mtime=0))


def manifest(version: str, base_url: str, archives: Mapping[str, Path], pythons: str) -> dict[str, Any]:
    """
    Return the manifest of the plugin.

    version     of the client, e.g. `0.2.0`
    base_url    where the archives will lie, by their names
    archives    by platform, e.g. `linux-amd64`
    pythons     the versions of Python that run it, e.g. `3.11 to 3.14`
    """
    return {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": PLUGIN},
        "spec": {
            "version": f"v{version}",
            "shortDescription": "Who has which share of which GPU, who waits and why",
            "description": DESCRIPTION,
            "caveats": f"It needs Python {pythons}, as python3 on the PATH.",
            "platforms": [_platform(name, base_url, archive) for name, archive in archives.items()],
        },
    }


def _platform(name: str, base_url: str, archive: Path) -> dict[str, Any]:
    system, arch = name.split("-")
    return {
        "selector": {"matchLabels": {"os": system, "arch": arch}},
        "uri": f"{base_url.rstrip('/')}/{archive.name}",
        "sha256": hashlib.sha256(archive.read_bytes()).hexdigest(),
        "bin": PROGRAM,
    }
