"""
The API server as a process: kubectl, loaded files, kill -9.
"""

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import orjson
import pytest

from conformance.peers.objects import a_node, a_pod
from minicluster.client import Client
from testbed.waiting import eventually

needs_kubectl = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")


@asynccontextmanager
async def apiserver(folder: Path, *flags: str) -> AsyncIterator[tuple[asyncio.subprocess.Process, Path]]:
    """Run `python -m minicluster apiserver` during a block. Yields the process and its kubeconfig."""
    kubeconfig = folder / "kubeconfig"
    kubeconfig.unlink(missing_ok=True)
    command = [sys.executable, "-m", "minicluster", "apiserver", "--kubeconfig", str(kubeconfig), *flags]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.DEVNULL)

    async def is_up() -> bool:
        return kubeconfig.exists()

    try:
        assert await eventually(is_up, seconds=30)
        yield process, kubeconfig
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def kubectl(kubeconfig: Path, *arguments: str, stdin: str = "") -> str:
    """Return kubectl's output and errors."""
    process = await asyncio.create_subprocess_exec(
        "kubectl",
        f"--kubeconfig={kubeconfig}",
        f"--cache-dir={kubeconfig.parent / 'cache'}",
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, "HOME": str(kubeconfig.parent)},
    )
    output, _ = await process.communicate(stdin.encode())
    return output.decode()


MANIFEST = """
apiVersion: v1
kind: Pod
metadata: {name: p, labels: {a: LABEL}}
spec: {containers: [{name: main, image: busybox, env: [{name: X, value: "1"}]}]}
"""


def labelled(text: str) -> str:
    """Return the manifest with a label."""
    return MANIFEST.replace("LABEL", text)


@needs_kubectl
async def test_server_side_apply_is_rejected_with_a_message(kubeconfig: Path) -> None:
    """
    A clear error is better than a wrong merge.
    """
    said = await kubectl(kubeconfig, "apply", "--server-side", "-f", "-", stdin=labelled("x"))

    assert "Server-side apply not available on the server" in said


async def test_loaded_files_are_served(tmp_path: Path) -> None:
    """
    Lists and single objects, in JSON and YAML, keep their status.
    """
    nodes, pods = tmp_path / "nodes.json", tmp_path / "pods.yaml"
    nodes.write_bytes(orjson.dumps({"kind": "NodeList", "apiVersion": "v1", "items": [a_node("n1"), a_node("n2")]}))
    pods.write_text(f"{labelled('x')}---\n{labelled('x').replace('name: p', 'name: q')}", "utf-8")
    async with (
        apiserver(tmp_path, "--load", str(nodes), "--load", str(pods)) as (_, kubeconfig),
        Client.from_kubeconfig(kubeconfig, "test") as client,
    ):
        found = [item for path in ("nodes", "pods") for item in (await client.list(f"/api/v1/{path}"))[0]]

    assert ["n1", "n2", "p", "q"] == [item["metadata"]["name"] for item in found]
    assert "4" == found[0]["status"]["capacity"]["cpu"]
    assert "Pending" == found[2]["status"]["phase"]


async def test_kill_9_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    """
    Every acknowledged object is there after the restart, at the same version, and later versions are higher.
    """
    told: dict[str, str] = {}
    data = str(tmp_path / "data")
    async with (
        apiserver(tmp_path, "--data", data) as (process, kubeconfig),
        Client.from_kubeconfig(kubeconfig, "test") as client,
    ):

        async def write(worker: int) -> None:
            for index in range(1000):
                pod = await client.create("/api/v1/namespaces/default/pods", a_pod(f"p{worker}-{index}"))
                told[pod["metadata"]["name"]] = pod["metadata"]["resourceVersion"]

        async def has_written() -> bool:
            return len(told) > 50

        writers = [asyncio.create_task(write(worker)) for worker in range(4)]
        assert await eventually(has_written)
        process.send_signal(signal.SIGKILL)
        await asyncio.gather(*writers, return_exceptions=True)
    async with (
        apiserver(tmp_path, "--data", data) as (_, kubeconfig),
        Client.from_kubeconfig(kubeconfig, "test") as client,
    ):
        items, version = await client.list("/api/v1/pods")
        found = {item["metadata"]["name"]: item["metadata"]["resourceVersion"] for item in items}

    assert told.items() <= found.items()
    assert int(version) >= max(map(int, told.values()))


async def test_sigterm_ends_the_server_at_once(tmp_path: Path) -> None:
    """
    Running watches do not delay it.
    """
    async with apiserver(tmp_path) as (process, kubeconfig), Client.from_kubeconfig(kubeconfig, "test") as client:
        watch = client.watch("/api/v1/pods", "1")
        waiting = asyncio.ensure_future(anext(watch))
        await asyncio.sleep(0.2)
        process.terminate()
        code = await asyncio.wait_for(process.wait(), 3)
        await asyncio.gather(waiting, return_exceptions=True)

    assert 0 == code
