"""
The image of kube-scheduler, in the version of a cluster.

Builds it from Kubernetes' source as the Go module proxy has it, like the programs of the tests' real cluster.
Neighbours: `controlplane.programs.build` has the versions and runs Go.
"""

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

from controlplane.images import oci
from controlplane.programs import build

REPOSITORY = "kube-scheduler"
PROGRAM = f"/usr/local/bin/{REPOSITORY}"
_VERSION = re.compile(r"v?(?P<minor>1\.\d+)\.\d+")


class VersionError(Exception):
    """The version of the cluster is unknown, or has no source here. The message says what to give instead."""


def cluster_version() -> str:
    """Return the version of the cluster that kubectl reaches, such as `v1.37.2`. Raises: VersionError."""
    try:
        asked = subprocess.run(["kubectl", "get", "--raw", "/version"], capture_output=True, text=True, check=True)
        return plain(str(json.loads(asked.stdout)["gitVersion"]))
    except (OSError, subprocess.CalledProcessError) as error:
        said = str(getattr(error, "stderr", None) or error).strip().splitlines()
        raise VersionError(
            f"kubectl reaches no cluster ({said[-1] if said else error}): give its version, such as "
            f"--kubernetes {build.KUBERNETES[build.DEFAULT_KUBERNETES]}"
        ) from error


def plain(version: str) -> str:
    """
    Return *version* without a distribution's suffix, as the chart names the image. Raises: VersionError.

    >>> plain("v1.34.4+k3s1")
    'v1.34.4'
    """
    found = _VERSION.match(version)
    if found is None:
        raise VersionError(f"--kubernetes {version} is no version of Kubernetes: write it like v1.37.2")
    return f"v{found[0].removeprefix('v')}"


def built_version(version: str) -> str:
    """Return what is built for a cluster of *version*: the known patch of its minor. Raises: VersionError."""
    found = _VERSION.match(version)
    minor = found["minor"] if found else version
    if minor not in build.KUBERNETES:
        raise VersionError(
            f"kube-scheduler {version} cannot be built here, only {', '.join(build.KUBERNETES.values())}: copy it with "
            "--kube-scheduler-from registry.k8s.io"
        )
    return build.KUBERNETES[minor]


def make(version: str, arch: str, step: Callable[[str], None]) -> Path:
    """
    Return the OCI archive of kube-scheduler *version* for *arch*, built the first time.

    Raises:
        build.BuildError: Go is missing, or failed.
    """
    minor = version.removeprefix("v").rpartition(".")[0]
    program = build.made(build.kube_scheduler(minor, arch), step) / REPOSITORY
    archive = build.cache() / f"{program.parent.name}.tar"
    return oci.packed(archive, f"localhost/{REPOSITORY}:{version}", {PROGRAM: program}, [PROGRAM], arch)
