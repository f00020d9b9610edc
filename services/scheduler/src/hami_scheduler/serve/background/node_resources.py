"""
Let Nodes list the resource names that kube-scheduler looks for once a DeviceClass maps one of them.

Without such a DeviceClass it writes nothing. Only the leader writes. Neighbours: `rules.node_resources` says what is
missing, `cluster_feed` reports Nodes, `periodic` calls `review`.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import structlog

from hami_scheduler.errors import ApiRefusedError, ApiUnknownError
from hami_scheduler.rules.node_resources import changes
from hami_scheduler.serve.kube.api import KubeApi
from hamicommon.vendors.description import Vendor

logger = structlog.get_logger()


class NodeResources:
    """The extended resources that each Node lists."""

    def __init__(self, api: KubeApi, vendors: Callable[[], Iterable[Vendor]]) -> None:
        """Know no Node yet; *vendors* returns those of the device config in force."""
        self._api = api
        self._vendors = vendors
        self._allocatable: dict[str, Mapping[str, str]] = {}

    def observe(self, node: Mapping[str, Any]) -> None:
        """Take what a Node lists."""
        listed = (node.get("status") or {}).get("allocatable") or {}
        self._allocatable[node["metadata"]["name"]] = {name: value for name, value in listed.items() if "/" in name}

    def replace(self, nodes: Iterable[Mapping[str, Any]]) -> None:
        """Take all Nodes."""
        self._allocatable.clear()
        for node in nodes:
            self.observe(node)

    def drop(self, name: str) -> None:
        """Forget a Node."""
        self._allocatable.pop(name, None)

    async def review(self) -> None:
        """Write what each Node is missing. A failure is logged, and the next review tries again."""
        try:
            mapped = await self._api.mapped_resources()
            vendors = tuple(self._vendors())
            known: dict[frozenset[tuple[str, str]], Mapping[str, str | None]] = {}  # Most Nodes list the same.
            for node, allocatable in list(self._allocatable.items()):
                listed = frozenset(allocatable.items())
                wanted = known.get(listed)
                if wanted is None:
                    wanted = known[listed] = changes(vendors, mapped, allocatable)
                if wanted:
                    await self._api.list_resources(node, wanted)
                    logger.info("A Node lists other resources, because of a DeviceClass", node=node, resources=wanted)
        except (ApiRefusedError, ApiUnknownError) as error:
            logger.warning("The resources that Nodes list cannot be reviewed", error=str(error))
