"""
Measure Pods a second on a real control plane with 500 simulated Nodes.

`python e2e/bench/scale.py` lets kube-scheduler place the same Pods with our scheduler, with a trivial extender, and
with none: alternately, in several rounds, with two kinds of load. It prints tables, or with `--json` every run.
`--write FILE` replaces the tables of a page. Needs root, like the control plane.
"""

import argparse
import asyncio
from dataclasses import asdict

from bench.load.chart import Chart
from bench.load.control import FOLDER, Control, running_control
from bench.load.handover import Handover, measure_handover
from bench.load.rig import Rig
from bench.load.simulation import a_node, give_locks_back
from bench.record.measurement import Case, Load, Run
from bench.report.command import parser, progress, tell
from bench.report.tables import page
from controlplane.programs import build

SHARE = {"gpu": 1, "gpumem": 3000, "gpucores": 10}
HAMI = Case("hami-scheduler", "hami", SHARE)
TRIVIAL = Case("trivial extender", "trivial", SHARE)
ALONE = Case("no extender", "", {"gpu": 1})
LOCKED = Case("hami-scheduler, node locks", "hami", SHARE)


def main() -> None:
    """Start the control plane, measure, print, and remove it."""
    arguments = _arguments()
    with running_control(progress) as control:
        runs, handover = asyncio.run(measure(control, arguments))
    tell(
        arguments,
        "scale",
        {"runs": [*map(asdict, runs)], "handover": asdict(handover)},
        page(runs, handover, HAMI.name, TRIVIAL.name),
    )


def _arguments() -> argparse.Namespace:
    arguments = parser(__doc__)
    arguments.add_argument("--nodes", type=int, default=500)
    arguments.add_argument("--devices", type=int, default=8)
    arguments.add_argument("--pods", type=int, default=2000)
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--locked-pods", type=int, default=200, help="Pods on Nodes that need the node lock")
    arguments.add_argument("--handover-rounds", type=int, default=50, help="Pods that wait for the device of another")
    return arguments.parse_args()


async def measure(control: Control, arguments: argparse.Namespace) -> tuple[list[Run], Handover]:
    """Let each case place Pods, with each load, in each round, and then measure our scheduler alone."""
    chart = Chart(control.programs / "helm", build.KUBERNETES[build.DEFAULT_KUBERNETES])
    async with Rig.started(control, chart, FOLDER / "scale") as rig:
        progress(f"{arguments.nodes} Nodes")
        await rig.add_nodes([a_node(f"node-{index:05}", arguments.devices) for index in range(arguments.nodes)])
        runs: list[Run] = []
        for number in range(arguments.rounds):
            one, other = (HAMI, TRIVIAL) if number % 2 == 0 else (TRIVIAL, HAMI)
            for load in Load:
                # In both directions, so that a steady change during a round, such as of speed, affects all cases alike.
                for case in (one, other, ALONE, other, one):
                    run = await rig.run(case, load, arguments.pods)
                    runs.append(run)
                    progress(
                        f"round {number + 1}, {load.value:8} {case.name:16} {run.pods_per_second:5.0f} Pods/s, "
                        f"yardstick {run.yardstick_ms:.2f} ms"
                    )
        handover = await measure_handover(rig, HAMI, arguments.handover_rounds)
        progress(f"{handover.rounds} Pods waited for a device, {handover.ms.get('p50')} ms")
        runs.append(await _locked(rig, arguments.locked_pods))
        progress(f"with node locks {runs[-1].pods_per_second:5.0f} Pods/s")
        return runs, handover


async def _locked(rig: Rig, pods: int) -> Run:
    """Return a run in which every Node needs HAMi's lock. The Nodes stay like that."""
    await rig.take_identity()
    async with asyncio.TaskGroup() as group:
        plugins = group.create_task(give_locks_back(rig.client))
        run = await rig.run(LOCKED, Load.CREATION, pods)
        plugins.cancel()
    return run


if __name__ == "__main__":
    main()
