"""
The promises of a share, on a Node of kind `dra`, to Pods that ask by ResourceClaims.

The tests are those of other modules, and the cluster makes claims of what their Pods ask for by resources. Their other
promises are of resources only: a claim cannot ask for a percentage, and the kubelet gives no replicas.
"""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager

import pytest
import pytest_asyncio

from controlplane import nvidia
from harness.claims import is_new_enough
from harness.cluster import Cluster, ClusterOf, Settings
from harness.clusters.claiming import ClaimingCluster, claiming_nodes
from harness.clusters.real import RealCluster
from harness.isolation import own_namespace
from promises.failures.test_kubernetes_moves_pods import test_node_serves_its_grants_again_after_a_power_cut
from promises.failures.test_when_a_card_fails import test_one_lost_card_leaves_seven
from promises.shares.test_identity import (
    test_container_restarted_by_the_kubelet_has_the_same_share,
    test_init_container_that_shares_replica_ids_with_the_main_one_has_its_own_share,
    test_pod_with_a_device_only_in_its_init_container_is_served,
)
from promises.shares.test_share_is_exact import (
    test_allocation_beyond_the_share_fails_and_the_neighbour_continues,
    test_container_loads_the_library_by_itself,
    test_container_sees_its_share_as_the_size_of_the_device,
    test_each_of_two_unequal_devices_has_its_own_limit,
    test_every_container_of_a_pod_has_its_own_share,
    test_share_in_mib_and_percent_is_granted_and_in_the_environment,
    test_two_devices_in_one_container_are_different_and_both_limited,
)
from testbed.driver.hardware import FakeNode

__all__ = [
    "test_allocation_beyond_the_share_fails_and_the_neighbour_continues",
    "test_container_loads_the_library_by_itself",
    "test_container_restarted_by_the_kubelet_has_the_same_share",
    "test_container_sees_its_share_as_the_size_of_the_device",
    "test_each_of_two_unequal_devices_has_its_own_limit",
    "test_every_container_of_a_pod_has_its_own_share",
    "test_init_container_that_shares_replica_ids_with_the_main_one_has_its_own_share",
    "test_node_serves_its_grants_again_after_a_power_cut",
    "test_one_lost_card_leaves_seven",
    "test_pod_with_a_device_only_in_its_init_container_is_served",
    "test_share_in_mib_and_percent_is_granted_and_in_the_environment",
    "test_two_devices_in_one_container_are_different_and_both_limited",
]
"""The promises of exact shares, identity, unequal limits, init containers, restarts, reboot and a lost device."""

pytestmark = [pytest.mark.real_only, pytest.mark.timeout(300)]

GPUS = (
    *FakeNode.of("claims-small", "Tesla T4", 16384, 1).gpus,
    *FakeNode.of("claims-large", "NVIDIA A100-SXM4-40GB", 40960, 1).gpus,
)
"""Two unequal devices."""
NODE = FakeNode("node-claims", GPUS, nvidia.OPERATOR.name)
ITS = Settings(driver_root=nvidia.DRIVER_ROOT)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def of_claims(real_cluster: RealCluster) -> AsyncIterator[ClaimingCluster]:
    """A cluster whose Pods all run on one Node of kind `dra`."""
    if not is_new_enough(real_cluster.control_plane.kubernetes):
        pytest.skip("devices are shared by claims since Kubernetes 1.36")
    async with claiming_nodes(real_cluster, (NODE,), ITS) as cluster:
        yield cluster


@pytest_asyncio.fixture(loop_scope="session")
async def cluster(of_claims: ClaimingCluster) -> AsyncIterator[Cluster]:
    """The cluster, as every test of this module gets it."""
    async with own_namespace(of_claims):
        yield of_claims


@pytest.fixture
def mixed(cluster: Cluster) -> Cluster:
    """The same, because its Node has unequal devices."""
    return cluster


@pytest.fixture
def cluster_of(of_claims: ClaimingCluster) -> ClusterOf:
    """A function that makes the cluster with another Node of kind `dra`."""

    def made(nodes: tuple[FakeNode, ...], settings: Settings) -> AbstractAsyncContextManager[Cluster]:
        return claiming_nodes(of_claims, nodes, settings)

    return made
