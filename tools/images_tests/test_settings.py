"""
A build stage has this machine's settings of pip, and an image has none of them.
"""

import configparser
import os
from pathlib import Path

import pytest

from image.settings import pip_options


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, on a machine without settings of pip."""
    for name in [name for name in os.environ if name.startswith("PIP_") or name == "SSL_CERT_FILE"]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    (tmp_path / "scratch").mkdir()
    return tmp_path / "scratch"


def settings_in(scratch: Path) -> dict[str, str]:
    """Return the settings of pip in a build stage."""
    config = configparser.RawConfigParser()
    config.read(scratch / "pip.conf")
    return dict(config["global"])


def test_index_is_a_secret(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The URL of an index may contain a password, which must not be in build arguments."""
    monkeypatch.setenv("PIP_INDEX_URL", "https://me:secret@mirror.example/simple")

    options = pip_options(scratch)

    assert f"--secret=id=pip.conf,src={scratch}/pip.conf" in options
    assert "secret@" not in " ".join(options)
    assert "https://me:secret@mirror.example/simple" == settings_in(scratch)["index-url"]


def test_certificates_have_the_path_in_the_stage(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is mounted, so its path on this machine would be wrong."""
    authorities = scratch.parent / "authorities.pem"
    authorities.write_text("")
    monkeypatch.setenv("PIP_CERT", str(authorities))

    options = pip_options(scratch)

    assert f"--secret=id=ca-certificates.crt,src={authorities}" in options
    assert "/run/secrets/ca-certificates.crt" == settings_in(scratch)["cert"]


def test_folders_of_wheels_are_mounted_as_one(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Missing folders are ignored, like in pip."""
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


def test_machine_without_settings_adds_none(scratch: Path) -> None:
    """The stage uses pip's defaults."""
    pip_options(scratch)

    assert {} == settings_in(scratch)
