"""
A crowd of Pods on Nodes of both kinds, half of which ask by ResourceClaims, and faults of our scheduler meanwhile.

There is less room than the Pods ask for, so they compete for every device. Pods that ask by resources go to Nodes with
a device plugin, and to tokens on Nodes of kind `dra`, whose other devices are for claims. kwok plays the Nodes.
"""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp

from bench.load.simulation import a_dra_node, a_node, a_pod, a_share_template, all_of, slices_of
from dra.stage import Stage
from hamicommon.model import Object
from harness.claims import API, with_claim
from harness.history.events import KINDS
from harness.history.recorder import Recorder
from harness.invariants import MIB, samples
from minicluster.client import Client
from testbed.waiting import eventually

PLUGIN_NODES, DRA_NODES = 12, 24
A_PLUGIN_NODE = "plugin-0"
DEVICES = 8
FOR_CLAIMS = range(5)
"""The devices of a Node of kind `dra` that are for claims, by number."""
MEMORY_MIB = (3000, 6000, 12000, 24000)
CORE_PERCENT = (5, 10, 20, 30)
WATCH_DELAY_SECONDS = (0.0, 0.5, 2.0)
FAULT_SECONDS = 2.0
BINDS_BETWEEN_KILLS = 100
KILLS = 3
REST_SECONDS = 10.0
"""After which kube-scheduler has tried every Pod again, whether or not it has a claim."""
POLL_SECONDS = 2.0
SETTLED_SECONDS = 400.0


@dataclass
class Faults:
    """What happened to our scheduler."""

    kills: int = 0
    """How often it was killed between a filter and the bind of the same Pod."""
    binds: int = 0
    """How many binds kube-scheduler has asked for."""


async def add_nodes(api: Client) -> None:
    """Add the Nodes of both kinds, and the slices that a driver would publish."""
    for number in range(PLUGIN_NODES):
        await api.create("/api/v1/nodes", a_node(f"plugin-{number}", DEVICES))
    for number in range(DRA_NODES):
        node = await api.create("/api/v1/nodes", a_dra_node(f"dra-{number}", DEVICES, FOR_CLAIMS))
        for found in slices_of(node):
            await api.create(f"{API}/resourceslices", found)


async def add_templates(stage: Stage) -> None:
    """Add a template for each share that a claim may ask for."""
    path = f"{API}/namespaces/{stage.api.namespace}/resourceclaimtemplates"
    await all_of(
        stage.api.create(path, a_share_template(_template(memory, cores), memory, cores))
        for memory in MEMORY_MIB
        for cores in CORE_PERCENT
    )


def made_pods(count: int, draw: random.Random) -> list[Object]:
    """Return *count* Pods; every second one has a claim, and kube-scheduler alone places it."""
    pods = []
    for number in range(count):
        memory, cores = draw.choice(MEMORY_MIB), draw.choice(CORE_PERCENT)
        pod = a_pod(f"p-{number:04}", "default-scheduler", {"gpu": 1, "gpumem": memory, "gpucores": cores})
        pods.append(with_claim(pod, _template(memory, cores)) if number % 2 else pod)
    draw.shuffle(pods)
    return pods


def _template(memory_mib: int, core_percent: int) -> str:
    return f"share-{memory_mib}-{core_percent}"


@asynccontextmanager
async def recorded(stage: Stage) -> AsyncIterator[Recorder]:
    """During a block, record every version of Nodes, Pods, slices and claims."""

    async def config() -> str:
        return (stage.folder / "device-config.yaml").read_text()

    def look(_pod: Object, _container: str) -> tuple[Mapping[str, str], str | None]:
        raise LookupError("kwok runs no containers")

    recorder = Recorder(Client.from_kubeconfig(stage.kubeconfig, "recorder"), config, look, KINDS)
    await recorder.start()
    try:
        yield recorder
    finally:
        await recorder.stop()


@asynccontextmanager
async def under_fire(stage: Stage, draw: random.Random) -> AsyncIterator[Faults]:
    """During a block, let our scheduler learn late, and kill it before some binds that kube-scheduler asks for."""
    faults = Faults()

    async def before(verb: str) -> None:
        if verb != "bind":
            return
        faults.binds += 1
        if faults.binds % BINDS_BETWEEN_KILLS == 0 and faults.kills < KILLS:
            faults.kills += 1
            await asyncio.to_thread(stage.scheduler.kill)
            stage.scheduler.start()

    async def delay() -> None:
        while True:
            stage.late.watch_delay_seconds = draw.choice(WATCH_DELAY_SECONDS)
            await asyncio.sleep(FAULT_SECONDS)

    stage.extender.before = before
    delaying = asyncio.create_task(delay())
    try:
        yield faults
    finally:
        delaying.cancel()
        stage.late.watch_delay_seconds = 0.0
        stage.extender.before = None


async def settled(stage: Stage, recorder: Recorder) -> list[Object]:
    """Wait until no Pod waits that fits, by the judge, and kube-scheduler has placed what it can. Returns all Pods."""
    loop = asyncio.get_running_loop()
    last, since = -1, loop.time()
    pods: list[Object] = []

    async def are_at_rest() -> bool:
        """Return whether that is so. Raises: AssertionError that names Pods which wait."""
        nonlocal last, since, pods
        await asyncio.sleep(POLL_SECONDS)
        pods, _ = await stage.api.list(stage.api.pods)
        bound = sum("nodeName" in pod["spec"] for pod in pods)
        if bound != last:
            last, since = bound, loop.time()
        if loop.time() - since < REST_SECONDS:
            return False
        await recorder.settle()
        owed = recorder.judge.debts()
        assert not owed, f"{len(owed)}, such as {owed[:3]}"
        return True

    await eventually(are_at_rest, "no Pod waits that fits", SETTLED_SECONDS)
    return pods


async def create(stage: Stage, pods: list[Object]) -> None:
    """Create *pods*. The webhook changes those that ask by resources."""
    await all_of(stage.api.create(stage.api.pods, pod) for pod in pods)


async def delete(stage: Stage, pods: list[Object]) -> None:
    """Delete *pods* at once."""

    async def one(pod: Object) -> None:
        await stage.api.delete_if_exists(f"{stage.api.pods}/{pod['metadata']['name']}", 0)

    await all_of(map(one, pods))


def places(pods: list[Object]) -> Counter[str]:
    """Count the bound *pods* by how they got their device: `plugin`, `tokens` or `claims`."""
    found: Counter[str] = Counter()
    for pod in pods:
        if "nodeName" in pod["spec"]:
            by_claim = "resourceClaims" in pod["spec"]
            found["claims" if by_claim else "tokens" if pod["spec"]["nodeName"].startswith("dra") else "plugin"] += 1
    return found


async def counted_by_scheduler(stage: Stage) -> dict[tuple[str, str], int]:
    """Return the MiB of each device that our scheduler counts as granted, by Node and UUID."""
    async with aiohttp.ClientSession() as session, session.get(stage.metrics) as answer:
        found = samples(await answer.text())
    return {
        (labels["node"], labels["device_uuid"]): int(size_bytes) // MIB
        for labels, size_bytes in found["hami_gpu_memory_allocated_bytes"]
        if size_bytes
    }
