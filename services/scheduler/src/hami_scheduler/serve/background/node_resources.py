"""
Follow what DeviceClasses map, and do what kube-scheduler needs then.

Nodes list the resource names that it looks for once a DeviceClass maps one of them. The DeviceClass of tokens is
written again when another one was deleted, because kube-scheduler forgets the mapping of all then. Without a
DeviceClass that maps one of our resources nothing is written. Only the leader writes. Neighbours:
`rules.node_resources` says what is missing, `rules.device_classes` what is mapped, `cluster_feed` reports Nodes,
`periodic` calls `review`.
Source: https://github.com/kubernetes/kubernetes/issues/141103
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import structlog

from hami_scheduler.errors import ApiRefusedError, ApiUnknownError
from hami_scheduler.rules.device_classes import mapped_resource, mapping_classes
from hami_scheduler.rules.node_resources import changes
from hami_scheduler.serve.kube.api import KubeApi
from hamicommon.dra.names import TOKEN_CLASS
from hamicommon.vendors import nvidia
from hamicommon.vendors.description import Vendor

logger = structlog.get_logger()


class NodeResources:
    """The extended resources that each Node lists, and the DeviceClasses that map some."""

    def __init__(
        self, api: KubeApi, vendors: Callable[[], Iterable[Vendor]], count_mapped: Callable[[str], None]
    ) -> None:
        """
        Know no Node yet; *vendors* returns those of the device config in force.

        *count_mapped* is called at each review with the name of the DeviceClass that maps the count of NVIDIA devices,
        empty if there is none.
        """
        self._api = api
        self._vendors = vendors
        self._count_mapped = count_mapped
        self._classes: set[str] | None = None
        """The DeviceClasses that mapped a resource at the last review; None before the first."""
        self._winner = ""
        """The DeviceClass that maps the count."""
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
            classes = await self._api.device_classes()
            vendors, mapped = tuple(self._vendors()), mapping_classes(classes)
            count = next((each.resource_names[0] for each in vendors if each.key == nvidia.KEY), "")
            self._see_winner(mapped.get(count, ""))
            mapping = {each["metadata"]["name"] for each in classes if mapped_resource(each)}
            if TOKEN_CLASS in mapping and (self._classes is None or self._classes - mapping):
                await self._api.touch_device_class(TOKEN_CLASS)
            self._classes = mapping
            known: dict[frozenset[tuple[str, str]], Mapping[str, str | None]] = {}  # Most Nodes list the same.
            for node, allocatable in list(self._allocatable.items()):
                listed = frozenset(allocatable.items())
                wanted = known.get(listed)
                if wanted is None:
                    wanted = known[listed] = changes(vendors, mapped.keys(), allocatable)
                if wanted:
                    await self._api.list_resources(node, wanted)
                    logger.info("A Node lists other resources, because of a DeviceClass", node=node, resources=wanted)
        except (ApiRefusedError, ApiUnknownError) as error:
            logger.warning("The resources that Nodes list cannot be reviewed", error=str(error))

    def _see_winner(self, winner: str) -> None:
        """Take which DeviceClass maps the count of NVIDIA devices now."""
        if winner != self._winner and winner not in ("", TOKEN_CLASS):
            logger.warning(
                "A DeviceClass maps the count of NVIDIA devices to devices of another driver, and is the newest: Nodes "
                "with ResourceClaims of ours take no Pod that asks by resources; delete it, or take away its mapping",
                device_class=winner,
            )
        self._winner = winner
        self._count_mapped(winner)
