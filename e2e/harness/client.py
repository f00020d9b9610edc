"""
Run `kubectl hami` on a cluster, as a person would.
"""

import asyncio
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.cluster import Cluster

PROGRAM = Path(sys.executable).with_name("kubectl-hami")


@dataclass(frozen=True)
class Answer:
    """What the command printed, and its exit code."""

    code: int
    output: str
    errors: str


async def asked(cluster: Cluster, *arguments: str, stdin: bytes | None = None) -> Answer:
    """Return the answer of `kubectl hami` with *arguments* on *cluster*."""
    process = await asyncio.create_subprocess_exec(
        *(str(PROGRAM), *arguments, f"--kubeconfig={cluster.kubeconfig}"),
        stdin=asyncio.subprocess.DEVNULL if stdin is None else asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, errors = await process.communicate(stdin)
    assert process.returncode is not None
    return Answer(process.returncode, output.decode(), errors.decode())


async def asked_by_kubectl(cluster: Cluster, *arguments: str) -> Answer:
    """Return the answer of `kubectl hami`, which finds the program on the PATH."""
    process = await asyncio.create_subprocess_exec(
        *("kubectl", "hami", *arguments, f"--kubeconfig={cluster.kubeconfig}"),
        env={**os.environ, "PATH": f"{PROGRAM.parent}:{os.environ.get('PATH', os.defpath)}"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, errors = await process.communicate()
    assert process.returncode is not None
    return Answer(process.returncode, output.decode(), errors.decode())


async def asked_json(cluster: Cluster, *arguments: str) -> Any:
    """Return the answer as JSON, which must be the only thing it prints."""
    answer = await asked(cluster, *arguments, "--output=json")
    assert answer.errors == ""
    return json.loads(answer.output)
