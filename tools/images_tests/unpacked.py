"""
An unpacked image, and commands in it.
"""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from image.archive import Archive
from image.buildah import Buildah

READ_ONLY_CHROOT = """
root=$1 user=$2; shift 2
mount --bind "$root" "$root" && mount -o remount,bind,ro "$root" && exec chroot --userspec="$user" "$root" "$@"
"""


@dataclass(frozen=True)
class Image:
    """An unpacked image."""

    name: str
    root: Path
    archive: Archive
    bill: dict[str, Any]

    @property
    def config(self) -> dict[str, Any]:
        """The configuration for a runtime."""
        config: dict[str, Any] = self.archive.config["config"]
        return config

    @property
    def user(self) -> str:
        """The user, `uid:gid`."""
        return self.config.get("User") or "0:0"

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run *command* in its files, read-only, with its user and environment."""
        isolated = ["unshare", "--mount", "sh", "-c", READ_ONLY_CHROOT, "sh", str(self.root), self.user, *command]
        environment = dict(line.split("=", 1) for line in self.config["Env"])
        return subprocess.run(isolated, env=environment, capture_output=True, text=True, timeout=60, check=False)


@contextmanager
def root_of(buildah: Buildah, archive: Path) -> Iterator[Path]:
    """Yield a temporary copy of the files of an image."""
    container = buildah.run("from", "--pull-never", f"oci-archive:{archive}").strip()
    try:
        yield Path(buildah.run("mount", container).strip())
    finally:
        buildah.run("rm", container)
