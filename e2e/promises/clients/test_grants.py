"""
`kubectl hami grants` compares each promise with what the container has.
"""

from harness.client import Answer, asked
from harness.cluster import Cluster
from harness.manifests import a_pod
from testbed.waiting import eventually


async def test_running_container_has_what_it_was_promised(cluster: Cluster) -> None:
    """Its limit is read from its region, by the monitor."""
    await cluster.create(a_pod("p", command=("gpu-hold", "--mib", "1000"), gpu=1, gpumem=3000, gpucores=25))
    await cluster.pod_in_phase("p", "Running")

    async def is_measured() -> Answer | None:
        found = await asked(cluster, "grants", "p", "-n", cluster.namespace)
        return found if " kept " in found.output else None

    answer = await eventually(is_measured, "the monitor has read the region", 30)

    [_, row] = answer.output.splitlines()
    namespace, pod, container, _, _, granted, limit, used = row.split()[:8]
    assert (cluster.namespace, "p", "main", "3000", "3000") == (namespace, pod, container, granted, limit)
    assert 1000 <= int(used) <= 3000
    assert (0, "") == (answer.code, answer.errors)
