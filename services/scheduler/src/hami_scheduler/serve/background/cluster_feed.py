"""
Keep a `Cluster` current by list and watch, and replace it when the device config changes.

A new device config gives Nodes and Pods another meaning, so they are listed again into a new `Cluster`. The old one
decides until the new lists have arrived. Neighbours: `kube` lists and watches, `context` decides on the cluster.
"""

import asyncio
import time
from collections.abc import Callable

import structlog

from hami_scheduler.bind.locking import NodeLocks
from hami_scheduler.config import Config
from hami_scheduler.rules.vendors import vendor_rules
from hami_scheduler.serve.background.node_resources import NodeResources
from hami_scheduler.serve.kube.api import TrimmedPods
from hami_scheduler.state.cluster import Cluster, Report
from hamicommon.config.device_config import DeviceConfig
from hamicommon.dra.names import DRIVER
from hamicommon.model import Object
from hamicommon.runtime.api.kube import Kube, Reflector
from hamicommon.runtime.program.device_config import DeviceConfigFile

DEVICE_CONFIG_SECONDS = 5.0
"""How often the device config file is checked."""


logger = structlog.get_logger()


class ClusterFeed:
    """The cluster under the device config in force."""

    def __init__(
        self,
        config: Config,
        kube: Kube,
        devices: DeviceConfigFile,
        locks: NodeLocks,
        resources: NodeResources,
        report: Report,
    ) -> None:
        """Start with an empty cluster; *report* gets what cannot be used, *locks* and *resources* get every Node."""
        self._config = config
        self._kube = kube
        self._devices = devices
        self._locks = locks
        self._resources = resources
        self._report = report
        self._feed = self._feed_for(devices.config)

    @property
    def cluster(self) -> Cluster:
        """What is known of the cluster."""
        return self._feed.cluster

    @property
    def reflectors(self) -> dict[str, Reflector]:
        """What is followed, by collection."""
        return self._feed.reflectors

    async def synced(self) -> None:
        """Wait for the first lists."""
        await self._feed.synced()

    async def follow_config(self, use: Callable[[Cluster], None]) -> None:
        """Keep the cluster current until cancelled; after a change of the device config call *use* with the new one."""
        async with asyncio.TaskGroup() as group:
            following = group.create_task(self._feed.follow())
            async for devices in self._devices.changes(DEVICE_CONFIG_SECONDS):
                fresh = self._feed_for(devices)
                following_fresh = group.create_task(fresh.follow())
                await fresh.synced()
                fresh.cluster.take_over(self.cluster, time.monotonic())
                use(fresh.cluster)
                self._feed = fresh
                following.cancel()
                following = following_fresh
                logger.info("Deciding by the new device config", hash=self._devices.digest)

    def _feed_for(self, devices: DeviceConfig) -> "_Feed":
        config = self._config
        vendors = vendor_rules(devices.enabled(has_ascend=config.has_ascend, has_iluvatar=config.has_iluvatar))
        cluster = Cluster(vendors, self._report)
        return _Feed(self._kube, config, cluster, self._locks, self._resources)


class _Feed:
    """The cluster under one device config."""

    def __init__(
        self, kube: Kube, config: Config, cluster: Cluster, locks: NodeLocks, resources: NodeResources
    ) -> None:
        self.cluster = cluster
        self._locks = locks
        self._resources = resources
        self.reflectors = {
            # Ended Pods hold nothing. But a watch of living Pods tells one that ended neither
            # from one deleted by force, which its kubelet still counts, nor from one that its kubelet rejected.
            "pods": Reflector(
                TrimmedPods(kube),
                "/api/v1/pods",
                replace=lambda pods: cluster.replace_pods(pods, time.monotonic()),
                upsert=lambda pod: cluster.put_pod(pod, time.monotonic()),
                delete=lambda pod: cluster.drop_pod(pod, time.monotonic()),
            ),
            "nodes": Reflector(
                kube,
                "/api/v1/nodes",
                label_selector=config.node_label_selector,
                replace=self._replace_nodes,
                upsert=self._put_node,
                delete=self._drop_node,
            ),
            "resourcequotas": Reflector(
                kube,
                "/api/v1/resourcequotas",
                replace=cluster.quotas.replace,
                upsert=cluster.quotas.put,
                delete=cluster.quotas.drop,
            ),
            **(_claim_reflectors(kube, cluster) if config.has_dra else {}),
        }

    async def follow(self) -> None:
        async with asyncio.TaskGroup() as group:
            for reflector in self.reflectors.values():
                group.create_task(reflector.run())

    async def synced(self) -> None:
        for reflector in self.reflectors.values():
            await reflector.synced.wait()

    def _replace_nodes(self, nodes: list[Object]) -> None:
        self.cluster.replace_nodes(nodes)
        self._resources.replace(nodes)
        for node in nodes:
            self._observe_locks(node)

    def _put_node(self, node: Object) -> None:
        self.cluster.put_node(node)
        self._resources.observe(node)
        self._observe_locks(node)

    def _drop_node(self, node: Object) -> None:
        self.cluster.drop_node(node)
        self._resources.drop(node["metadata"]["name"])

    def _observe_locks(self, node: Object) -> None:
        metadata = node["metadata"]
        self._locks.observe(metadata["name"], metadata.get("annotations") or {})


def _claim_reflectors(kube: Kube, cluster: Cluster) -> dict[str, Reflector]:
    """Return what follows the ResourceClaims, and the ResourceSlices of our driver."""
    return {
        "resourceclaims": Reflector(
            kube,
            "/apis/resource.k8s.io/v1/resourceclaims",
            replace=cluster.claims.replace_claims,
            upsert=cluster.claims.put_claim,
            delete=cluster.claims.drop_claim,
        ),
        "resourceslices": Reflector(
            kube,
            "/apis/resource.k8s.io/v1/resourceslices",
            field_selector=f"spec.driver={DRIVER}",
            replace=cluster.claims.replace_slices,
            upsert=cluster.claims.put_slice,
            delete=cluster.claims.drop_slice,
        ),
    }
