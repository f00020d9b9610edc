"""
`kubectl hami bundle` records a cluster, and every command answers from the file as it did live.
"""

import json
import subprocess
import tarfile
from pathlib import Path

from harness.client import PROGRAM, asked, asked_json, until_explained
from harness.cluster import Cluster
from harness.manifests import a_pod


def offline(file: Path, *arguments: str) -> str:
    """Return what a command prints of the archive in *file*, without a cluster."""
    command = [str(PROGRAM), *arguments, "--from", str(file), "-o", "json"]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={"HOME": "/nowhere"}).stdout


def contents(file: Path) -> bytes:
    """Return the content of every file in an archive."""
    with tarfile.open(file) as archive:
        return b"".join(found.read() for member in archive if (found := archive.extractfile(member)))


async def test_archive_answers_as_the_cluster_did(cluster: Cluster, tmp_path: Path) -> None:
    """Without the cluster, and without the environment of its Pods."""
    secret = {"name": "PASSWORD", "value": "do-not-tell"}
    pod = a_pod("runs", command=("gpu-hold", "--mib", "1000"), gpu=1, gpumem=3000)
    pod["spec"]["containers"][0].setdefault("env", []).append(secret)
    await cluster.create(pod)
    await cluster.create(a_pod("waits", gpu=1, gpumem=50_000))
    await cluster.pod_in_phase("runs", "Running")

    await until_explained(cluster, "waits")
    file = tmp_path / "bundle.tar.gz"

    answer = await asked(cluster, "bundle", "-f", str(file))

    assert answer.code == 0
    for command in (("explain", "waits", "-n", cluster.namespace), ("doctor",)):
        assert await asked_json(cluster, *command) == json.loads(offline(file, *command))
    [live], [found] = (
        (await asked_json(cluster, "waiting", "-n", cluster.namespace))["clusters"],
        json.loads(offline(file, "waiting", "-n", cluster.namespace))["clusters"],
    )
    assert live["waiting"] == found["waiting"]
    everything = contents(file)
    assert b'"runs"' in everything
    assert b"do-not-tell" not in everything
    assert b"gpu-hold" not in everything
