"""
Install locked packages into `.venv` with uv, which pip installs first.

Owns the two installers: their options, and what of their output is shown. uv finds packages where pip on this machine
does. Must never need more than the standard library.
Source: https://docs.astral.sh/uv/reference/environment/
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

PYTHON = ".venv/bin/python"
PIP_SETTING = re.compile(r"^(?:global|install|:env:)\.([\w-]+)=(.*)$")
UV_VARIABLES = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "no-index": "UV_NO_INDEX",
    "trusted-host": "UV_INSECURE_HOST",
    "cert": "SSL_CERT_FILE",
    "client-cert": "SSL_CLIENT_CERT",
    "proxy": "ALL_PROXY",
    "timeout": "UV_HTTP_TIMEOUT",
    "default-timeout": "UV_HTTP_TIMEOUT",
    "retries": "UV_HTTP_RETRIES",
}
"""By a setting of pip, the variable that tells uv the same."""

PROGRESS = re.compile(r"\s*(Downloading|Prepared|Building|Installed|Retrying|WARNING)\b")
"""How lines of pip and uv begin that tell a person how far they are."""

UNREACHABLE = re.compile(
    r"NewConnectionError|NameResolutionError|Connect\w*Timeout|ReadTimeout|ProxyError|SSLError|error sending request"
)
"""What pip and uv call the trouble when they cannot talk to the package index."""


class InstallError(Exception):
    """A step failed; the message says which, and why if that is known."""


class Installer:
    """Installs into the `.venv` of a checkout; each child inherits the descriptor *lock*, and so holds the lock too."""

    def __init__(self, checkout: Path, lock: int) -> None:
        self._checkout = checkout
        self._log = checkout / "build/bootstrap.log"
        """All that the last step wrote."""
        self._lock = lock

    def make_venv(self) -> None:
        """Make `.venv` from nothing."""
        self._run("making .venv", [sys.executable, "-m", "venv", "--clear", ".venv"], os.environ)

    def install_uv(self) -> None:
        """Install uv, the one package that pip installs."""
        options = ["--disable-pip-version-check", "--no-input", "--progress-bar=off", "--only-binary=:all:"]
        locked = ["--require-hashes", "--requirement", "requirements/uv.lock"]
        self._run("installing uv", [PYTHON, "-m", "pip", "install", *options, *locked], os.environ)

    def install_locked(self, names: Sequence[str]) -> None:
        """Install every package of the locks *names*, as `demo`; other packages stay as they are."""
        locks = [f"requirements/{name}.lock" for name in names]
        options = [argument for lock in locks for argument in ("--requirement", lock)]
        self._run_uv(f"installing the packages of {', '.join(locks)}", ["--require-hashes", *options])

    def install_editable(self, packages: Sequence[str]) -> None:
        """Install our own *packages* in place."""
        options = [argument for package in packages for argument in ("--editable", package)]
        self._run_uv("installing our own packages in place", ["--no-deps", "--no-build-isolation", *options])

    def _run_uv(self, step: str, arguments: Sequence[str]) -> None:
        environment = uv_environment(pip_settings(self._checkout / PYTHON), os.environ)
        self._run(step, [".venv/bin/uv", "pip", "install", "--python", PYTHON, *arguments], environment)

    def _run(self, step: str, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Run *command*, showing *step* and its progress. Raises: InstallError."""
        print(f"bootstrap: {step}", flush=True)
        said = []
        with subprocess.Popen(
            command,
            cwd=self._checkout,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            pass_fds=[self._lock],
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                said.append(line)
                if PROGRESS.match(line):
                    print(f"    {line.strip()}", flush=True)
        self._log.write_text("".join(said))
        if process.returncode == 0:
            return
        if any(UNREACHABLE.search(line) for line in said):
            raise InstallError(
                f"{step} failed: the package index does not answer (details: {self._log.relative_to(self._checkout)}). "
                "Connect this machine, or name a mirror: PIP_INDEX_URL=https://mirror.example/simple make setup"
            )
        sys.stderr.writelines(said)
        raise InstallError(f"{step} failed; the reason is above")


def uv_environment(settings: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """Return *environment* with pip's *settings* in uv's variables. Those that are set already stay."""
    # pip takes the best version of all indexes; each is pinned by hash, so any index may have it.
    told = {"UV_INDEX_STRATEGY": "unsafe-best-match"}
    told |= {UV_VARIABLES[name]: value for name, value in settings.items() if name in UV_VARIABLES}
    # pip ignores folders that are missing.
    links = [link for link in settings.get("find-links", "").split() if "://" in link or Path(link).is_dir()]
    told["UV_FIND_LINKS"] = ",".join(links)
    return {**told, **environment}


def pip_settings(python: Path | str) -> dict[str, str]:
    """Return the settings of *python*'s pip, by name."""
    command = [str(python), "-m", "pip", "config", "list"]
    return parsed(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def parsed(listed: str) -> dict[str, str]:
    """Return the settings that `pip config list` printed. As for pip, the environment wins."""
    found = list(filter(None, map(PIP_SETTING.match, listed.splitlines())))
    found.sort(key=lambda match: match[0].startswith(":env:"))
    return {match[1]: str(ast.literal_eval(match[2])) for match in found}
