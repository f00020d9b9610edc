"""
Pods that are there throughout, whatever happens to the services: what I6 promises them.
"""

from dataclasses import dataclass

from harness.cluster import Cluster
from harness.invariants import check
from harness.load import kept_running
from minicluster.client import Object

MODELS = {"on-a": "A100", "on-b": "T4"}


@dataclass(frozen=True)
class Residents:
    """One Pod on each Node, as it was when it ran."""

    containers: list[list[Object]]
    """The containers' statuses, a list for each Pod."""
    environments: list[dict[str, str]]
    """What its container was told, for each Pod."""

    async def check_untouched(self, cluster: Cluster) -> None:
        """Hold a cluster at rest to its invariants, and itself to I6: same container, same environment, no restart."""
        await check(cluster)
        now = await running(cluster)
        assert self.containers == now.containers
        assert self.environments == now.environments


async def settle(cluster: Cluster) -> Residents:
    """Make the residents, and return them once they run."""
    for name, model in MODELS.items():
        await kept_running(cluster, name, annotations={"nvidia.com/use-gputype": model})
    return await running(cluster)


async def running(cluster: Cluster) -> Residents:
    """Return the residents as they are now, once all run."""
    pods = [await cluster.pod_in_phase(name, "Running") for name in MODELS]
    return Residents([pod["status"]["containerStatuses"] for pod in pods], [cluster.environment(pod) for pod in pods])
