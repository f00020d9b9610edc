"""
Call buildah, with a storage of its own below the user's cache folder.

Owns how buildah is called: isolation, storage, where its words go. Must never touch the system's storage of images, nor
ask a registry for what the storage lacks.
Source: https://github.com/containers/buildah/tree/v1.28.2/docs
"""

import fcntl
import os
import shutil
import subprocess
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

EPOCH = int(os.environ.get("SOURCE_DATE_EPOCH", "1735689600"))
"""When every file of every image was made, in seconds of Unix time, so that the same input gives the same layers."""
_NAMELESS = "<none>:<none>"
_CACHE_MOUNTS = "buildah-cache"
"""Where below TMPDIR buildah keeps what build stages cache, such as pip's downloads."""


class BuildError(Exception):
    """A command failed; the message ends with what it said last."""


class Buildah:
    """
    A storage of images and the commands on it.

    Commands may run side by side. Every process of ours that uses the storage holds its lock, so that none takes
    another's builds for leftovers.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        """Where all of it lives; made when missing."""
        self.scratch = folder / "tmp"
        """Where files of a build may lie; what is forgotten there goes with the next `clean`."""
        self.scratch.mkdir(parents=True, exist_ok=True)

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

    def identity(self, reference: str) -> str:
        """
        Return what names the image *reference* in a build for any machine.

        By its name, buildah finds an image only if it is for the machines that the whole build is for: FROM knows no
        BUILDPLATFORM. Source: buildah-build(1), --platform

        Raises:
            BuildError: the storage does not hold it.
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
        Build *dockerfile* into the image *reference*; what buildah says goes to *log*.

        arch        whose machines it is for, as OCI calls them: `amd64`
        archive     where to write it, in OCI's layout; it goes to the storage if this is not given

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
        """Remove what interrupted builds left, and every image whose name is not among *kept*."""
        self.run("rm", "--all")
        listed = self.run("images", "--noheading", "--no-trunc", "--format", "{{.ID}} {{.Name}}:{{.Tag}}")
        for identity, name in map(str.split, listed.splitlines()):
            if name not in kept:
                self.run("rmi", identity if name == _NAMELESS else name)
        for path in self.scratch.iterdir():
            if path.name != _CACHE_MOUNTS:
                shutil.rmtree(path) if path.is_dir() else path.unlink()

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
        environment = {**os.environ, "TMPDIR": str(self.scratch)}
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
