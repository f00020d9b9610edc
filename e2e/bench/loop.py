"""
Measure Pods a second on the embedded cluster: created, admitted, filtered, bound, ended.

`python e2e/bench/loop.py` prints a table, with `--json` the figures. `--write FILE` replaces the table of a page.
Pods are created as fast as the API server accepts them, and end as soon as they are seen bound. The Nodes are only
objects, and no container runs. The invariants are checked after each round.
"""

import argparse
import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.load.simulation import NAMESPACE, PODS, a_node, a_pod, all_of, for_each_bound
from bench.record.measurement import percentiles
from bench.record.usage import Usage
from bench.report.command import parser, progress, tell
from bench.report.tables import circumstances, spread, table
from harness import invariants
from harness.cluster import SCHEDULER_NAME
from harness.clusters.embedded import EmbeddedCluster
from testbed.waiting import eventually

NODE_COUNTS = (100, 500, 1000)
SHARE = {"gpu": 1, "gpumem": 3000, "gpucores": 10}
ENDED_SECONDS = 240.0
PARTS = ("apiserver", "webhook", "scheduler", "kube-scheduler", "load")


@dataclass(frozen=True, slots=True)
class Round:
    """The figures of one round."""

    nodes: int
    pods: int
    pods_per_second: float
    """From the first creation to the last end."""
    wait_seconds: Mapping[str, float]
    """From the creation of a Pod until it is seen bound, by percentile."""
    cpu_ms_per_pod: Mapping[str, float]
    """By process. `others` are all processes outside the cluster."""
    scheduler_mib: int


def main() -> None:
    """Measure, and print."""
    arguments = parser(__doc__)
    arguments.add_argument("--nodes", type=int, help="only one cluster of this size")
    arguments.add_argument("--devices", type=int, default=8)
    arguments.add_argument("--pods", type=int, default=2000, help="Pods of each round")
    arguments.add_argument("--rounds", type=int, default=5)
    given = arguments.parse_args()
    found = asyncio.run(measure((given.nodes,) if given.nodes else NODE_COUNTS, given))
    tell(given, "loop", [asdict(each) for each in found], page(found))


def page(found: Sequence[Round]) -> str:
    """Return the table, with the circumstances."""
    heads = ["Nodes", "Pods/s", "wait s, p50 / p99", *(f"{part} ms" for part in PARTS), "scheduler MiB"]
    rows = []
    by_nodes = {
        nodes: [each for each in found if each.nodes == nodes] for nodes in dict.fromkeys(each.nodes for each in found)
    }
    for nodes, rounds in by_nodes.items():
        waits = (statistics.median(each.wait_seconds[part] for each in rounds) for part in ("p50", "p99"))
        costs = (statistics.median(each.cpu_ms_per_pod[part] for each in rounds) for part in PARTS)
        rows.append(
            [
                str(nodes),
                spread([each.pods_per_second for each in rounds]),
                " / ".join(f"{wait:.1f}" for wait in waits),
                *(f"{cost:.2f}" for cost in costs),
                str(max(each.scheduler_mib for each in rounds)),
            ]
        )
    others = [each.cpu_ms_per_pod["others"] * each.pods_per_second / 1000 for each in found]
    rounds_each = len(found) // len(by_nodes)
    return f"{circumstances(found[0].pods, rounds_each, others)}\n\n{table(heads, rows)}"


async def measure(node_counts: Sequence[int], given: argparse.Namespace) -> list[Round]:
    """Return all rounds. Each number of Nodes has a new cluster."""
    found = []
    for node_count in node_counts:
        with tempfile.TemporaryDirectory() as folder:
            cluster = EmbeddedCluster(Path(folder), nodes=())
            try:
                await cluster.start()
                await cluster.use_namespace(NAMESPACE)
                await all_of(cluster.create(a_node(f"node-{index:05}", given.devices)) for index in range(node_count))
                await a_round(cluster, node_count, ["first-a", "first-b"])  # afterwards all parts know all Nodes
                for number in range(given.rounds):
                    names = [f"pod-{number}-{index:05}" for index in range(given.pods)]
                    found.append(await a_round(cluster, node_count, names))
                    progress(f"{node_count} Nodes, round {number + 1}: {found[-1].pods_per_second:.0f} Pods/s")
            finally:
                await cluster.stop()
    return found


async def a_round(cluster: EmbeddedCluster, node_count: int, names: Sequence[str]) -> Round:
    """Create and end a Pod of each name. Raises: NotInTimeError; AssertionError with every violated invariant."""
    created: dict[str, float] = {}
    bound: dict[str, float] = {}
    ended: dict[str, float] = {}
    pids = {"load": os.getpid(), **{part: process.pid for part, process in cluster.processes.items()}}

    async def create(name: str) -> None:
        created[name] = time.monotonic()
        await cluster.create(a_pod(name, SCHEDULER_NAME, SHARE))

    async def end(name: str, _node: str) -> None:
        bound[name] = time.monotonic()
        await cluster.api.patch(f"{PODS}/{name}/status", {"status": {"phase": "Succeeded"}})
        await cluster.api.delete(f"{PODS}/{name}", grace_seconds=0)
        ended[name] = time.monotonic()

    async def all_ended() -> bool:
        return len(ended) == len(names)

    before = Usage.now(pids)
    async with asyncio.TaskGroup() as group:
        ends = group.create_task(for_each_bound(cluster.api, end))
        await all_of(map(create, names))
        await eventually(all_ended, f"{len(names)} Pods have ended", ENDED_SECONDS)
        ends.cancel()
    after = Usage.now(pids)
    await invariants.check(cluster)
    used = after.since(before)
    return Round(
        node_count,
        len(names),
        round(len(names) / (max(ended.values()) - min(created.values())), 1),
        percentiles([bound[name] - created[name] for name in names], 1),
        {part: round(seconds * 1000 / len(names), 2) for part, seconds in used.items()},
        after.memory_mib["scheduler"],
    )


if __name__ == "__main__":
    main()
