"""
Who creates a Pod reads at once what in it was probably not meant.
"""

import asyncio
import json
import os

import pytest

from hamicommon.model import Object
from harness.cluster import Cluster
from harness.manifests import a_container, a_pod

pytestmark = pytest.mark.usefixtures("kubectl")


async def warnings(cluster: Cluster, pod: Object) -> list[str]:
    """Return what kubectl warns of when *pod* would be created."""
    process = await asyncio.create_subprocess_exec(
        *("kubectl", "create", f"--namespace={cluster.namespace}", "--dry-run=server", "-f", "-"),
        env={**os.environ, "PATH": cluster.search_path, "KUBECONFIG": str(cluster.kubeconfig)},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    _, errors = await process.communicate(json.dumps(pod).encode())
    assert 0 == process.returncode, errors.decode()
    return errors.decode().splitlines()


async def test_what_was_probably_not_meant_is_said_with_what_was(cluster: Cluster) -> None:
    """By kubectl, when the Pod is created, so that nobody has to find out why it waits."""
    main = a_container(gpu=1, gpumemory=3000, gpucores=150)
    pod = a_pod("p", [main], annotations={"nvidia.com/use-gputypes": "A100"})

    assert [
        "Warning: container main: nvidia.com/gpucores: 150 counts as 100, a whole device",
        "Warning: container main: nvidia.com/gpumemory is no resource of the device config; did you mean "
        "nvidia.com/gpumem?",
        "Warning: annotation nvidia.com/use-gputypes: nothing reads it; did you mean nvidia.com/use-gputype?",
    ] == await warnings(cluster, pod)


async def test_ordinary_pod_is_created_without_a_word(cluster: Cluster) -> None:
    """A warning that is always there is not read."""
    assert [] == await warnings(cluster, a_pod("p", gpu=1, gpumem=3000, gpucores=25))
