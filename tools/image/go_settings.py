"""
Give Go in a build stage this machine's module proxy.

Nothing of it stays in an image, because the URL of a proxy may contain a password.
Source: https://go.dev/ref/mod#environment-variables
"""

import os
from pathlib import Path

_PASSED_ON = ("GOPROXY", "GONOPROXY", "GOSUMDB", "GONOSUMDB", "GOPRIVATE")


def go_options(scratch: Path) -> list[str]:
    """
    Return buildah's options for this machine's settings of Go.

    scratch     folder that exists as long as the build
    """
    path = scratch / "go.env"
    path.write_text("".join(f"{name}={os.environ[name]}\n" for name in _PASSED_ON if name in os.environ))
    return [f"--secret=id={path.name},src={path}"]
