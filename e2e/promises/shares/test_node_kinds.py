"""
The promises of a share, on a Node of each kind that NVIDIA's software makes.

The tests are those of other modules. Here each runs on one Node of each kind, while all other Nodes take no Pods.
"""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from controlplane import nvidia
from harness.cluster import Cluster, Settings
from harness.clusters.real import RealCluster
from harness.isolation import own_namespace
from promises.failures.test_kubernetes_moves_pods import test_node_serves_its_grants_again_after_a_power_cut
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
    "test_pod_with_a_device_only_in_its_init_container_is_served",
    "test_share_in_mib_and_percent_is_granted_and_in_the_environment",
]
"""The promises of exact shares, identity, unequal limits, init containers, restarts and reboot."""

pytestmark = [pytest.mark.real_only, pytest.mark.timeout(300)]

GPUS = (
    *FakeNode.of("kind-small", "Tesla T4", 16384, 1).gpus,
    *FakeNode.of("kind-large", "NVIDIA A100-SXM4-40GB", 40960, 1).gpus,
)
"""Two unequal devices. The Nodes' other software differs, and their devices do not."""


@pytest_asyncio.fixture(scope="module", loop_scope="session", params=nvidia.KINDS.values(), ids=lambda kind: kind.name)
async def kind(request: pytest.FixtureRequest, real_cluster: RealCluster) -> AsyncIterator[RealCluster]:
    """A cluster whose Pods all run on one Node of a kind."""
    kind: nvidia.NodeKind = request.param
    # As documented: a legacy runtime gives the services the driver, and a Node without CDI needs the lock.
    settings = Settings(
        allocation="auto" if kind.has_cdi else "lock", driver_root="" if kind.is_legacy else nvidia.DRIVER_ROOT
    )
    async with real_cluster.reshaped((FakeNode(f"node-{kind.name}", GPUS, kind.name),), settings) as cluster:
        yield cluster


@pytest_asyncio.fixture(loop_scope="session")
async def cluster(kind: RealCluster) -> AsyncIterator[Cluster]:
    """The cluster, as every test of this module gets it."""
    async with own_namespace(kind):
        yield kind


@pytest.fixture
def mixed(cluster: Cluster) -> Cluster:
    """The same, because its Node has unequal devices."""
    return cluster
