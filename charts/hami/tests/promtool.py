"""
Prometheus' own check of rules, from PATH or from Debian's package.

The package is unpacked in a cache and not installed, so no Prometheus starts and nobody must be root.
"""

import functools
import shutil
import subprocess
import tempfile
from pathlib import Path

CACHE = Path.home() / ".cache/hami-tests"
DOWNLOAD_SECONDS = 120


class MissingError(Exception):
    """There is no promtool; the message says why."""


@functools.cache
def promtool() -> Path:
    """
    Return the program.

    Raises:
        MissingError: it is not in PATH, and Debian's package cannot be had.
    """
    found = shutil.which("promtool")
    cached = CACHE / "prometheus/usr/bin/promtool"
    if found is None and not cached.exists():
        _download()
    return Path(found or cached)


def _download() -> None:
    CACHE.mkdir(parents=True, exist_ok=True)
    if shutil.which("apt-get") is None:
        raise MissingError("promtool is not in PATH, and there is no apt-get to download Debian's prometheus")
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        try:
            _run(folder, "apt-get", "download", "prometheus")
            [package] = Path(folder).glob("prometheus_*.deb")
            _run(folder, "dpkg-deb", "--extract", str(package), "unpacked")
        except subprocess.SubprocessError as error:
            text = error.stderr if isinstance(error, subprocess.CalledProcessError) else str(error)
            raise MissingError(
                f"promtool is not in PATH, and Debian's prometheus cannot be downloaded: {text}"
            ) from error
        # Another process may have been faster: its copy is as good.
        if not (CACHE / "prometheus").exists():
            (Path(folder) / "unpacked").rename(CACHE / "prometheus")


def _run(folder: str, *command: str) -> None:
    subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True, timeout=DOWNLOAD_SECONDS)
