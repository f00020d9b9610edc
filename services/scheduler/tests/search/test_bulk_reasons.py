"""
Reasons for all Nodes at once equal those of trying the Nodes one by one.
"""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hami_scheduler.search.bulk_reasons import bulk_reasons
from hami_scheduler.search.place_pod import try_node
from hami_scheduler.search.placement import Placement
from hami_scheduler.state.cluster import Cluster
from hami_scheduler.values.reasons import Misfit
from hami_scheduler.values.request import PodRequest
from hamicommon.model import MigAllocation, MigPlacement, Object
from hamicommon.wire.mig import encode_mig_allocations

from ..support.builders import a_cluster, a_container, a_device, a_mig_device, a_node, a_pod, a_register, a_request
from ..support.hypothesis_profiles import profile

NAMES = [f"n{n}" for n in range(12)]
UUIDS = ("GPU-3-0,GPU-4-1", " GPU-0-0 , GPU-9-9", ",", " ", "\x1c", "GPU-1-0,GPU-1-1,GPU-2-0")
ANNOTATIONS = (
    *({"nvidia.com/use-gpuuuid": uuids} for uuids in UUIDS),
    *({"nvidia.com/nouse-gpuuuid": uuids} for uuids in UUIDS),
    {"nvidia.com/use-gputype": "a10"},
    {"nvidia.com/nouse-gputype": "H100"},
    {"nvidia.com/vgpu-mode": "mig"},
    {"nvidia.com/vgpu-mode": "hami-core"},
    {"nvidia.com/numa-bind": "true"},
)


class Setting:
    """A cluster with devices and Pods of every kind, and a question, drawn from a seed."""

    def __init__(self, seed: int) -> None:
        self.draw = draw = random.Random(seed)
        self.cluster = a_cluster(*map(self.node, range(len(NAMES))))
        for number in range(40):
            n, i = draw.randrange(len(NAMES)), draw.randrange(4)
            share = f"GPU-{n}-{i},NVIDIA,{draw.choice([500, 9000])},{draw.choice([0, 50, 100])}:;"
            instance = MigAllocation(0, 0, f"GPU-{n}-{i}", "1g.5gb", MigPlacement(0, 1))
            instances = encode_mig_allocations([instance])
            annotations = {"hami.io/vgpu-mig-allocations": instances} if draw.random() < 0.1 else {}
            self.cluster.put_pod(a_pod(f"p{number}", node=NAMES[n], allocated=share, annotations=annotations))
        hard = {"limits.nvidia.com/gpumem": "2000", "limits.nvidia.com/gpucores": draw.choice(["0", "60"])}
        if draw.random() < 0.3:
            self.cluster.quotas.put({"metadata": {"namespace": "default", "name": "q"}, "spec": {"hard": hard}})

    def node(self, n: int) -> Object:
        """Return a Node with one to four devices, some of which are closed."""
        draw = self.draw
        devices = [
            a_mig_device(f"GPU-{n}-{i}")
            if draw.random() < 0.05
            else a_device(
                f"GPU-{n}-{i}",
                count=draw.choice([1, 4]),
                memory_mib=draw.choice([0, 16384, 16384]),
                core_percent=draw.choice([0, 100, 200]),
                type=draw.choice(["NVIDIA A10", "NVIDIA H100"]),
                numa=i // 2,
                healthy=draw.random() > 0.1,
            )
            for i in range(draw.choice([1, 2, 4]))
        ]
        cordoned = {"hami_io__device_cordon": f"GPU-{n}-0"} if draw.random() < 0.2 else {}
        others = {"hami_io__node_dcu_register": a_register(a_device(f"DCU-{n}", type="DCU-K100"))} if n % 2 else {}
        return a_node(NAMES[n], *devices, **cordoned, **others)  # type: ignore[arg-type]

    def question(self) -> PodRequest:
        """Return what a Pod asks: one or two containers, perhaps of two vendors."""
        draw = self.draw
        amounts: list[dict[str, Any]] = [{"gpumem": draw.choice([100, 8000, 20000])}, {"gpumem_percentage": 60}]
        containers = [
            a_container(
                f"c{number}",
                gpu=draw.choice([1, 1, 2, 5]),
                gpucores=draw.choice([0, 60, 100]),
                **draw.choice(amounts),
            )
            for number in range(draw.choice([1, 1, 2]))
        ]
        if draw.random() < 0.2:
            containers[0]["resources"]["limits"]["hygon.com/dcunum"] = "1"
        inits = [a_container("first")] if draw.random() < 0.5 else []
        pod = a_pod("ask", *containers, inits=inits, annotations=draw.choice([{}, draw.choice(ANNOTATIONS)]))
        return a_request(pod, device=draw.choice(["spread", "mutex", "binpack", "topology-aware"]))


