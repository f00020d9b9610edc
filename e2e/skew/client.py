"""
What every version of `kubectl hami` says about a cluster, and where it is not the truth.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from harness.client import Answer, asked
from harness.cluster import Cluster
from harness.invariants import look

COMMANDS: dict[tuple[str, ...], set[int]] = {("top",): {0}, ("grants",): {0}, ("waiting",): {0, 1}, ("doctor",): {0, 1}}
"""What is asked, and the exit codes that answers to it have on a cluster at rest."""

Held = dict[tuple[str, str], int]
"""The memory in MiB that is held of a device, by Node and UUID."""


async def disagreements(cluster: Cluster, programs: Mapping[str, Path], pod: tuple[str, str]) -> list[str]:
    """Return a sentence for each wrong answer of *programs*, by version. *pod* runs: its namespace and name."""
    expected = {place: amount.memory_mib for place, amount in (await look(cluster)).judge.held().items()}
    commands = {**COMMANDS, ("explain", pod[1], "--namespace", pod[0]): {0}}
    found = []
    for version, program in programs.items():
        for command, codes in commands.items():
            answer = await asked(cluster, *command, "--output=json", program=program)
            found += [f"client {version}: {command[0]}: {each}" for each in _wrong(command[0], answer, codes, expected)]
    return found


def _wrong(command: str, answer: Answer, codes: set[int], expected: Held) -> Iterator[str]:
    if answer.code not in codes or answer.errors:
        yield f"exit code {answer.code}, {answer.errors.strip() or answer.output.strip()}"
    elif command == "top":
        shown = held(answer.output)
        if shown != expected:
            yield f"shows {shown}, the API server's Pods hold {expected}"


def held(top: str) -> Held:
    """Return what the answer of `top` in JSON says."""
    [cluster] = json.loads(top)["clusters"]
    return {
        (node["name"], device["id"]): device["grantedMemoryMib"]
        for node in cluster["nodes"]
        for device in node["devices"]
        if device["grantedMemoryMib"]
    }
