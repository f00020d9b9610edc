"""
What Krew downloads is what the manifest says, and an unsuitable Python is named.
"""

import hashlib
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from client_file import VERSION_CHECK
from publish.krew import manifest, write_archive


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """Return an archive of a small program."""
    (tmp_path / "program").write_text("#!/bin/sh\n")
    (tmp_path / "licence").write_text("free")
    path = tmp_path / "kubectl-hami-0.2.0-linux-arm64.tar.gz"
    write_archive(tmp_path / "program", tmp_path / "licence", path)
    return path


def test_archive_has_the_program_and_its_licence(archive: Path, tmp_path: Path) -> None:
    """An equal program makes an equal archive on every machine and at every time."""
    with tarfile.open(archive) as tar:
        found = {entry.name: (entry.mode, entry.mtime, entry.uid) for entry in tar}

    assert {"kubectl-hami": (0o755, 0, 0), "LICENSE": (0o644, 0, 0)} == found
    write_archive(tmp_path / "program", tmp_path / "licence", tmp_path / "second")
    assert archive.read_bytes() == (tmp_path / "second").read_bytes()


def test_manifest_names_the_archive_of_each_platform(archive: Path) -> None:
    """By its digest, at the caller's address."""
    made = manifest("0.2.0", "https://downloads.example.com/hami/", {"linux-arm64": archive}, "3.11 to 3.14")

    assert ("v0.2.0", "hami") == (made["spec"]["version"], made["metadata"]["name"])
    assert [
        {
            "selector": {"matchLabels": {"os": "linux", "arch": "arm64"}},
            "uri": "https://downloads.example.com/hami/kubectl-hami-0.2.0-linux-arm64.tar.gz",
            "sha256": hashlib.sha256(archive.read_bytes()).hexdigest(),
            "bin": "kubectl-hami",
        }
    ] == made["spec"]["platforms"]


@pytest.mark.parametrize(("version", "code"), [((3, 10, 9), 2), ((3, 11, 0), 0), ((3, 14, 1), 0), ((3, 15, 0), 2)])
def test_python_without_compiled_parts_is_named(version: tuple[int, ...], code: int) -> None:
    """The client would fail at its first import, without a hint."""
    program = f"import sys\nsys.version_info = {version}\n{VERSION_CHECK}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    said = f"kubectl-hami needs Python 3.11 to 3.14, and python3 on the PATH is 3.{version[1]}\n" if code else ""
    assert (code, said) == (done.returncode, done.stderr)
