"""
Measure Pods a second by the kind of Node, on a real control plane with simulated Nodes.

`python e2e/bench/kinds.py` lets kube-scheduler and our scheduler place the same shares on Nodes with a device plugin,
on Nodes with tokens, and by ResourceClaims on Nodes that have devices for them: alternately, in several rounds, in one
cluster. It prints tables, or with `--json` every run. `--write FILE` replaces the tables of a page. Needs root.
"""

import argparse
import asyncio
from collections.abc import Iterator
from dataclasses import asdict

from bench.load.chart import Chart
from bench.load.control import FOLDER, Control, running_control
from bench.load.rig import TEMPLATE, Rig
from bench.load.simulation import NAMESPACE, a_dra_node, a_node, a_share_template
from bench.record.measurement import By, Case, Load, Run
from bench.report.command import parser, progress, tell
from bench.report.tables import kinds_page
from controlplane.programs import build
from hamicommon.model import Object
from harness.claims import API

MEMORY_MIB, CORE_PERCENT = 3000, 10
SHARE = {"gpu": 1, "gpumem": MEMORY_MIB, "gpucores": CORE_PERCENT}
CASES = (
    Case("device plugin", "hami", SHARE, "plugin"),
    Case("tokens", "hami", SHARE, "tokens", By.MOVED_LIMITS),
    Case("claims", "hami", SHARE, "claims", By.CLAIM),
)
_CHART = {"dra.enabled": True, "dra.extendedResource": True}


def main() -> None:
    """Start the control plane, measure, print, and remove it."""
    arguments = _arguments()
    with running_control(progress) as control:
        runs = asyncio.run(measure(control, arguments))
    tell(arguments, "kinds", [*map(asdict, runs)], kinds_page(runs))


def _arguments() -> argparse.Namespace:
    arguments = parser(__doc__)
    arguments.add_argument("--nodes", type=int, default=150, help="of each kind")
    arguments.add_argument("--devices", type=int, default=8)
    arguments.add_argument("--pods", type=int, default=1000)
    arguments.add_argument("--rounds", type=int, default=3)
    return arguments.parse_args()


async def measure(control: Control, arguments: argparse.Namespace) -> list[Run]:
    """Let each kind of Node get its Pods, with each load, in each round."""
    chart = Chart(control.programs / "helm", build.KUBERNETES[build.DEFAULT_KUBERNETES], _CHART)
    async with Rig.started(control, chart, FOLDER / "kinds") as rig:
        for found in chart.device_classes:
            await rig.client.create(f"{API}/deviceclasses", found)
        templates = f"{API}/namespaces/{NAMESPACE}/resourceclaimtemplates"
        await rig.client.create(templates, a_share_template(TEMPLATE, MEMORY_MIB, CORE_PERCENT))
        progress(f"{arguments.nodes} Nodes of each kind")
        await rig.add_nodes([*_nodes(arguments.nodes, arguments.devices)])
        runs: list[Run] = []
        for number in range(arguments.rounds):
            for load in Load:
                # In both directions, so that a steady change of the processors' speed affects all cases alike.
                for case in (*CASES, *reversed(CASES)):
                    run = await rig.run(case, load, arguments.pods)
                    runs.append(run)
                    progress(f"round {number + 1}, {load.value:8} {case.name:13} {run.pods_per_second:5.0f} Pods/s")
        return runs


def _nodes(count: int, devices: int) -> Iterator[Object]:
    """Yield *count* Nodes of each kind, each labelled with it."""
    for number in range(count):
        for kind, for_claims in (("plugin", None), ("tokens", range(0)), ("claims", range(devices))):
            name = f"{kind}-{number:03}"
            node = a_node(name, devices) if for_claims is None else a_dra_node(name, devices, for_claims)
            node["metadata"]["labels"]["kind"] = kind
            yield node


if __name__ == "__main__":
    main()
