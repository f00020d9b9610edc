"""
A share by tokens survives the end of kubelet and plugin, and ends with its Pod.

The tests are those of claims, with Pods that ask by resources. A Node that changes its kind keeps them, too.
"""

from collections.abc import AsyncIterator
from functools import partial

import pytest
import pytest_asyncio

from hamicommon.dra.names import DRA
from harness.clusters.tokens import TokenCluster
from promises.failures.test_claims_survive import (
    WAIT_SECONDS,
    clean_before_and_after,
    has_exactly,
    is_counted_once,
    node_says,
    quarter,
    test_part_killed_around_a_checkpoint_of_the_kubelet_costs_no_pod,
    test_plugin_may_be_away_for_20_and_for_40_seconds,
    test_pod_deleted_by_force_and_made_again_has_the_new_share,
    test_rolling_update_of_the_plugin_fails_no_pod,
    test_slice_is_back_within_two_seconds_of_a_restart_of_the_kubelet,
)
from promises.failures.test_kubelet_fails import runs
from testbed.waiting import eventually

__all__ = [
    "test_part_killed_around_a_checkpoint_of_the_kubelet_costs_no_pod",
    "test_plugin_may_be_away_for_20_and_for_40_seconds",
    "test_pod_deleted_by_force_and_made_again_has_the_new_share",
    "test_rolling_update_of_the_plugin_fails_no_pod",
    "test_slice_is_back_within_two_seconds_of_a_restart_of_the_kubelet",
]

pytestmark = [pytest.mark.real_only, pytest.mark.timeout(400)]


@pytest_asyncio.fixture(loop_scope="session")
async def cluster(token_cluster: TokenCluster) -> AsyncIterator[TokenCluster]:
    """The real cluster with a Node that gives tokens, on which no Pod is before and nothing of a claim after."""
    async with clean_before_and_after(token_cluster):
        yield token_cluster


async def test_node_becomes_one_with_a_device_plugin_after_its_last_pod_by_tokens(cluster: TokenCluster) -> None:
    """Until then the next plugin waits, because the kubelet cannot end such a Pod without the one of kind `dra`."""
    await cluster.create(quarter("p", 3000))
    before = await has_exactly(cluster, "p", 3000)

    await cluster.label(None)
    await eventually(partial(node_says, cluster, "1 ResourceClaims are prepared here"), "why it waits", WAIT_SECONDS)
    assert runs(before) == runs(await has_exactly(cluster, "p", 3000))

    await cluster.label(DRA)
    await cluster.node_ready(cluster.node, WAIT_SECONDS)
    await is_counted_once(cluster, 3000)
    await cluster.delete_pod("p")
    await cluster.nothing_left()
    await cluster.label(None)
    await cluster.node_ready(cluster.node, WAIT_SECONDS)
    await cluster.create(quarter("by-replica", 3000))
    assert "extendedResourceClaimStatus" not in (await has_exactly(cluster, "by-replica", 3000))["status"]
    await cluster.delete_pod("by-replica")

    await cluster.label(DRA)
    await cluster.forget_device_plugin()