def tried(cluster: Cluster, request: PodRequest) -> dict[str, Placement | Misfit]:
    """Return what each Node answers, tried one by one."""
    allowances = cluster.view.allowances(request)
    return {name: try_node(request, name, cluster.ledger, allowances) for name in NAMES}


def told(cluster: Cluster, request: PodRequest) -> dict[str, Misfit]:
    """Return the reasons computed for all Nodes at once."""
    causes = bulk_reasons(request, cluster.ledger, cluster.view.allowances(request))
    found = {name: causes[entry.index] for name in NAMES if (entry := cluster.ledger.node(name))}
    return {name: cause for name, cause in found.items() if cause}


@pytest.mark.property
@given(setting=st.builds(Setting, st.integers(0, 10**6)))
@profile(100)
def test_bulk_reasons_are_those_of_the_walk(setting: Setting) -> None:
    """Whatever is offered, held and asked: a cause that is told is the one that trying the Node finds."""
    for _ in range(10):
        request = setting.question()
        causes = told(setting.cluster, request)

        assert causes == {name: tried(setting.cluster, request)[name] for name in causes}


@pytest.mark.parametrize(
    "asked",
    [{"gpumem": 20000}, {"gpumem_percentage": 101}, {"gpumem": 100, "gpucores": 60}, {"gpumem": 9000}],
    ids=str,
)
@pytest.mark.parametrize("annotations", [{}, *ANNOTATIONS], ids=str)
@pytest.mark.parametrize("policy", ["spread", "topology-aware"])
def test_ordinary_refusals_are_told_without_a_walk(
    asked: dict[str, Any], annotations: dict[str, str], policy: str
) -> None:
    """One device of a Pod that finds none: every Node's cause is told, so that none has to be tried."""
    nodes = [a_node(name, a_device(f"GPU-{n}-0"), a_device(f"GPU-{n}-1", numa=1)) for n, name in enumerate(NAMES)]
    cluster = a_cluster(*nodes)
    for n, name in enumerate(NAMES):
        shares = f"GPU-{n}-0,NVIDIA,8000,50:GPU-{n}-1,NVIDIA,8000,50:;"
        cluster.put_pod(a_pod(f"p{n}", node=name, allocated=shares))
    request = a_request(a_pod("ask", a_container(gpu=1, **asked), annotations=annotations), device=policy)

    assert tried(cluster, request) == told(cluster, request)


def test_causes_follow_a_node_that_changes() -> None:
    """A device that falls ill, is cordoned, or comes back is told as what it is now."""
    cluster, request = a_cluster(), a_request(a_pod("ask", a_container(gpu=1, gpumem=20000)))
    texts = []
    for healthy, cordoned in ((True, ""), (False, ""), (True, "GPU-0-0"), (True, "")):
        node = a_node("n0", a_device("GPU-0-0", healthy=healthy), hami_io__device_cordon=cordoned)
        cluster.put_node(node)
        texts.append(told(cluster, request)["n0"].text)

    assert [
        "1/1 CardInsufficientMemory",
        "1/1 CardNotHealth",
        "1/1 CardCordoned",
        "1/1 CardInsufficientMemory",
    ] == texts


def test_pod_that_asks_for_nothing_is_refused_by_no_node() -> None:
    """There is no container to look at."""
    assert {} == told(a_cluster(a_node("n0", a_device("GPU-0-0"))), a_request(a_pod("ask", a_container())))
