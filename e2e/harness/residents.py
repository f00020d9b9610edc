"""
Pods that keep running whatever happens to the services: the promise of I6.
"""

from dataclasses import dataclass

from hamicommon.model import Object
from harness.cluster import Cluster
from harness.invariants import check
from harness.load import kept_running

MODELS = {"on-a": "A100", "on-b": "T4"}


@dataclass(frozen=True)
class Residents:
    """One Pod on each Node, as it was at one moment."""

    containers: list[list[Object]]
    """The container statuses of each Pod."""
    environments: list[dict[str, str]]
    """The environment of each Pod's container."""

    async def check_untouched(self, cluster: Cluster) -> None:
        """Check the invariants and I6: same containers, same environments, no restart."""
        await check(cluster)
        now = await running(cluster)
        assert self.containers == now.containers
        assert self.environments == now.environments


async def settle(cluster: Cluster, timeout_seconds: float = 30.0) -> Residents:
    """Create the residents, and return them once they run, each within *timeout_seconds*."""
    for name, model in MODELS.items():
        await kept_running(cluster, name, timeout_seconds, {"nvidia.com/use-gputype": model})
    return await running(cluster)


async def running(cluster: Cluster) -> Residents:
    """Wait until all residents run, and return them."""
    pods = [await cluster.pod_in_phase(name, "Running") for name in MODELS]
    return Residents([pod["status"]["containerStatuses"] for pod in pods], [cluster.environment(pod) for pod in pods])
