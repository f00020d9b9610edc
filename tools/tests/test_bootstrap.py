"""
What is in `.venv` is made once, added to, and made again when it changed; errors say what to do.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

import bootstrap
from bootstrap import PACKAGES, ROOT

NO_INDEX = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_RETRIES": "1", "PIP_CONFIG_FILE": os.devnull}
NOBODY = 65534
"""A user with no rights."""


class Recorder:
    """Installs nothing, and remembers what it was asked to install."""

    def __init__(self) -> None:
        self.steps: list[str] = []

    def make_venv(self) -> None:
        """Make what the next run looks for."""
        self.steps.append("venv")
        (bootstrap.VENV / "bin").mkdir(parents=True, exist_ok=True)
        (bootstrap.VENV / "bin/python").touch()

    def install_uv(self) -> None:
        """Remember it."""
        self.steps.append("uv")

    def install_locked(self, names: Sequence[str]) -> None:
        """Remember it."""
        self.steps += names

    def install_editable(self, packages: Sequence[str]) -> None:
        """Remember it."""
        self.steps += packages


Bootstrap = Callable[..., list[str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bootstrap:
    """Return a way to run bootstrap in a checkout below *tmp_path*; it returns what was installed."""
    for path in ["requirements", *PACKAGES]:
        (tmp_path / path).mkdir(parents=True)
    for lock in (ROOT / "requirements").glob("*.lock"):
        shutil.copy(lock, tmp_path / "requirements")
    for package in PACKAGES:
        (tmp_path / package / "pyproject.toml").write_text("")
    monkeypatch.setattr(bootstrap, "ROOT", tmp_path)
    monkeypatch.setattr(bootstrap, "VENV", tmp_path / ".venv")
    monkeypatch.setattr(bootstrap, "STAMP", tmp_path / ".venv/bootstrap.stamp")
    monkeypatch.setattr(bootstrap, "REQUIREMENTS", tmp_path / "requirements")
    monkeypatch.setattr(bootstrap, "BUILD", tmp_path / "build")

    def run(*arguments: str, tools: Sequence[str] = ()) -> list[str]:
        recorder = Recorder()
        monkeypatch.setattr(bootstrap, "Installer", lambda *_: recorder)
        monkeypatch.setattr(bootstrap, "missing_tools", lambda: list(tools))
        monkeypatch.setattr(sys, "argv", ["bootstrap.py", *arguments])
        bootstrap.main()
        return recorder.steps

    return run


@contextmanager
def as_ordinary_user() -> Iterator[None]:
    """Run a block without root's rights."""
    own = os.geteuid()
    if own == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(own)


def test_first_run_installs_everything_and_the_second_nothing(run: Bootstrap) -> None:
    """A native tool that the system lacks is installed with the packages."""
    assert ["venv", "uv", "dev", "cmake", *PACKAGES] == run(tools=["cmake"])
    assert [] == run(tools=["cmake"])


def test_demo_has_its_own_packages_and_the_checks_add_to_them(run: Bootstrap) -> None:
    """From one to the other nothing is made again, in either order."""
    assert ["venv", "uv", "demo", *PACKAGES] == run("demo")
    assert ["dev"] == run()
    assert [] == run("demo")


def test_tool_that_the_system_lost_is_added(run: Bootstrap) -> None:
    """As for a system whose cmake was removed."""
    run()

    assert ["cmake"] == run(tools=["cmake"])


@pytest.mark.parametrize(
    "changed", ["requirements/dev.lock", "requirements/uv.lock", "services/monitor/pyproject.toml"]
)
def test_change_makes_it_again_from_nothing(run: Bootstrap, tmp_path: Path, changed: str) -> None:
    """No package of the previous version of a file stays."""
    run()
    (tmp_path / changed).write_text("changed")

    assert ["venv", "uv", "dev", *PACKAGES] == run()


