"""
Pods that are there throughout, whatever happens to the services: what I6 promises them.
"""

from dataclasses import dataclass

from cluster import Cluster
from invariants import check, environments_of
from manifests import a_pod
from minicluster.client import Object

MODELS = {"on-a": "A100", "on-b": "T4"}


@dataclass(frozen=True)
class Residents:
    """One Pod on each Node, as it was when it began to run."""

    pods: list[Object]
    environments: dict[tuple[str, str], dict[str, str]]

    async def check_untouched(self, cluster: Cluster) -> None:
        """Hold a cluster at rest to its invariants, and itself to I6: same container, same environment, no restart."""
        await check(cluster)
        now = await running(cluster)
        assert [pod["status"]["containerStatuses"] for pod in self.pods] == [
            pod["status"]["containerStatuses"] for pod in now.pods
        ]
        assert self.environments == now.environments


async def settle(cluster: Cluster) -> Residents:
    """Make the residents, and return them once they run."""
    for name, model in MODELS.items():
        await cluster.create(a_pod(name, annotations={"nvidia.com/use-gputype": model}, gpu=1, gpumem=2000))
    return await running(cluster)


async def running(cluster: Cluster) -> Residents:
    """Return the residents as they are now, once all run."""
    pods = [await cluster.pod_in_phase(name, "Running") for name in MODELS]
    return Residents(pods, await environments_of(cluster))
