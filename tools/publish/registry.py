"""
Put images into a registry with Debian's skopeo.

Owns the rule that a tag never gets another content: an image is its configuration, which names its layers. Must never
build. Neighbours: `archive` reads what is pushed, `tools/images.py` is the command.
"""

import hashlib
import ipaddress
import json
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from image.archive import config_digest, write_layout

_UNKNOWN = ("manifest unknown", "name unknown", "not found")
"""What registries say of a tag that they do not have. Source: OCI distribution specification, error codes."""


class RegistryError(Exception):
    """The registry refused, or has other content under the tag. The message names the image."""


@dataclass(frozen=True)
class Pushed:
    """An image in the registry."""

    reference: str
    digest: str
    """The digest by which Nodes may pull it: of the manifest, or of the index of several architectures."""
    is_new: bool


class Registry:
    """One registry, by its name in image references: `registry.example.com`, `127.0.0.1:5000`."""

    def __init__(self, name: str) -> None:
        self.name = name.rstrip("/")
        verify = "false" if _is_loopback(self.name) else "true"
        self._source = [f"--src-tls-verify={verify}"]
        self._target = [f"--dest-tls-verify={verify}", "--retry-times=3"]
        self._inspect = [f"--tls-verify={verify}"]

    def push(self, repository: str, tag: str, archives: Mapping[str, Path], *, replaces: bool = False) -> Pushed:
        """
        Push the image of *archives*, one for each architecture, and return it. What is there already is left.

        replaces    let the tag change its content

        Raises:
            RegistryError: the tag has another content, or the registry refused.
        """
        reference = f"{self.name}/{repository}:{tag}"
        present = self._contents(reference)
        wanted = sorted(config_digest(path) for path in archives.values())
        if present == wanted:
            return Pushed(reference, self._digest(reference), is_new=False)
        if present and not replaces:
            raise RegistryError(
                f"{reference} has another content: release a new version, choose another --tag, or overwrite it "
                "with --replace"
            )
        with tempfile.TemporaryDirectory(prefix="hami-push-") as scratch:
            layout, digest = Path(scratch, "layout"), Path(scratch, "digest")
            source = write_layout(archives, layout)
            self._skopeo("copy", "--all", f"--digestfile={digest}", *self._target, source, f"docker://{reference}")
            return Pushed(reference, digest.read_text().strip(), is_new=True)

    def copy(self, source: str, repository: str, tag: str) -> Pushed:
        """Copy the image *source* of another registry, with all its architectures. Raises: RegistryError."""
        reference = f"{self.name}/{repository}:{tag}"
        self._skopeo(
            "copy", "--all", *self._target, *Registry(source)._source, f"docker://{source}", f"docker://{reference}"
        )
        return Pushed(reference, self._digest(reference), is_new=True)

    def _contents(self, reference: str) -> list[str]:
        """Return the configuration of each architecture of *reference*, sorted; nothing if the registry lacks it."""
        raw = self._raw(reference)
        if raw is None:
            return []
        manifest: dict[str, Any] = json.loads(raw)
        if "manifests" not in manifest:
            return [manifest["config"]["digest"]]
        repository = reference.rpartition(":")[0]
        children = [self._raw(f"{repository}@{entry['digest']}") for entry in manifest["manifests"]]
        return sorted(json.loads(child)["config"]["digest"] for child in children if child is not None)

    def _digest(self, reference: str) -> str:
        raw = self._raw(reference)
        if raw is None:
            raise RegistryError(f"{reference} is not in the registry")
        return f"sha256:{hashlib.sha256(raw).hexdigest()}"

    def _raw(self, reference: str) -> bytes | None:
        """Return the manifest or index, as it is, or None if the registry lacks it. Raises: RegistryError."""
        done = _run(["inspect", "--raw", *self._inspect, f"docker://{reference}"])
        if done.returncode == 0:
            return done.stdout
        said = done.stderr.decode(errors="replace").strip()
        if any(words in said.lower() for words in _UNKNOWN):
            return None
        raise RegistryError(f"{reference}: {_last(said)}")

    def _skopeo(self, *arguments: str) -> None:
        done = _run(arguments)
        if done.returncode != 0:
            raise RegistryError(f"{arguments[-1]}: {_last(done.stderr.decode(errors='replace'))}")


def _run(arguments: Sequence[str]) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["skopeo", *arguments], capture_output=True, check=False)


def _last(said: str) -> str:
    """Return the message of skopeo's last log line, with what to do if the registry wants to know who asks."""
    line = said.strip().splitlines()[-1] if said.strip() else "skopeo failed without a word"
    if "unauthorized" in line or "authentication required" in line or "denied" in line:
        return f"{line}\nlog in first: skopeo login REGISTRY"
    return line


def _is_loopback(name: str) -> bool:
    """Return whether the registry is on this machine, where plain HTTP is usual, as for Docker."""
    host = name.partition("/")[0].partition(":")[0]
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
