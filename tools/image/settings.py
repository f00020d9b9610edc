"""
Give pip and Go in a build stage this machine's settings.

Owns their translation, from files and environment, into mounts of a build. Nothing of them stays in an image, because
the URL of an index or a proxy may contain a password.
Sources: https://pip.pypa.io/en/stable/topics/configuration/, https://go.dev/ref/mod#environment-variables
"""

import configparser
import os
import shutil
import sys
from pathlib import Path

from installer import pip_settings

_GO = ("GOPROXY", "GONOPROXY", "GOSUMDB", "GONOSUMDB", "GOPRIVATE")
_PIP = ("index-url", "extra-index-url", "trusted-host", "proxy", "default-timeout", "timeout", "retries")
_CERTIFICATES = Path("/run/secrets/ca-certificates.crt")
_WHEELS = Path("/srv")
"""An empty folder of every base, so that mounting wheels there leaves no trace."""


def pip_options(scratch: Path) -> list[str]:
    """
    Return buildah's options for this machine's settings of pip.

    scratch     folder that exists as long as the build
    """
    settings = pip_settings(sys.executable)
    said = {name: value for name, value in settings.items() if name in _PIP}
    options = []
    certificates = settings.get("cert") or os.environ.get("SSL_CERT_FILE")
    if certificates and Path(certificates).is_file():
        said["cert"] = str(_CERTIFICATES)
        options.append(f"--secret=id={_CERTIFICATES.name},src={certificates}")
    sources = settings.get("find-links", "").split()
    wheels = scratch / "wheels"
    wheels.mkdir()
    for folder in filter(Path.is_dir, map(Path, sources)):
        shutil.copytree(folder, wheels, dirs_exist_ok=True)
    links = [source for source in sources if "://" in source]
    if any(wheels.iterdir()):
        options.append(f"--volume={wheels}:{_WHEELS}:ro")
        links.append(str(_WHEELS))
    if links:
        said["find-links"] = "\n".join(links)
    return [*options, f"--secret=id=pip.conf,src={_write(said, scratch / 'pip.conf')}"]


def go_options(scratch: Path) -> list[str]:
    """
    Return buildah's options for this machine's settings of Go.

    scratch     folder that exists as long as the build
    """
    path = scratch / "go.env"
    path.write_text("".join(f"{name}={os.environ[name]}\n" for name in _GO if name in os.environ))
    return [f"--secret=id={path.name},src={path}"]


def _write(said: dict[str, str], path: Path) -> Path:
    config = configparser.RawConfigParser()
    config["global"] = said
    with path.open("w") as file:
        config.write(file)
    return path
