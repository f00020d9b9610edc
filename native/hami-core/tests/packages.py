"""
Packages from PyPI that tests need and the repository does not store.

Owns their cache (`$XDG_CACHE_HOME/hami-native`, else `~/.cache/hami-native`). If PyPI is unreachable, the tests that
need a package are skipped with pip's last line.
"""

import os
import re
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

import pytest

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hami-native"


@cache
def fetched(package: str) -> Path:
    """Return the folder with an installed package (`name==version`). Installs it first if necessary."""
    folder = CACHE / package
    if not folder.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as name:
            _install(package, Path(name) / "package")
            (Path(name) / "package").rename(folder)
    return folder


def _install(package: str, folder: Path) -> None:
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check"]
    options = ["--no-deps", "--retries", "1", "--timeout", "20", "--target", str(folder)]
    done = subprocess.run([*pip, *options, package], capture_output=True, text=True, check=False)
    if done.returncode != 0 and re.search("connection broken|timed out|name resolution", done.stderr, re.I):
        pytest.skip(f"{package} cannot be fetched: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
