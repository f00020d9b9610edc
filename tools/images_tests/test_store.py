"""
Built images are kept, and delivered with any name. Needs no root, and builds nothing.
"""

import json
import os
import time
from dataclasses import asdict
from pathlib import Path

import pytest

import images
from bootstrap import ROOT
from controlplane.images.oci import packed
from image.archive import read_archive
from image.catalogue import wanted
from image.store import KEPT_DAYS, Built, Store

BUILT = Built(digest="sha256:1", unpacked_bytes=1, above_base_bytes=1, archive_bytes=1, seconds=1.0)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """An empty store."""
    return Store(tmp_path / "archives")


def keep(store: Store, name: str, key: str) -> None:
    """Let *store* keep a small image."""
    with store.adding(name, key) as archive:
        packed(archive, f"localhost/hami/{name}", {"/bin/it": Path(__file__)}, ["/bin/it"])
        archive.with_suffix(".json").write_text(json.dumps(asdict(BUILT)))
        for suffix in (".cdx.json", ".log"):
            archive.with_suffix(suffix).write_text(name)


def keep_half(archive: Path) -> None:
    """Write an archive, and fail at the files beside it."""
    archive.write_text("half")
    (archive / "beside").write_text("")


def test_image_is_delivered_with_any_name(store: Store, tmp_path: Path) -> None:
    """Digest, configuration and layers do not depend on the name."""
    keep(store, "it", "key")

    for tag in ("one", "other"):
        (tmp_path / tag).mkdir()
        store.deliver("key", f"localhost/hami/it:{tag}", tmp_path / tag / "it.tar")
    one, other = (read_archive(tmp_path / tag / "it.tar") for tag in ("one", "other"))

    assert ("localhost/hami/it:one", "localhost/hami/it:other") == (one.reference, other.reference)
    assert (one.digest, one.config, one.layers) == (other.digest, other.config, other.layers)


def test_second_delivery_writes_nothing(store: Store, tmp_path: Path) -> None:
    """A run without changes costs nothing."""
    keep(store, "it", "key")
    archive = tmp_path / "it.tar"
    store.deliver("key", "localhost/hami/it:1", archive)
    before = archive.stat().st_ino

    store.deliver("key", "localhost/hami/it:1", archive)

    assert before == archive.stat().st_ino


def test_image_with_another_tag_replaces_the_delivered_one(store: Store, tmp_path: Path) -> None:
    """The last request wins."""
    keep(store, "it", "key")

    for tag in ("1", "2"):
        store.deliver("key", f"localhost/hami/it:{tag}", tmp_path / "it.tar")

    assert "localhost/hami/it:2" == read_archive(tmp_path / "it.tar").reference
    assert "localhost/hami/it:2" == json.loads((tmp_path / "it.json").read_text())["reference"]


def test_failed_build_leaves_nothing(store: Store, tmp_path: Path) -> None:
    """An entry is complete or missing."""
    with pytest.raises(NotADirectoryError), store.adding("it", "key") as archive:
        keep_half(archive)

    assert not store.has("it", "key")
    assert [] == list((tmp_path / "archives").iterdir())


def test_unused_image_is_removed(store: Store, tmp_path: Path) -> None:
    """A request for an image keeps it."""
    for key in ("asked-for", "forgotten"):
        keep(store, "it", key)
        long_ago = time.time() - (KEPT_DAYS + 1) * 24 * 3600
        os.utime(tmp_path / f"archives/it-{key}", (long_ago, long_ago))

    assert store.has("it", "asked-for")
    store.prune()

    assert ["it-asked-for"] == [path.name for path in (tmp_path / "archives").iterdir()]


def test_image_that_is_kept_is_not_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second checkout or tag only costs a copy."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(images, "Buildah", lambda _: pytest.fail("an image is built"))
    monkeypatch.setattr("sys.argv", ["images.py", "--output", str(tmp_path), "--tag", "mine", "webhook"])
    keep(Store(images.cache_folder() / "archives"), "webhook", wanted("webhook", ROOT, None).key)

    images.main()

    assert "localhost/hami/webhook:mine" == read_archive(tmp_path / "webhook.tar").reference
