"""
Watch what admission depends on: quotas, the Pods they count, and the webhook's registration.

Pods are watched only once a quota limits a managed resource: most clusters have no such quota. Must never write.
Neighbours: `hamicommon.runtime.api.kube` lists and watches, `quota` keeps what arrives, `registration` reads
conditions.
"""

import asyncio
from collections.abc import Collection

import structlog
from prometheus_client import CollectorRegistry, Gauge

from hami_webhook.decide.quota import Quotas
from hami_webhook.decide.registration import left_out
from hamicommon.model import Object
from hamicommon.pod.containers import NOT_ENDED
from hamicommon.runtime.api.kube import Kube, Reflector
from hamicommon.wire.errors import DecodeError

_BOUND_AND_ALIVE = f"spec.nodeName!=,{NOT_ENDED}"

logger = structlog.get_logger()


class QuotaWatch:
    """Keeps a `Quotas` in step with the API server."""

    def __init__(self, kube: Kube, quotas: Quotas, unapplied: Gauge) -> None:
        """Deliver to *quotas*, and set *unapplied* to the number of quotas without effect, once `run` is awaited."""
        self._quotas = quotas
        self._unapplied = unapplied
        self._reported: frozenset[str] = frozenset()
        """Quotas without effect that were logged."""
        self._has_limits = asyncio.Event()
        self._quota_reflector = Reflector(
            kube,
            "/api/v1/resourcequotas",
            replace=self._replace_quotas,
            upsert=self._put_quota,
            delete=self._drop_quota,
        )
        self._pod_reflector = Reflector(
            kube,
            "/api/v1/pods",
            field_selector=_BOUND_AND_ALIVE,
            replace=self._replace_pods,
            upsert=self._put_pod,
            delete=quotas.drop_pod,
        )

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._quota_reflector.run())
            await self._has_limits.wait()
            group.create_task(self._pod_reflector.run())

    def _replace_quotas(self, quotas: list[Object]) -> None:
        self._quotas.replace_quotas(quotas)
        self._report()

    def _put_quota(self, quota: Object) -> None:
        self._quotas.put_quota(quota)
        self._report()

    def _drop_quota(self, quota: Object) -> None:
        self._quotas.drop_quota(quota)
        self._report()

    def _report(self) -> None:
        """Start to watch Pods if a limit exists, and log each quota without effect once."""
        if self._quotas.has_limits:
            self._has_limits.set()
        unapplied = self._quotas.unapplied
        self._unapplied.set(len(unapplied))
        for name in sorted(unapplied.keys() - self._reported):
            logger.warning("A quota with scopes limits no managed resource", quota=name, resources=unapplied[name])
        self._reported = frozenset(unapplied)

    def _replace_pods(self, pods: list[Object]) -> None:
        self._quotas.forget_pods()
        for pod in pods:
            self._put_pod(pod)

    def _put_pod(self, pod: Object) -> None:
        try:
            self._quotas.put_pod(pod)
        except DecodeError as error:
            metadata = pod.get("metadata", {})
            name = f"{metadata.get('namespace')}/{metadata.get('name')}"
            logger.warning("Pod's grant not counted against its quota", pod=name, error=str(error))


def unapplied_gauge(registry: CollectorRegistry) -> Gauge:
    """Return the gauge of the quotas without effect that `QuotaWatch` finds."""
    return Gauge(
        "hami_webhook_unapplied_quotas",
        "ResourceQuotas that name managed resources and limit none of them, because they have scopes.",
        registry=registry,
    )


def left_out_gauge(registry: CollectorRegistry) -> Gauge:
    """Return the gauge of the resources that `RegistrationWatch` finds missing."""
    return Gauge(
        "hami_webhook_unasked_resources",
        "Managed resources that the conditions of the webhook's registration leave out.",
        registry=registry,
    )


class RegistrationWatch:
    """Reports the managed resources that the webhook's registration leaves out."""

    def __init__(self, kube: Kube, name: str, resource_names: Collection[str], gauge: Gauge) -> None:
        """Compare the MutatingWebhookConfiguration *name* with *resource_names*, once `run` is awaited."""
        self._name = name
        self._gauge = gauge
        self._resource_names = resource_names
        self._configuration: Object | None = None
        """Empty if it does not exist; None before that is known."""
        self._reported: tuple[str, ...] = ()
        """Missing resources that were logged."""
        self._reflector = Reflector(
            kube,
            "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
            field_selector=f"metadata.name={name}",
            replace=lambda found: self._see(found[0] if found else {}),
            upsert=self._see,
            delete=lambda _: self._see({}),
        )

    async def run(self) -> None:
        """Watch until cancelled."""
        await self._reflector.run()

    def manage(self, resource_names: Collection[str]) -> None:
        """Compare it with *resource_names* from now on."""
        self._resource_names = resource_names
        self._report()

    def _see(self, configuration: Object) -> None:
        self._configuration = configuration
        self._report()

    def _report(self) -> None:
        if self._configuration is None:
            return
        missing = left_out(self._configuration, self._resource_names)
        self._gauge.set(len(missing))
        if missing and missing != self._reported:
            logger.warning("The registration leaves out resources", name=self._name, resources=missing)
        self._reported = missing
