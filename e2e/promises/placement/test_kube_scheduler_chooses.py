"""
If kube-scheduler chooses among all Nodes that fit, the ranks of the policy decide, and nothing is granted twice.
"""

import asyncio

from harness.cluster import ClusterOf, Settings
from harness.invariants import check, samples
from harness.manifests import SLEEP, a_pod
from testbed.driver.hardware import FakeNode

NODES = tuple(FakeNode.of(name, "NVIDIA A10", 24576, 2) for name in ("left", "right"))
CHOOSING = Settings(prioritize_weight=20)
POLICY = "hami.io/node-scheduler-policy"


async def test_node_is_the_one_that_the_policy_ranks_first(cluster_of: ClusterOf) -> None:
    """The filter returns both Nodes. With binpack the fuller one wins, although kube-scheduler prefers the emptier."""
    async with cluster_of(NODES, CHOOSING) as cluster:
        await cluster.create(a_pod("resident", command=SLEEP, gpu=1, gpumem=8000))
        full = (await cluster.pod_in_phase("resident", "Running"))["spec"]["nodeName"]
        (idle,) = {"left", "right"} - {full}

        question = a_pod("question", gpu=1, gpumem=2000)
        question["metadata"] |= {"namespace": cluster.namespace, "uid": "question"}
        answer = await cluster.ask_filter({"Pod": question, "NodeNames": ["left", "right"]})
        chosen = {}
        for policy in ("binpack", "spread"):
            await cluster.create(a_pod(policy, annotations={POLICY: policy}, command=SLEEP, gpu=1, gpumem=2000))
            chosen[policy] = (await cluster.pod_in_phase(policy, "Running"))["spec"]["nodeName"]

        asked = samples(await cluster.metrics("scheduler"))["hami_scheduler_prioritize_seconds_count"]
        assert ["left", "right"] == answer["NodeNames"]
        assert {"binpack": full, "spread": idle} == chosen
        assert 2 <= sum(count for _, count in asked)


async def test_pods_at_once_fill_every_device_without_reservations(cluster_of: ClusterOf) -> None:
    """Several Pods are sent to the same device. The last to bind is rejected and filtered again."""
    async with cluster_of(NODES, CHOOSING) as cluster:
        names = [f"p{number}" for number in range(8)]
        await asyncio.gather(*(cluster.create(a_pod(name, command=SLEEP, gpu=1, gpumem=12288)) for name in names))

        for name in names:
            await cluster.pod_in_phase(name, "Running", timeout_seconds=60)

        await check(cluster)
