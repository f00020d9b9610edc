"""
What `kubectl hami` says while services are dead or hang: soon, which of them, and never that all is well.
"""

import asyncio
import json
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from harness.client import Answer, asked, until_explained
from harness.cluster import Cluster
from harness.clusters.embedded import EmbeddedCluster
from harness.manifests import a_pod
from testbed.waiting import eventually

DOCTOR_SECONDS = 10.0
PATIENCE_SECONDS = 5.0
"""What the commands get for one answer: far more than a service that runs needs on a busy machine."""
ENOUGH_SECONDS = 40.0
"""A few answers after each other, for each command in its turn."""
AT_ONCE = 3
"""Programs of the commands. All at once would keep the services that run from answering."""
COMMANDS = (
    *("top nodes", "top devices", "top pods", "waiting", "grants", "usage pods", "doctor", "explain waits"),
    "simulate -f examples/share/share-a-gpu/pods.yaml",
)
SILENT_IN = {
    "scheduler": {"waiting", "doctor", "explain waits", "simulate -f examples/share/share-a-gpu/pods.yaml"},
    "monitor-node-a": {"top nodes", "top devices", "top pods", "grants", "usage pods", "doctor"},
    "plugin-node-a": {"doctor"},
    "webhook": {"doctor"},
    "apiserver": set(COMMANDS),
}
"""The commands that ask each service."""


@pytest.fixture(autouse=True)
def embedded(cluster: Cluster) -> None:
    """Skip on a real cluster."""
    if not isinstance(cluster, EmbeddedCluster):
        pytest.skip("a kubelet starts at once what has ended")


async def test_doctor_finds_what_is_dead_within_seconds(cluster: Cluster) -> None:
    """Webhook, scheduler, a monitor and a plugin at once: each is bad, and nothing that they are asked is good."""
    for part in ("webhook", "scheduler", "monitor-node-a", "plugin-node-b"):
        await cluster.kill(part)
    try:
        began = time.monotonic()
        answer = await asked(cluster, "doctor", "-o", "json")
        lasted_seconds = time.monotonic() - began
    finally:
        await cluster.heal()

    [found] = json.loads(answer.output)["clusters"]
    checks = {check["name"]: check for check in found["checks"]}
    bad = {name for name, check in checks.items() if check["health"] == "bad"}
    named = {"services", "webhook", "certificate", "leader", "drift", "driver", "cdi", "enforcement"}
    assert named == bad - {"inventories"}  # bad as well, once the kubelet has noticed
    assert all("hami-webhook" in checks[name]["found"] for name in ("webhook", "certificate"))
    assert "1 of 2 Pods of hami-monitor do not answer" in checks["enforcement"]["found"]
    assert all(check["fix"] for check in checks.values() if check["health"] != "good")
    assert "good" == checks["clocks"]["health"]
    assert 1 == answer.code
    assert lasted_seconds < DOCTOR_SECONDS


@asynccontextmanager
async def hung(cluster: Cluster, part: str) -> AsyncIterator[None]:
    """During a block, the process of *part* accepts connections and says nothing."""
    pid = await cluster.pid(part)
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)
    await eventually(lambda: cluster.api.get("/version"), "the API server answers")


@pytest.mark.timeout(180)
@pytest.mark.parametrize("part", SILENT_IN)
async def test_hung_service_holds_no_command_up(cluster: Cluster, part: str) -> None:
    """A command that asks it says so, and shows the rest; the others do not notice."""
    await cluster.create(a_pod("waits", gpu=9))
    await until_explained(cluster, "waits")
    async with hung(cluster, part):
        began = time.monotonic()
        turns = asyncio.Semaphore(AT_ONCE)
        answers = await asyncio.gather(*(patiently(cluster, command, turns) for command in COMMANDS))
        lasted_seconds = time.monotonic() - began

    told = {command for command, answer in zip(COMMANDS, answers, strict=True) if says_so(answer)}
    assert SILENT_IN[part] == told
    assert lasted_seconds < ENOUGH_SECONDS


async def patiently(cluster: Cluster, command: str, turns: asyncio.Semaphore) -> Answer:
    """Return the answer of *command*, which waits PATIENCE_SECONDS for each service, once it is its turn."""
    name = command.split(maxsplit=1)[0]
    narrowed = ["-n", cluster.namespace] if name in {"explain", "simulate", "waiting"} else []
    async with turns:
        return await asked(cluster, *command.split(), *narrowed, f"--request-timeout={PATIENCE_SECONDS:g}s")


def says_so(answer: Answer) -> bool:
    """Return whether an answer says that something did not answer."""
    return f"no answer within {PATIENCE_SECONDS:g} s" in answer.output + answer.errors
