"""
Follow what quotas are compared with: every ResourceQuota, and the Pods that hold devices.

Owns the watches. Pods are watched only from the moment some quota limits a managed resource: most clusters have none.
Neighbours: `hamicommon.runtime.kube` lists and watches, `quota` keeps what is delivered.
"""

import asyncio

import structlog

from hami_webhook.quota import Holdings
from hamicommon.runtime.kube import Kube, Object, Reflector
from hamicommon.wire.errors import DecodeError

_BOUND_AND_ALIVE = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"

logger = structlog.get_logger()


class HoldingsWatch:
    """Keeps a `Holdings` in step with the API server."""

    def __init__(self, kube: Kube, holdings: Holdings) -> None:
        """Deliver to *holdings* once `run` is awaited."""
        self._holdings = holdings
        self._pods_matter = asyncio.Event()
        self._quotas = Reflector(
            kube,
            "/api/v1/resourcequotas",
            replace=self._replace_quotas,
            upsert=self._put_quota,
            delete=holdings.drop_quota,
        )
        self._pods = Reflector(
            kube,
            "/api/v1/pods",
            field_selector=_BOUND_AND_ALIVE,
            replace=self._replace_pods,
            upsert=self._put_pod,
            delete=holdings.drop_pod,
        )

    async def run(self) -> None:
        """Follow until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._quotas.run())
            await self._pods_matter.wait()
            group.create_task(self._pods.run())

    def _replace_quotas(self, quotas: list[Object]) -> None:
        self._holdings.replace_quotas(quotas)
        self._look_whether_pods_matter()

    def _put_quota(self, quota: Object) -> None:
        self._holdings.put_quota(quota)
        self._look_whether_pods_matter()

    def _look_whether_pods_matter(self) -> None:
        if self._holdings.has_limits:
            self._pods_matter.set()

    def _replace_pods(self, pods: list[Object]) -> None:
        self._holdings.forget_pods()
        for pod in pods:
            self._put_pod(pod)

    def _put_pod(self, pod: Object) -> None:
        try:
            self._holdings.put_pod(pod)
        except DecodeError as error:
            metadata = pod.get("metadata", {})
            name = f"{metadata.get('namespace')}/{metadata.get('name')}"
            logger.warning("Pod's grant not counted against its quota", pod=name, error=str(error))
