"""
Run buildah, with a storage below the user's cache folder.

Owns isolation, storage and output of buildah. Must never use the system's storage of images, or pull from a registry.
Source: https://github.com/containers/buildah/tree/v1.28.2/docs
"""

import fcntl
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

EPOCH = int(os.environ.get("SOURCE_DATE_EPOCH", "1735689600"))
"""The time of every file in every image, in Unix seconds, so that the same input gives the same layers."""
_NAMELESS = "<none>:<none>"
_CACHE_MOUNTS = "buildah-cache"
"""The folder below TMPDIR with the caches of build stages, such as pip's downloads."""


class BuildError(Exception):
    """A command failed. The message has the end of its output."""


class Buildah:
    """
    A storage of images and the commands on it.

    Commands may run in parallel. A process must hold the lock of the storage, so that none removes the builds of
    another.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        """The folder of the storage, created if missing."""
        self.scratch = folder / "tmp"
        """A folder for files of a build. The next `clean` removes what is left there."""
        self.scratch.mkdir(parents=True, exist_ok=True)

    @contextmanager
    def alone(self, step: Callable[[str], None] = lambda sentence: None) -> Iterator[None]:
        """During a block, hold the lock of the storage. Other processes report to *step* and wait."""
        with (self.folder / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                step("waiting for another process that uses the storage")
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def has(self, reference: str) -> bool:
        """Return whether the storage has the image *reference*."""
        return self._process("inspect", "--type", "image", reference).returncode == 0

    def identity(self, reference: str) -> str:
        """
        Return an identifier of the image *reference* for builds of any architecture.

        buildah finds an image by its name only if it has the architecture of the build, because FROM has no
        BUILDPLATFORM. Source: buildah-build(1), --platform

        Raises:
            BuildError: the storage does not have it.
        """
        return self.run("inspect", "--type", "image", "--format", "{{.FromImageID}}", reference).strip()

    def build(
        self,
        dockerfile: Path,
        context: Path,
        reference: str,
        arch: str,
        *,
        archive: Path | None = None,
        arguments: Mapping[str, str] | None = None,
        options: Sequence[str] = (),
        log: Path | None = None,
    ) -> None:
        """
        Build *dockerfile* into the image *reference*, with buildah's output in *log*.

        arch        architecture, by its OCI name: `amd64`
        archive     path of the OCI archive to write; without it the image is kept in the storage

        Raises:
            BuildError: a step failed.
        """
        given = [option for name, value in (arguments or {}).items() for option in ("--build-arg", f"{name}={value}")]
        fixed = ["--isolation=chroot", "--pull-never", "--format=oci", "--identity-label=false"]
        fixed += [f"--platform=linux/{arch}", f"--timestamp={EPOCH}"]
        written = ["--tag", reference]
        if archive is not None:
            written = ["--tag", f"oci-archive:{archive}:{reference}", "--disable-compression=false"]
        self.run("build", *fixed, *given, *options, *written, "--file", str(dockerfile), str(context), log=log)

    def clean(self, kept: Collection[str]) -> None:
        """Remove the remains of interrupted builds, and all images except *kept*."""
        self.run("rm", "--all")
        listed = self.run("images", "--noheading", "--no-trunc", "--format", "{{.ID}} {{.Name}}:{{.Tag}}")
        for identity, name in map(str.split, listed.splitlines()):
            if name not in kept:
                self.run("rmi", identity if name == _NAMELESS else name)
        for path in self.scratch.iterdir():
            if path.name != _CACHE_MOUNTS:
                shutil.rmtree(path) if path.is_dir() else path.unlink()

    def run(self, *arguments: str, log: Path | None = None) -> str:
        """Return the output of `buildah ARGUMENTS`, which *log* gets while it runs. Raises: BuildError."""
        if log is None:
            done = self._process(*arguments)
            said, output = done.stdout + done.stderr, done.stdout
        else:
            with log.open("w") as file:
                done = self._process(*arguments, output=file)
            said = output = log.read_text()
        if done.returncode != 0:
            last = "\n".join(said.splitlines()[-20:])
            raise BuildError(f"buildah {arguments[0]} failed with {done.returncode}:\n{last}")
        return output

    def _process(self, *arguments: str, output: IO[str] | None = None) -> subprocess.CompletedProcess[str]:
        """Run buildah, and capture its output, or let *output* get all of it."""
        storage = ["--root", str(self.folder / "storage"), "--runroot", str(self.folder / "run")]
        command = ["buildah", *storage, "--storage-driver=vfs", *arguments]
        environment = {**os.environ, "TMPDIR": str(self.scratch)}
        if output is None:
            return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        return subprocess.run(command, env=environment, stdout=output, stderr=output, text=True, check=False)


def last_step(log: Path) -> str:
    """Return the last step that buildah began, by its *log*, such as `[2/3] STEP 6/8: COPY`. Empty before the first."""
    begun = re.findall(r"^(?:\[\d+/\d+\] )?STEP \d+/\d+: \w+", log.read_text() if log.exists() else "", re.MULTILINE)
    return str(begun[-1]) if begun else ""
