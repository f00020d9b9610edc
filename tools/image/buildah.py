"""
Call buildah, with a storage of its own below the user's cache folder.

Owns how buildah is called: isolation, storage, where its words go. Must never touch the system's storage of images, nor
ask a registry for what the storage lacks.
Source: https://github.com/containers/buildah/tree/v1.28.2/docs
"""

import fcntl
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

EPOCH = int(os.environ.get("SOURCE_DATE_EPOCH", "1735689600"))
"""When every file of every image was made, in seconds of Unix time, so that the same input gives the same layers."""


class BuildError(Exception):
    """A command failed; the message ends with what it said last."""


class Buildah:
    """
    A storage of images and the commands on it.

    Every process that uses the storage holds its lock, so that two builds do not disturb each other.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        """Where all of it lives; made when missing."""
        self._temporary = folder / "tmp"
        self._temporary.mkdir(parents=True, exist_ok=True)

    @contextmanager
    def alone(self, step: Callable[[str], None] = lambda sentence: None) -> Iterator[None]:
        """Let one process at a time use the storage; the others say so by *step* and wait."""
        with (self.folder / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                step("waiting for another one that uses the storage")
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def has(self, reference: str) -> bool:
        """Return whether the storage holds the image *reference*."""
        return self._process("inspect", "--type", "image", reference).returncode == 0

    def build(
        self,
        dockerfile: Path,
        context: Path,
        reference: str,
        *,
        arguments: Mapping[str, str] | None = None,
        options: Sequence[str] = (),
        log: Path | None = None,
    ) -> None:
        """
        Build *dockerfile* into the image *reference*; what buildah says goes to *log*.

        Raises:
            BuildError: a step failed.
        """
        given = [option for name, value in (arguments or {}).items() for option in ("--build-arg", f"{name}={value}")]
        fixed = ["--isolation=chroot", "--pull-never", "--format=oci", "--identity-label=false", f"--timestamp={EPOCH}"]
        self.run(
            "build", *fixed, *given, *options, "--file", str(dockerfile), "--tag", reference, str(context), log=log
        )

    def save(self, reference: str, archive: Path) -> None:
        """Write the image *reference* to *archive*, in OCI's layout, under its own name. Raises: BuildError."""
        part = archive.with_suffix(".part")
        part.unlink(missing_ok=True)
        self.run("push", "--quiet", reference, f"oci-archive:{part}:{reference}")
        part.replace(archive)

    @contextmanager
    def root_of(self, image: str) -> Iterator[Path]:
        """
        Give a throw-away copy of an image's files.

        image       a reference in the storage, or `oci-archive:` and the path of an archive
        """
        container = self.run("from", "--pull-never", image).strip()
        try:
            yield Path(self.run("mount", container).strip())
        finally:
            self.run("rm", container)

    def clean(self) -> None:
        """Remove what interrupted builds left."""
        self.run("rm", "--all")

    def remove(self, *references: str) -> None:
        """Remove images from the storage; those that are not there are left out."""
        self._process("rmi", "--force", *references)

    def run(self, *arguments: str, log: Path | None = None) -> str:
        """Return what `buildah ARGUMENTS` prints. Raises: BuildError."""
        done = self._process(*arguments)
        if log is not None:
            log.write_text(done.stdout + done.stderr)
        if done.returncode != 0:
            last = "\n".join((done.stdout + done.stderr).splitlines()[-20:])
            raise BuildError(f"buildah {arguments[0]} failed with {done.returncode}:\n{last}")
        return done.stdout

    def _process(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        storage = ["--root", str(self.folder / "storage"), "--runroot", str(self.folder / "run")]
        command = ["buildah", *storage, "--storage-driver=vfs", *arguments]
        environment = {**os.environ, "TMPDIR": str(self._temporary)}
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
