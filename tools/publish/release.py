"""
Release a part: its changes, its version, a commit and a tag; then begin the next version.

Owns the order of these steps and what must hold before. Every step is in git, and nothing leaves this machine. Must
never release bytes that another release has: a version is released once. Neighbour: `parts` knows files and versions.
"""

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from publish.parts import CHART, PARTS, SERVICES, Part, read_parts, version_of, write_parts, write_version

_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)")
_CONFIGURATION = "towncrier.toml"
_TOWNCRIER = str(Path(sys.executable).with_name("towncrier"))
_UNIMPORTANT = ("pyproject.toml", "CHANGELOG.md")
"""The files of a part that its own release changes."""


class ReleaseError(Exception):
    """The part cannot be released. The message says what to do first."""


@dataclass(frozen=True)
class Release:
    """A release of a part, in the history of a checkout."""

    part: Part
    version: str
    commit: str

    @property
    def tag(self) -> str:
        """The name of its tag in git."""
        return tag_of(self.part, self.version)


def tag_of(part: Part, version: str) -> str:
    """Return the name of a release's tag: `scheduler-v0.2.0`."""
    return f"{part.name}-v{version}"


def newest(part: Part, root: Path) -> Release | None:
    """Return the newest release of *part* in the history of the checkout *root*."""
    return next(releases(part, root), None)


def releases(part: Part, root: Path) -> Iterator[Release]:
    """Yield the releases of *part* in the history of the checkout *root*, newest first, by their commits."""
    subject = f"{part.name}: Release "
    listed = git(root, "log", "--format=%H %s", f"--grep=^{re.escape(subject)}")
    for line in listed.splitlines():
        commit, _, said = line.partition(" ")
        if _VERSION.fullmatch(version := said.removeprefix(subject)):
            yield Release(part, version, commit)


def release(name: str, version: str, root: Path) -> Release:
    """
    Release the part *name* of the checkout *root* as *version*, and begin the next.

    Raises:
        ReleaseError: the name or version is wrong, or something must be done first. Nothing is changed.
    """
    part = _checked(name, version, root)
    if part.name == CHART:
        write_parts(root, _released_parts(root))
    write_version(part, root, version)
    _write_changelog(part, version, root)
    git(root, "add", "--all")
    git(root, "commit", "--quiet", f"--message={part.name}: Release {version}")
    git(root, "tag", "--annotate", f"--message={part.name} {version}", tag_of(part, version))
    made = Release(part, version, git(root, "rev-parse", "HEAD"))
    _begin_next(part, version, root)
    return made


def changed_since(made: Release, root: Path) -> list[str]:
    """Return the files of the released part that have changed since, except those that a release changes."""
    part = made.part
    own = [f":(exclude){part.folder / name}" for name in _UNIMPORTANT]
    differ = git(root, "diff", "--name-only", made.commit, "HEAD", "--", *part.inputs(root), *own)
    return differ.splitlines()


def _checked(name: str, version: str, root: Path) -> Part:
    part = PARTS.get(name)
    if part is None or not (root / part.folder).exists():
        raise ReleaseError(f"PART={name} is unknown; known are {', '.join(PARTS)}")
    if not _VERSION.fullmatch(version):
        raise ReleaseError(f"VERSION={version} is not three numbers, such as 0.2.0")
    last = newest(part, root)
    if last is not None and _numbers(version) <= _numbers(last.version):
        raise ReleaseError(f"VERSION={version} is not newer than {last.tag}, and a version is released once")
    if git(root, "tag", "--list", tag_of(part, version)):
        raise ReleaseError(f"the tag {tag_of(part, version)} exists: it names other bytes; choose a newer version")
    if git(root, "status", "--porcelain"):
        raise ReleaseError("there are changes that are not committed: commit or remove them")
    loose = [path.name for path in sorted((root / "changelog.d").glob("*.md")) if path.name != "README.md"]
    if loose:
        raise ReleaseError(
            f"changelog.d/{loose[0]} names no part: move it into one of changelog.d/{{{','.join(PARTS)}}}"
        )
    if not list((root / part.fragments).glob("*.md")):
        raise ReleaseError(f"{part.fragments} has no change, so there is nothing to release")
    return part


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def _released_parts(root: Path) -> dict[str, str]:
    """Return the version of each service for a chart's release. Raises: ReleaseError if one is not released."""
    versions = {}
    for name in SERVICES:
        made = newest(PARTS[name], root)
        changed = [] if made is None else changed_since(made, root)
        if made is None or changed:
            since = f": {changed[0]} changed after {made.tag}" if made else ""
            raise ReleaseError(f"the chart names releases, and {name} is not one{since}; release it first")
        versions[name] = made.version
    return versions


def _write_changelog(part: Part, version: str, root: Path) -> None:
    """Move the fragments of *part* into its CHANGELOG."""
    configuration = (root / _CONFIGURATION).read_text()
    configuration = configuration.replace('directory = "changelog.d"', f'directory = "{part.fragments}"')
    configuration = configuration.replace('filename = "CHANGELOG.md"', f'filename = "{part.changelog}"')
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        file.write(configuration)
        file.flush()
        said = ["--yes", f"--config={file.name}", f"--dir={root}", f"--version={version}", f"--name={part.name}"]
        done = subprocess.run([_TOWNCRIER, "build", *said], cwd=root, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ReleaseError(f"towncrier failed with {done.returncode}:\n{done.stdout}{done.stderr}")


def _begin_next(part: Part, version: str, root: Path) -> None:
    """Commit the version that is built until the next release. The chart names the services of this tree again."""
    major, minor, patch = _numbers(version)
    following = f"{major}.{minor}.{patch + 1}-dev"
    write_version(part, root, following)
    if part.name == CHART:
        write_parts(root, {name: version_of(PARTS[name], root) for name in read_parts(root)})
    git(root, "add", "--all")
    git(root, "commit", "--quiet", f"--message={part.name}: Begin {following}")


def git(root: Path, *arguments: str) -> str:
    """Return the output of `git ARGUMENTS` in the checkout *root*. Raises: ReleaseError."""
    done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ReleaseError(f"git {arguments[0]} failed with {done.returncode}: {done.stderr.strip()}")
    return done.stdout.strip()