def test_demo_ignores_a_change_that_is_not_its_own(run: Bootstrap, tmp_path: Path) -> None:
    """The tools of the checks are not its concern."""
    run("demo")
    (tmp_path / "requirements/dev.lock").write_text("changed")

    assert [] == run("demo")


def test_run_that_was_interrupted_starts_from_nothing(run: Bootstrap, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stamp is gone before anything changes, so a half-made environment is never taken for a whole one."""
    run("demo")

    def interrupted(_: Recorder, __: Sequence[str]) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Recorder, "install_locked", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run()

    assert "venv" in run("demo")


def test_stamp_that_is_half_written_counts_as_none(run: Bootstrap, tmp_path: Path) -> None:
    """A machine that lost power leaves one."""
    run("demo")
    (tmp_path / ".venv/bootstrap.stamp").write_text('{"demo.lock": "')

    assert "venv" in run("demo")


def test_venv_of_another_users_python_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its link leads where this user may not look, so a change of the checkout's owner would not help."""
    with tempfile.TemporaryDirectory() as folder:  # pytest's own folders are closed to other users
        home, checkout = Path(folder, "home"), Path(folder, "checkout")
        for path in (home, checkout / ".venv/bin"):
            path.mkdir(parents=True)
        (home / "python").touch()
        (checkout / ".venv/bin/python").symlink_to(home / "python")
        home.chmod(0)
        Path(folder).chmod(0o755)
        monkeypatch.setattr(bootstrap, "VENV", checkout / ".venv")
        monkeypatch.setattr(bootstrap, "STAMP", checkout / ".venv/bootstrap.stamp")
        with as_ordinary_user():
            assert {} == bootstrap.made_state()


def test_lock_of_the_checks_has_the_packages_of_the_demo_in_the_same_versions() -> None:
    """So `make test` after `make demo` replaces nothing. The machines that a package is for may differ."""
    demo, dev = ((ROOT / f"requirements/{name}.lock").read_text().splitlines() for name in ("demo", "dev"))

    assert {line.partition(" ;")[0] for line in demo} <= {line.partition(" ;")[0] for line in dev}


def test_python_without_venv_is_told_which_package_brings_it(run: Bootstrap, monkeypatch: pytest.MonkeyPatch) -> None:
    """Debian has it apart from Python."""
    monkeypatch.setattr(bootstrap, "_is_installed", lambda _: False)

    with pytest.raises(SystemExit, match=r"cannot make virtual environments: .*apt-get install python3\.\d+-venv"):
        run()


def test_python_that_is_too_old_is_told_what_is_needed(run: Bootstrap, monkeypatch: pytest.MonkeyPatch) -> None:
    """No newer one is installed beside it."""
    monkeypatch.setattr(bootstrap, "OLDEST_PYTHON", (99, 0))
    monkeypatch.setattr(bootstrap, "NEWER_PYTHONS", ())

    with pytest.raises(SystemExit, match=r"Python 3\.\d+\.\d+ is too old, 3\.11 or newer is needed: .*apt-get install"):
        run()


def test_unknown_requirements_are_refused(run: Bootstrap) -> None:
    """The message names those there are."""
    with pytest.raises(SystemExit, match="everything is unknown; there are demo and dev"):
        run("everything")


def test_index_that_does_not_answer_is_one_sentence(tmp_path: Path) -> None:
    """It names the log and the way to use a mirror; the real programs, in a checkout of their own."""
    for path in ("tools/bootstrap.py", "tools/installer.py", *(f"{package}/pyproject.toml" for package in PACKAGES)):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, tmp_path / path)
    shutil.copytree(ROOT / "requirements", tmp_path / "requirements")
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), **NO_INDEX}

    done = subprocess.run(
        [sys.executable, tmp_path / "tools/bootstrap.py", "demo"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )

    assert 1 == done.returncode
    assert (
        "bootstrap: installing uv failed: the package index does not answer (details: build/bootstrap.log). Connect "
        "this machine, or name a mirror: PIP_INDEX_URL=https://mirror.example/simple make setup\n"
    ) == done.stderr
