"""
The inputs of an image: its Dockerfile, the files that it copies, and its build arguments.

Owns finding the copied files in a Dockerfile, the digest of all inputs, and the values of labels. Must never build.
"""

import fnmatch
import hashlib
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from image.buildah import EPOCH

_COPY = re.compile(r"^COPY\s+(?!--from)(.+)$", re.MULTILINE)
_BIND = re.compile(r"--mount=type=bind,source=([^,\s]+)")
_BUILDER = Path(__file__).parent
"""The build tools, which are an input, too."""


@dataclass(frozen=True)
class Recipe:
    """The inputs of one image."""

    name: str
    """The name of its archive, e.g. `webhook`."""
    version: str
    """The version in a label. It does not depend on the tag."""
    source: Path
    """The checkout, which is the context of the build."""
    dockerfile: str
    """Relative to *source*."""
    bases: tuple[tuple[str, str], ...]
    """The build arguments for base images, and their values."""
    arch: str
    """The architecture, by its name in OCI and Debian: `amd64`."""

    @property
    def repository(self) -> str:
        """Return the image's name without a tag."""
        return f"localhost/hami/{self.name}"

    def inputs(self) -> list[str]:
        """Return the input files and folders, relative to the checkout."""
        text = (self.source / self.dockerfile).read_text()
        copied = [path for line in _COPY.findall(text) for path in line.split()[:-1]]
        return sorted({self.dockerfile, ".dockerignore", *copied, *_BIND.findall(text)})

    def arguments(self) -> dict[str, str]:
        """Return the build arguments: the bases and the values of labels."""
        revision, created = self._last_change()
        return {**dict(self.bases), "VERSION": self.version, "REVISION": revision, "CREATED": created}

    def key(self) -> str:
        """Return a digest of all inputs. With the same key, the image need not be built again."""
        digest = hashlib.sha256(repr((self.name, self.arch, sorted(self.arguments().items()))).encode())
        for folder, paths in ((_BUILDER, sorted(_BUILDER.glob("*.py"))), (self.source, self._files())):
            for path in paths:
                content = path.read_bytes()
                executable = bool(path.stat().st_mode & 0o100)
                digest.update(f"{path.relative_to(folder)} {len(content)} {executable} ".encode() + content)
        return digest.hexdigest()

    def _files(self) -> Iterator[Path]:
        patterns = self._ignored()
        for name in self.inputs():
            top = self.source / name
            for path in sorted(top.rglob("*")) if top.is_dir() else [top]:
                if path.is_file() and not _is_ignored(path.relative_to(self.source), patterns):
                    yield path

    def _ignored(self) -> list[str]:
        """Return the patterns of files that builds do not see."""
        return [line for line in (self.source / ".dockerignore").read_text().splitlines() if line]

    def _last_change(self) -> tuple[str, str]:
        """
        Return the last commit that changed the inputs, with `-dirty` if they have uncommitted changes, and its time.

        Without a history the commit is `unknown`, and the time that of all files.
        """
        commit = self._git("log", "-1", "--format=%H %cI")
        if not commit:
            return "unknown", datetime.fromtimestamp(EPOCH, UTC).isoformat()
        revision, created = commit.split()
        return revision + ("-dirty" if self._git("status", "--porcelain") else ""), created

    def _git(self, *command: str) -> str:
        if not (self.source / ".git").exists():
            return ""
        ignored = [f":(exclude,glob){pattern}{below}" for pattern in self._ignored() for below in ("", "/**")]
        arguments = ["git", "-C", str(self.source), *command, "--", *self.inputs(), *ignored]
        return subprocess.run(arguments, capture_output=True, text=True, check=True).stdout.strip()


def _is_ignored(path: Path, patterns: list[str]) -> bool:
    """Return whether *path* or a parent folder matches one of the *patterns* of .dockerignore."""
    for candidate in [path, *path.parents]:
        for pattern in patterns:
            if pattern.startswith("**/") and fnmatch.fnmatch(candidate.name, pattern[3:]):
                return True
            if fnmatch.fnmatch(str(candidate), pattern):
                return True
    return False
