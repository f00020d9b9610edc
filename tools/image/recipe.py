"""
What decides an image: its Dockerfile, the files that it copies, and the values it is given.

Owns the reading of Dockerfiles for what they copy, the digest that tells whether an image must be built again, and the
labels that say what it was built from. Must never build.
"""

import fnmatch
import hashlib
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_COPY = re.compile(r"^COPY\s+(?!--from)(.+)$", re.MULTILINE)
_BIND = re.compile(r"--mount=type=bind,source=([^,\s]+)")
_BUILDER = Path(__file__).parent
"""How images are built decides what comes out, too."""


@dataclass(frozen=True)
class Recipe:
    """An image to be."""

    name: str
    """As its archive is called, e.g. `webhook`."""
    version: str
    """What a label says; the tag, by which a Pod names the image, is no part of it."""
    source: Path
    """The checkout; the build's context."""
    dockerfile: str
    """Relative to *source*."""
    bases: tuple[tuple[str, str], ...]
    """The arguments that name base images, and their values."""
    arch: str
    """Whose machines it is for, as OCI and Debian call them: `amd64`."""

    @property
    def repository(self) -> str:
        """Return the image's name without a tag."""
        return f"localhost/hami/{self.name}"

    def inputs(self) -> list[str]:
        """Return the files and folders of the checkout that go into the image, relative to it."""
        text = (self.source / self.dockerfile).read_text()
        copied = [path for line in _COPY.findall(text) for path in line.split()[:-1]]
        return sorted({self.dockerfile, ".dockerignore", *copied, *_BIND.findall(text)})

    def arguments(self) -> dict[str, str]:
        """Return the build's arguments: the bases, and what the labels say."""
        revision, created = self._last_change()
        return {**dict(self.bases), "VERSION": self.version, "REVISION": revision, "CREATED": created}

    def key(self) -> str:
        """Return a digest of all that decides the image's bytes: with the same key there is nothing to build."""
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
        """Return the patterns of what the checkout holds and no build sees."""
        return [line for line in (self.source / ".dockerignore").read_text().splitlines() if line]

    def _last_change(self) -> tuple[str, str]:
        """
        Return the last commit that touched the inputs and its time; with changes on top it ends with `-dirty`.

        Both are empty where the checkout has no history.
        """
        commit = self._git("log", "-1", "--format=%H %cI")
        if not commit:
            return "", ""
        revision, created = commit.split()
        return revision + ("-dirty" if self._git("status", "--porcelain") else ""), created

    def _git(self, *command: str) -> str:
        if not (self.source / ".git").exists():
            return ""
        ignored = [f":(exclude,glob){pattern}{below}" for pattern in self._ignored() for below in ("", "/**")]
        arguments = ["git", "-C", str(self.source), *command, "--", *self.inputs(), *ignored]
        return subprocess.run(arguments, capture_output=True, text=True, check=True).stdout.strip()


def _is_ignored(path: Path, patterns: list[str]) -> bool:
    """Return whether *path*, or a folder it lies in, matches one of .dockerignore's *patterns*."""
    for candidate in [path, *path.parents]:
        for pattern in patterns:
            if pattern.startswith("**/") and fnmatch.fnmatch(candidate.name, pattern[3:]):
                return True
            if fnmatch.fnmatch(str(candidate), pattern):
                return True
    return False
