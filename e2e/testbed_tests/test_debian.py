"""
Missing packages are installed: by the real apt-get, in folders of the test.

The archive is a folder with one package, and `dpkg` is a script that makes the command of the package.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from testbed import debian

CONTROL = """\
Package: example
Version: 1
Architecture: all
Maintainer: nobody
Description: an example
"""
APT_CONFIG = """\
Dir "{root}";
Dir::State::status "{root}/status";
Dir::Bin::dpkg "{root}/dpkg";
Dir::Bin::methods "/usr/lib/apt/methods";
APT::Sandbox::User "root";
DPkg::Pre-Install-Pkgs {{}};
"""
DPKG = """\
#!/bin/sh
case "$*" in
*--unpack*) sleep 0.3; printf '#!/bin/sh\\n' > {root}/bin/example; chmod +x {root}/bin/example;;
*--configure*) printf 'Status: install ok installed\\n' | cat {root}/control - > {root}/status;;
esac
"""
APT_GET = """\
#!/bin/sh
mkdir {root}/alone || touch {root}/together
{apt_get} "$@"
result=$?
rmdir {root}/alone
exit $result
"""
INSTALL = 'from testbed import debian; debian.ensure({"example": "example"}, print)'


@dataclass(frozen=True)
class Debian:
    """A Debian system below a folder, with nothing installed."""

    root: Path

    @property
    def environment(self) -> Mapping[str, str]:
        """Return the environment of a process that installs packages here."""
        path = f"{self.root / 'bin'}:{os.environ['PATH']}"
        return {**os.environ, "APT_CONFIG": str(self.root / "apt.conf"), "PATH": path}

    def install(self) -> subprocess.Popen[str]:
        """Start a process that installs the package."""
        return subprocess.Popen(
            [sys.executable, "-u", "-c", INSTALL],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )


@pytest.fixture
def machine(tmp_path: Path) -> Debian:
    """A system without package lists."""
    if os.geteuid() != 0:
        pytest.skip("packages are installed by root")
    for name in (
        "bin",
        "archive",
        "etc/apt",
        "var/lib/apt/lists/partial",
        "var/cache/apt/archives/partial",
        "var/log/apt",
    ):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "status").touch()
    (tmp_path / "control").write_text(CONTROL)
    (tmp_path / "apt.conf").write_text(APT_CONFIG.format(root=tmp_path))
    (tmp_path / "dpkg").write_text(DPKG.format(root=tmp_path))
    (tmp_path / "dpkg").chmod(0o755)
    (tmp_path / "etc/apt/sources.list").write_text(f"deb [trusted=yes] file:{tmp_path}/archive ./\n")
    package = tmp_path / "archive/example.deb"
    package.write_bytes(b"as much as the script that plays dpkg reads")
    digest = hashlib.sha256(package.read_bytes()).hexdigest()
    size = package.stat().st_size
    (tmp_path / "archive/Packages").write_text(f"{CONTROL}Filename: ./example.deb\nSize: {size}\nSHA256: {digest}\n")
    return Debian(tmp_path)


def test_installed_packages_are_not_installed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """No program is started."""
    monkeypatch.setattr("subprocess.Popen", pytest.fail)

    debian.ensure({"coreutils": "ls", "bash": "/bin/bash", "base-passwd": "/etc/passwd"}, pytest.fail)


def test_missing_package_that_cannot_be_installed_is_an_error_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """The user is not root."""
    monkeypatch.setattr("os.geteuid", lambda: 1000)

    with pytest.raises(debian.PackageError, match=r"missing: absent; .*apt-get install --yes .*absent"):
        debian.ensure({"absent": "/nonexistent/program", "coreutils": "ls"}, pytest.fail)


def test_missing_lists_are_read_and_the_package_is_installed(machine: Debian) -> None:
    """The output of apt-get is shown."""
    said, _ = (installing := machine.install()).communicate(timeout=60)

    assert 0 == installing.returncode, said
    assert "apt-get installs example" in said
    assert "apt-get: 0 upgraded, 1 newly installed" in said
    assert "Unable to locate" not in said


def test_processes_install_one_after_another(machine: Debian) -> None:
    """While one reads the package lists anew, another would not find its package in them."""
    apt_get = machine.root / "bin/apt-get"
    apt_get.write_text(APT_GET.format(root=machine.root, apt_get=shutil.which("apt-get")))
    apt_get.chmod(0o755)
    together = [machine.install() for _ in range(4)]

    said = [installing.communicate(timeout=60)[0] for installing in together]

    assert [0] * 4 == [installing.returncode for installing in together], said
    assert not (machine.root / "together").exists(), said
    assert 1 == sum("apt-get installs example" in one for one in said), said


@pytest.mark.parametrize(
    "lock",
    ["lock-frontend", "var/lib/apt/lists/lock", "var/cache/apt/archives/lock"],
    ids=["dpkg", "lists", "archives"],
)
def test_lock_of_another_program_is_waited_for(machine: Debian, lock: str) -> None:
    """Unattended upgrades hold it, for example. The output names the process that holds it."""
    with (machine.root / lock).open("w") as held:
        fcntl.lockf(held, fcntl.LOCK_EX)
        installing = machine.install()
        assert installing.stdout is not None
        said = []
        for line in installing.stdout:
            said.append(line)
            if debian.LOCKED in line:
                break
    rest, _ = installing.communicate(timeout=60)

    assert 0 == installing.returncode, (said, rest)
    assert f"It is held by process {os.getpid()}" in said[-1]


def test_unknown_package_is_an_error_with_the_message_of_apt_get(machine: Debian) -> None:
    """The error has the package, the command and the reason."""
    (machine.root / "archive/Packages").unlink()

    said, _ = (installing := machine.install()).communicate(timeout=60)

    assert 0 != installing.returncode
    assert "could not install example: apt-get install --yes --no-install-recommends example" in said
    assert "\nE: Unable to locate package example" in said
