"""
Run `kubectl hami` on a cluster, as a person would.
"""

import asyncio
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.cluster import Cluster
from testbed.waiting import eventually

PROGRAM = Path(sys.executable).with_name("kubectl-hami")


@dataclass(frozen=True)
class Answer:
    """What the command printed, and its exit code."""

    code: int
    output: str
    errors: str


async def asked(cluster: Cluster, *arguments: str, stdin: bytes = b"", program: Path = PROGRAM) -> Answer:
    """Return the answer of `kubectl hami`, or of another version's *program*, with *arguments* on *cluster*."""
    return await _answer((str(program), *arguments), cluster, os.environ, stdin)


async def asked_by_kubectl(cluster: Cluster, *arguments: str) -> Answer:
    """Return the answer of `kubectl hami`, which finds the program on the PATH."""
    environment = {**os.environ, "PATH": f"{PROGRAM.parent}:{cluster.search_path}"}
    return await _answer(("kubectl", "hami", *arguments), cluster, environment)


async def _answer(
    command: Sequence[str], cluster: Cluster, environment: Mapping[str, str], stdin: bytes = b""
) -> Answer:
    process = await asyncio.create_subprocess_exec(
        *(*command, f"--kubeconfig={cluster.kubeconfig}"),
        env=environment,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, errors = await process.communicate(stdin)
    assert process.returncode is not None
    return Answer(process.returncode, output.decode(), errors.decode())


async def asked_json(cluster: Cluster, *arguments: str) -> Any:
    """Return the answer as JSON, which must be the only thing it prints."""
    answer = await asked(cluster, *arguments, "--output=json")
    assert answer.errors == ""
    return json.loads(answer.output)


async def at_shell(cluster: Cluster, line: str) -> tuple[int | None, str]:
    """Return the exit code and the output of a line, as a person would run it."""
    path = f"{PROGRAM.parent}:{cluster.search_path}"
    process = await asyncio.create_subprocess_shell(
        line,
        env={**os.environ, "PATH": path, "KUBECONFIG": str(cluster.kubeconfig)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    return process.returncode, output.decode()


async def until_explained(cluster: Cluster, pod: str) -> None:
    """Wait until the scheduler has written why *pod* waits, which is after kube-scheduler's own Event."""

    async def is_explained() -> bool:
        return "FilteringFailed" in {event["reason"] for event in await cluster.events(pod)}

    await eventually(is_explained, f"Pod {pod} has an Event with its cause")
