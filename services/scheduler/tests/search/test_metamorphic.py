"""
What must not change a decision: other names, another order, and Nodes that nobody would choose.
"""

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hami_scheduler.search.filter import FilterResult, filter_nodes
from hamicommon.model import Object

from ..support.builders import a_cluster, a_container, a_device, a_node, a_pod, a_request
from ..support.hypothesis_profiles import profile

REGISTER = "hami.io/node-nvidia-register"
KINDS = [(10, 16384, 100), (4, 8192, 100), (2, 81559, 100)]


class Setting:
    """A cluster, its Pods and a question, drawn from a seed."""

    def __init__(self, seed: int, policy: str) -> None:
        draw = random.Random(seed)
        self.names = [f"n{i:02}" for i in range(8)]
        self.devices = {
            name: [
                a_device(f"{name}-{i}", index=i, numa=i // 2, count=count, memory_mib=memory, core_percent=cores)
                for i, (count, memory, cores) in enumerate(draw.choices(KINDS, k=draw.choice([1, 2, 4])))
            ]
            for name in self.names
        }
        self.pods = []
        for number in range(20):
            name = draw.choice(self.names)
            uuid = draw.choice(self.devices[name]).id
            share = f"{uuid},NVIDIA,{draw.choice([500, 4000])},{draw.choice([0, 20, 50])}:;"
            self.pods.append(a_pod(f"p{number}", node=name, allocated=share))
        container = a_container(
            gpu=draw.choice([1, 2]), gpumem=draw.choice([1000, 6000]), gpucores=draw.choice([0, 30])
        )
        self.request = a_request(a_pod("ask", container), node=policy)

    def nodes(self) -> list[Object]:
        """Return the Nodes."""
        return [a_node(name, *self.devices[name]) for name in self.names]

    def decide(self, nodes: list[Object], pods: list[Object], names: list[str]) -> FilterResult:
        """Return the decision in a cluster of *nodes* and *pods*."""
        cluster = a_cluster(*nodes)
        cluster.replace_pods(pods, 0.0)
        return filter_nodes(self.request, names, cluster.view)


settings_drawn = st.builds(Setting, st.integers(0, 10**6), st.sampled_from(["binpack", "spread"]))
pytestmark = pytest.mark.property


@given(drawn=settings_drawn)
@profile(60)
def test_names_mean_nothing_but_their_order(drawn: Setting) -> None:
    """Every Node, device and Pod under another name that sorts the same: the same decision under that name."""

    def renamed(found: Any) -> Any:
        return json.loads(json.dumps(found).replace('"n0', '"rack7-n0').replace("n0", "x-n0").replace('"p', '"zz-p'))

    before = drawn.decide(drawn.nodes(), drawn.pods, drawn.names)
    nodes, names = renamed([node["metadata"]["name"] for node in drawn.nodes()]), renamed(drawn.names)
    assert nodes == names

    again = [rename_node(node, renamed) for node in drawn.nodes()]
    after = drawn.decide(again, [rename_pod(pod, renamed) for pod in drawn.pods], names)

    assert (before.node and renamed(before.node), before.score) == (after.node, after.score)
    assert renamed(shares(before)) == shares(after)
    assert {renamed(name): why for name, why in before.refusal.failed_nodes.items()} == after.refusal.failed_nodes


def rename_node(node: Object, renamed: Any) -> Object:
    """Return *node* with itself and its devices renamed."""
    annotations = node["metadata"]["annotations"]
    devices = [{**device, "id": renamed(device["id"])} for device in json.loads(annotations[REGISTER])]
    name = renamed(node["metadata"]["name"])
    return {**node, "metadata": {"name": name, "annotations": {**annotations, REGISTER: json.dumps(devices)}}}


def rename_pod(pod: Object, renamed: Any) -> Object:
    """Return *pod* with itself, its Node and its devices renamed."""
    annotations = {key: renamed(text) for key, text in pod["metadata"]["annotations"].items()}
    metadata = {**pod["metadata"], "name": "zz-" + pod["metadata"]["name"], "annotations": annotations}
    return {**pod, "metadata": metadata, "spec": {**pod["spec"], "nodeName": renamed(pod["spec"]["nodeName"])}}


def shares(result: FilterResult) -> list[str]:
    """Return the devices a decision grants."""
    placed = result.placement.shares["NVIDIA"] if result.placement else ()
    return [share.uuid for container in placed for share in container]


@given(drawn=settings_drawn, seed=st.integers(0, 1000))
@profile(60)
def test_order_of_nodes_pods_and_candidates_means_nothing(drawn: Setting, seed: int) -> None:
    """kube-scheduler names Nodes in no order, and watches tell in any."""
    before = drawn.decide(drawn.nodes(), drawn.pods, drawn.names)
    draw = random.Random(seed)
    shuffled = [draw.sample(found, len(found)) for found in (drawn.nodes(), drawn.pods, drawn.names)]

    after = drawn.decide(*shuffled)  # type: ignore[arg-type]

    assert (before.node, before.placement, before.score) == (after.node, after.placement, after.score)
    assert before.refusal.failed_nodes == after.refusal.failed_nodes


@given(drawn=settings_drawn, seed=st.integers(0, 1000))
@profile(60)
def test_order_of_devices_decides_no_node(drawn: Setting, seed: int) -> None:
    """Which of equal devices is granted may differ; whether there is room, and which Node is best, does not."""
    before = drawn.decide(drawn.nodes(), drawn.pods, drawn.names)
    draw = random.Random(seed)
    for name, devices in drawn.devices.items():
        drawn.devices[name] = draw.sample(devices, len(devices))

    after = drawn.decide(drawn.nodes(), drawn.pods, drawn.names)

    assert (before.node, before.score, before.refusal.failed_nodes) == (
        after.node,
        after.score,
        after.refusal.failed_nodes,
    )


@given(drawn=settings_drawn)
@profile(60)
def test_node_that_is_not_better_changes_nothing(drawn: Setting) -> None:
    """An idle one is last under binpack; one without room is out of the question under any policy."""
    before = drawn.decide(drawn.nodes(), drawn.pods, drawn.names)
    full = a_node("zz-full", a_device("zz-full-0", memory_mib=10))
    more = (
        [full] if before.node is None or drawn.request.node_policy == "spread" else [full, a_node("zz", a_device("z"))]
    )

    after = drawn.decide([*drawn.nodes(), *more], drawn.pods, [*drawn.names, "zz-full", "zz"])

    assert (before.node, before.placement) == (after.node, after.placement)
