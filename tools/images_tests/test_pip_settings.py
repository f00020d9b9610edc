"""
A build stage finds packages where this machine's pip does, and an image keeps nothing of it.
"""

import configparser
import os
from pathlib import Path

import pytest

from image.pip_settings import pip_options


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, on a machine without settings of pip's."""
    for name in [name for name in os.environ if name.startswith("PIP_") or name == "SSL_CERT_FILE"]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    (tmp_path / "scratch").mkdir()
    return tmp_path / "scratch"


def settings_in(scratch: Path) -> dict[str, str]:
    """Return what pip is told in a build stage."""
    config = configparser.RawConfigParser()
    config.read(scratch / "pip.conf")
    return dict(config["global"])


def test_index_is_passed_on_as_a_secret(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An index may be named with a password, which has no place in a build's arguments."""
    monkeypatch.setenv("PIP_INDEX_URL", "https://me:secret@mirror.example/simple")

    options = pip_options(scratch)

    assert f"--secret=id=pip.conf,src={scratch}/pip.conf" in options
    assert "secret@" not in " ".join(options)
    assert "https://me:secret@mirror.example/simple" == settings_in(scratch)["index-url"]


def test_certificates_are_named_as_the_stage_sees_them(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file of this machine is mounted, so its path here would be wrong there."""
    authorities = scratch.parent / "authorities.pem"
    authorities.write_text("")
    monkeypatch.setenv("PIP_CERT", str(authorities))

    options = pip_options(scratch)

    assert f"--secret=id=ca-certificates.crt,src={authorities}" in options
    assert "/run/secrets/ca-certificates.crt" == settings_in(scratch)["cert"]


def test_folders_of_wheels_are_mounted_as_one(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders that do not exist are passed over, as pip does."""
    for name in ("first", "second"):
        (scratch.parent / name).mkdir()
        (scratch.parent / name / f"{name}.whl").write_text("")
    monkeypatch.setenv(
        "PIP_FIND_LINKS", f"{scratch.parent}/first {scratch.parent}/second /does/not/exist https://wheels.example/"
    )

    options = pip_options(scratch)

    assert f"--volume={scratch}/wheels:/srv:ro" in options
    assert {"first.whl", "second.whl"} == {path.name for path in (scratch / "wheels").iterdir()}
    assert ["https://wheels.example/", "/srv"] == settings_in(scratch)["find-links"].split()


def test_machine_without_settings_passes_on_none(scratch: Path) -> None:
    """pip's own defaults hold in the stage as they do here."""
    pip_options(scratch)

    assert {} == settings_in(scratch)
