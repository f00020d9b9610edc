"""
The real cluster, whose last Node is of kind `dra`, and what the plugin has prepared on it.

A subclass owns how Pods ask: `claiming` by ResourceClaims of their own, `tokens` by resources.
"""

from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Self

from hamicommon.model import Object
from harness.claims import label_kind, slices
from harness.cluster import Settings
from harness.clusters.real import RealCluster
from harness.clusters.release import CHART, Value
from testbed.waiting import eventually

KIND_SECONDS = 90.0
"""The time limit for a Node to become one of another kind."""


class DraCluster(RealCluster):
    """A real cluster whose last Node is of kind `dra`."""

    values: ClassVar[Mapping[str, Value]]
    """The chart's values for such a Node."""
    spec_names: ClassVar[str]
    """A pattern for the names of the CDI specs of prepared claims."""

    @classmethod
    def of(cls, cluster: RealCluster) -> Self:
        """Return *cluster* as one whose Pods ask as they do here."""
        found = cls(cluster.control_plane, cluster.nodes, cluster.release)
        found.recorder, found.namespace = cluster.recorder, cluster.namespace
        return found

    @property
    def node(self) -> str:
        """The Node of kind `dra`."""
        return self.nodes[-1].name

    async def label(self, kind: str | None) -> None:
        """Say which kind the Node is to be."""
        await label_kind(self, self.node, kind)

    async def deploy(
        self, settings: Settings | None = None, values: Mapping[str, Value] | None = None, chart: Path = CHART
    ) -> None:
        """Install the chart as the real cluster does, with Nodes of kind `dra`."""
        await super().deploy(settings, {**self.values, **(values or {})}, chart)

    async def create_by_resources(self, manifest: Object) -> Object:
        """Create a Pod as it is."""
        return await super().create(manifest)

    @abstractmethod
    def prepared_mib(self) -> list[int]:
        """Return the memory of each share that is prepared on the Node, in MiB, in ascending order."""

    async def slices(self) -> list[Object]:
        """Return the ResourceSlices of the driver."""
        return await slices(self)

    def specs(self) -> list[str]:
        """Return the names of the CDI specs of prepared claims on the Node."""
        return sorted(path.name for path in self.cdi_folder(self.node).glob(self.spec_names))

    def leftovers(self) -> list[str]:
        """Return what is on the Node of claims."""
        return self.specs()

    async def nothing_left(self) -> None:
        """Wait until nothing of any claim is on the Node."""
        await eventually(lambda: not self.leftovers(), f"nothing of a claim is on {self.node}", KIND_SECONDS)
