"""
The matrix has every two parts that talk, its plan meets every pair, and a version that does not fit is found.
"""

import ast
import shutil
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pytest

from harness.cluster import ROOT
from harness.clusters.embedded import BIN, NATIVE
from harness.manifests import SLEEP, a_pod
from harness.rest import safety_findings
from skew.client import disagreements
from skew.cluster import SITE, STAMP, SkewCluster, command_of, installed
from skew.known import Known
from skew.matrix import CONTRACTS, EXCHANGED, TREE, Pair, Run, chosen, pairs, part_of, plan
from skew.report import row
from skew.run import Outcome, declared
from soak.campaign import plant
from soak.planted import DEFECTS
from testbed.folders import short_folder
from testbed.waiting import eventually

SOURCES = {
    "webhook": "services/webhook/src",
    "scheduler": "services/scheduler/src",
    "device-plugin": "services/device-plugin/src",
    "monitor": "services/monitor/src",
    "kubectl-hami": "clients/kubectl-hami/src",
}
VERSIONS = dict.fromkeys(SOURCES, ("0.1.0", "0.2.0", TREE))
UNCOUNTED = "a grant is not counted"
OLD = Run(dict.fromkeys(EXCHANGED, "0.1.0"), dict.fromkeys(EXCHANGED, TREE))
NEW = Run(dict.fromkeys(EXCHANGED, TREE), dict.fromkeys(EXCHANGED, TREE))


def keys_of(folder: Path) -> Iterator[str]:
    """Yield the names of annotations, constants of `hamicommon.wire.keys`, that a part's source reads or writes."""
    for file in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "keys":
                yield node.attr


def test_parts_that_use_the_same_annotation_have_a_contract() -> None:
    """In the code of each part, by the names of the keys."""
    keys = {part: set(keys_of(ROOT / folder)) for part, folder in SOURCES.items()}
    talking = {frozenset(two) for two in combinations(SOURCES, 2) if keys[two[0]] & keys[two[1]]}

    contracts = {frozenset((part_of(each.one.exchanged), part_of(each.other.exchanged))) for each in CONTRACTS}

    assert set() == talking - contracts
    assert len(talking) >= 6


def test_plan_meets_every_two_versions_of_every_contract() -> None:
    """In few runs: a third of what one run for each pair of one contract after another would take."""
    every = pairs(VERSIONS)

    runs = list(plan(every, VERSIONS, seed=1))

    assert 9 * len(CONTRACTS) == len(every)
    assert [] == [str(pair) for pair in every if not any(run.meets(pair) for run in runs)]
    assert len(runs) <= 15


def test_one_pair_is_met_beside_parts_of_this_tree() -> None:
    """So its problems are its own. A pair that does not exist is refused with an example."""
    every = pairs(VERSIONS)

    [pair] = chosen("device-plugin=tree,scheduler=0.1.0", every)
    [run] = plan([pair], VERSIONS, seed=1)

    assert ("0.1.0", TREE, TREE, TREE) == tuple(run.after[name] for name in (*EXCHANGED[1:2], *EXCHANGED[2:]))
    with pytest.raises(ValueError, match="an example is webhook="):
        chosen("webhook=0.3.0,scheduler=tree", every)


def test_command_of_a_release_has_its_program_and_library_and_goes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What belongs to the cluster, such as the fake driver, stays."""
    monkeypatch.setattr("skew.cluster.RELEASES", tmp_path)
    home = tmp_path / "device-plugin-0.2.0"
    home.mkdir()
    (home / STAMP).touch()
    ours = (f"{BIN}/hami-device-plugin", f"--library={NATIVE}/libvgpu.so", f"--driver={NATIVE}/fake_driver")

    theirs = command_of(ours, "device-plugin", "0.2.0")

    assert ("0.2.0", TREE) == installed()["device-plugin"]
    assert (f"{home}/.venv/bin/hami-device-plugin", f"--library={home}/build/native/libvgpu.so", ours[2]) == theirs
    assert ours == command_of(theirs, "device-plugin", TREE)


def test_problem_is_declared_only_where_its_release_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same sentence is a problem of the tree anywhere else."""
    known = Known("scheduler", "0.1.0", ("memory:",), "grants twice", "docs/advisories.md")
    monkeypatch.setattr("skew.run.KNOWN", (known,))

    assert [known, None, None] == [
        declared("after faults: memory: 9 of 8", OLD),
        declared("after faults: memory: 9 of 8", NEW),
        declared("after faults: count: 9 of 8", OLD),
    ]


def test_pair_has_problems_only_if_each_of_its_runs_has_some() -> None:
    """What a run without them shows is that they are another pair's."""
    pair = Pair(CONTRACTS[0], TREE, TREE)
    bad, good = Outcome(NEW, 1, problems=["p"]), Outcome(NEW, 2, known={"known": 3})

    found = [row(pair, outcomes) for outcomes in ([bad], [bad, good], [])]

    assert [("PROBLEMS", 1), ("good; known", 2), ("not met", 0)] == [(each.outcome, each.runs) for each in found]


@pytest.mark.embedded_only
@pytest.mark.timeout(600)
@pytest.mark.breaks("memory", "the scheduler is exchanged for one that counts no grant of another version")
async def test_version_that_does_not_count_what_another_granted_is_found() -> None:
    """Live Pods hold most of a device when the scheduler is exchanged, and the next Pod gets the same memory."""
    folder = short_folder()
    cluster = SkewCluster(folder, dict.fromkeys(EXCHANGED, TREE), replace(SITE, nodes=SITE.nodes[:1]))
    try:
        await cluster.start()
        async with cluster.kept():
            await cluster.create(a_pod("before", command=SLEEP, gpu=2, gpumem=30000))
            await cluster.pod_in_phase("before", "Running", 30)
            assert [] == await safety_findings(cluster)
            assert [] == await disagreements(cluster, {TREE: BIN / "kubectl-hami"}, ("default", "before"))
            await plant(cluster, {UNCOUNTED: DEFECTS[UNCOUNTED]})
            await cluster.create(a_pod("after", command=SLEEP, gpu=2, gpumem=30000))

            found = await eventually(lambda: safety_findings(cluster), "the judge finds it", 60)
    finally:
        await cluster.stop()
        shutil.rmtree(folder, ignore_errors=True)

    assert found[0].startswith("memory:")
