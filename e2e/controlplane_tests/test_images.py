"""
Packed images are complete, equal for equal files, and identified by name and digest.
"""

import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from controlplane.images import oci


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """Return a file to pack."""
    path = tmp_path / "program"
    path.write_bytes(b"\x7fELF and more")
    return path


def _packed(archive: Path, program: Path) -> Path:
    return oci.packed(archive, "localhost/a:1", {"/usr/local/bin/a": program}, ["/usr/local/bin/a"])


def _blob(archive: Path, descriptor: dict[str, Any]) -> bytes:
    with tarfile.open(archive) as tar:
        file = tar.extractfile("blobs/" + descriptor["digest"].replace(":", "/"))
        assert file is not None
        return file.read()


def test_every_descriptor_matches_its_content(tmp_path: Path, program: Path) -> None:
    """Digest and size are right from the index to the layer, and so is the layer's digest in the configuration."""
    archive = _packed(tmp_path / "a.tar", program)
    with tarfile.open(archive) as tar:
        index_file = tar.extractfile("index.json")
        assert index_file is not None
        described = json.load(index_file)["manifests"][0]
    manifest = json.loads(_blob(archive, described))
    layer = manifest["layers"][0]

    for descriptor in (described, manifest["config"], layer):
        content = _blob(archive, descriptor)
        assert (descriptor["size"], descriptor["digest"]) == (
            len(content),
            "sha256:" + hashlib.sha256(content).hexdigest(),
        )
    config = json.loads(_blob(archive, manifest["config"]))
    assert [layer["digest"]] == config["rootfs"]["diff_ids"]
    assert ["/usr/local/bin/a"] == config["config"]["Entrypoint"]


def test_files_are_executable_for_every_user(tmp_path: Path, program: Path) -> None:
    """Folders come before their files."""
    archive = _packed(tmp_path / "a.tar", program)
    with tarfile.open(archive) as tar:
        index_file = tar.extractfile("index.json")
        assert index_file is not None
        manifest = json.loads(_blob(archive, json.load(index_file)["manifests"][0]))

    with tarfile.open(fileobj=io.BytesIO(_blob(archive, manifest["layers"][0]))) as layer:
        entries = [(entry.name, entry.mode, entry.uid, entry.mtime) for entry in layer]
    names = ["usr", "usr/local", "usr/local/bin", "usr/local/bin/a"]
    assert [(name, 0o755, 0, 0) for name in names] == entries


def test_equal_files_make_an_equal_image(tmp_path: Path, program: Path) -> None:
    """So a node with the image does not get it again."""
    first = _packed(tmp_path / "a.tar", program)
    program.touch()
    second = _packed(tmp_path / "b.tar", program)

    assert oci.images(first) == oci.images(second)
    program.write_bytes(b"other")
    assert oci.images(first) != oci.images(_packed(tmp_path / "c.tar", program))


def test_existing_archive_is_kept(tmp_path: Path, program: Path) -> None:
    """It is packed once."""
    archive = _packed(tmp_path / "a.tar", program)
    before = archive.stat().st_mtime_ns

    assert before == _packed(archive, program).stat().st_mtime_ns


def test_failure_leaves_nothing_behind(tmp_path: Path) -> None:
    """There is no archive, and no draft."""
    with pytest.raises(FileNotFoundError):
        _packed(tmp_path / "a.tar", tmp_path / "missing")

    assert [] == list(tmp_path.iterdir())


def test_name_without_the_containerd_annotation_is_the_reference(tmp_path: Path) -> None:
    """Other builders write only that annotation."""
    archive = tmp_path / "a.tar"
    manifest = {"digest": "sha256:0", "annotations": {"org.opencontainers.image.ref.name": "localhost/a:1"}}
    _write(archive, {"manifests": [manifest]})

    assert [oci.Named("localhost/a:1", "sha256:0")] == oci.images(archive)


@pytest.mark.parametrize("index", [None, {"manifests": [{"digest": "sha256:0"}]}], ids=["no index", "no name"])
def test_archive_without_a_named_image_is_rejected(tmp_path: Path, index: dict[str, Any] | None) -> None:
    """The error names the file."""
    archive = tmp_path / "a.tar"
    _write(archive, index)

    with pytest.raises(ValueError, match=r"a\.tar"):
        oci.images(archive)


def _write(archive: Path, index: dict[str, Any] | None) -> None:
    with tarfile.open(archive, "w") as tar:
        if index is not None:
            content = json.dumps(index).encode()
            entry = tarfile.TarInfo("index.json")
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
