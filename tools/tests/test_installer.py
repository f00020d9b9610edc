"""
pip installs uv, uv installs the rest from where pip would, and a person sees how far they are.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from bootstrap import VENV
from installer import Installer, InstallError, parsed, uv_environment

PYTHON = """\
#!/bin/sh
echo Collecting uv
echo '  Downloading uv-0.1-py3-none-manylinux.whl (20 MB)'
echo Installing collected packages
exit {status}
"""


@pytest.fixture
def installer(tmp_path: Path) -> Iterator[Installer]:
    """Installs into a checkout that has folders only."""
    for folder in ("build", "requirements"):
        (tmp_path / folder).mkdir()
    lock = os.open(tmp_path, os.O_RDONLY)
    yield Installer(tmp_path, lock)
    os.close(lock)


def _python_ends_with(status: int, checkout: Path) -> None:
    """Put a program in the place of Python that writes what pip does."""
    (checkout / ".venv/bin").mkdir(parents=True)
    (checkout / ".venv/bin/python").write_text(PYTHON.format(status=status))
    (checkout / ".venv/bin/python").chmod(0o755)


def test_progress_is_shown_and_the_rest_is_in_the_log(
    installer: Installer, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The steps, and what is downloaded with its size."""
    _python_ends_with(0, tmp_path)

    installer.install_uv()

    shown = "bootstrap: installing uv\n    Downloading uv-0.1-py3-none-manylinux.whl (20 MB)\n"
    assert (shown, "") == capfd.readouterr()
    assert "Collecting uv\n" in (tmp_path / "build/bootstrap.log").read_text()


def test_step_that_fails_shows_everything(
    installer: Installer, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The reason may be in any line."""
    _python_ends_with(1, tmp_path)

    with pytest.raises(InstallError, match="installing uv failed; the reason is above"):
        installer.install_uv()

    assert "Collecting uv\n" in capfd.readouterr().err


def test_index_that_does_not_answer_uv_is_named(
    installer: Installer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the words of the real uv."""
    (tmp_path / ".venv").symlink_to(VENV)
    (tmp_path / "requirements/absent.lock").write_text(f"absent-package==1 --hash=sha256:{'0' * 64}\n")
    for variable in ("UV_FIND_LINKS", "PIP_FIND_LINKS"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")

    with pytest.raises(InstallError, match=r"absent\.lock failed: the package index does not answer"):
        installer.install_locked(["absent"])


def test_uv_finds_packages_where_pip_does(tmp_path: Path) -> None:
    """Settings in files and in the environment; the latter win, and folders that do not exist are left out."""
    config = "\n".join(
        [
            f":env:.find-links='/does/not/exist {tmp_path} https://wheels.example/'",
            ":env:.index-url='https://me:secret@mirror.example/simple'",
            "global.index-url='https://other.example/simple'",
            "global.extra-index-url='https://a.example/simple https://b.example/simple'",
            "global.cert='/etc/ssl/own.pem'",
            "install.no-index='true'",
            "freeze.user='true'",
        ]
    )

    assert {
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "UV_FIND_LINKS": f"{tmp_path},https://wheels.example/",
        "UV_DEFAULT_INDEX": "https://me:secret@mirror.example/simple",
        "UV_INDEX": "https://a.example/simple https://b.example/simple",
        "SSL_CERT_FILE": "/etc/ssl/own.pem",
        "UV_NO_INDEX": "true",
        "HOME": "/root",
    } == uv_environment(parsed(config), {"HOME": "/root"})


def test_variables_of_uv_that_are_set_stay() -> None:
    """A person who sets them knows why."""
    environment = uv_environment({"index-url": "https://pip.example/"}, {"UV_DEFAULT_INDEX": "https://uv.example/"})

    assert "https://uv.example/" == environment["UV_DEFAULT_INDEX"]
