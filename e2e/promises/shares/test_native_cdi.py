"""
Containers get devices and driver by CDI alone, from a container runtime that knows nothing of NVIDIA.

The generator here is a stand-in, `testbed.driver.native_cdi`. Real clusters run NVIDIA's own: test_node_kinds.py.
"""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from harness.cluster import Cluster, Settings
from harness.clusters import embedded
from harness.manifests import a_container, a_pod
from testbed.driver.hardware import FakeNode
from testbed.driver.native_cdi import write_driver
from testbed.folders import short_folder
from testbed.waiting import eventually

pytestmark = pytest.mark.embedded_only

NODE = FakeNode.of("node-a", "Tesla T4", 16384, 2)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def native(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    """A cluster whose Node has a driver and a generator."""
    settings = Settings(plugin_flags=write_driver(tmp_path_factory.mktemp("driver"), embedded.FAKE_DRIVER))
    async with embedded.running(short_folder(), (NODE,), settings) as cluster:
        yield cluster


async def test_share_works_without_a_runtime_of_nvidias(native: Cluster) -> None:
    """CUDA sees the share, NVIDIA's runtime is told to add nothing, and the plugin sees that its edits were applied."""
    await native.create(a_pod("p", command=("gpu-hold", "--mib", "1000"), gpu=1, gpumem=3000))

    line = await native.log_line("allocated", "p")
    pod = await native.pod_in_phase("p", "Running")

    async def is_applied() -> bool:
        return 'hami_device_plugin_cdi_edits_total{result="applied"} 1.0' in await native.metrics("plugin-node-a")

    assert "allocated 1000 MiB of 3000 MiB visible" == line
    assert "void" == native.environment(pod)["NVIDIA_VISIBLE_DEVICES"]
    await eventually(is_applied, "the plugin sees that the edits were applied")


async def test_container_sees_the_devices_that_it_was_granted_and_no_others(native: Cluster) -> None:
    """By their device files. A container without a share has none."""
    show = ("sh", "-c", "cd /dev; echo found: $(ls -d nvidia?); sleep infinity")
    containers = [a_container("one", command=show, gpu=1, gpumem=1000), a_container("none", command=show)]
    await native.create(a_pod("q", containers=containers))

    one = await native.log_line("found:", "q", "one")
    none = await native.log_line("found:", "q", "none")

    assert one in {"found: nvidia0", "found: nvidia1"}
    assert "found:" == none.strip()
