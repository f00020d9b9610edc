"""
Follow what admission depends on: quotas and what is held under them, and the webhook's own registration.

Owns the watches. Pods are watched only from the moment some quota limits a managed resource: most clusters have none.
Must never write. Neighbours: `hamicommon.runtime.kube` lists and watches, `quota` keeps what is delivered,
`registration` reads conditions.
"""

import asyncio
from collections.abc import Collection

import structlog
from prometheus_client import CollectorRegistry, Gauge

from hami_webhook.decide.quota import Holdings
from hami_webhook.decide.registration import unasked
from hamicommon.runtime.kube import Kube, Object, Reflector
from hamicommon.wire.errors import DecodeError

_BOUND_AND_ALIVE = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"

logger = structlog.get_logger()


class HoldingsWatch:
    """Keeps a `Holdings` in step with the API server."""

    def __init__(self, kube: Kube, holdings: Holdings, unapplied: Gauge) -> None:
        """Deliver to *holdings*, and tell *unapplied* how many quotas limit nothing, once `run` is awaited."""
        self._holdings = holdings
        self._unapplied = unapplied
        self._told: frozenset[str] = frozenset()
        self._pods_matter = asyncio.Event()
        self._quotas = Reflector(
            kube,
            "/api/v1/resourcequotas",
            replace=self._replace_quotas,
            upsert=self._put_quota,
            delete=self._drop_quota,
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
        self._look()

    def _put_quota(self, quota: Object) -> None:
        self._holdings.put_quota(quota)
        self._look()

    def _drop_quota(self, quota: Object) -> None:
        self._holdings.drop_quota(quota)
        self._look()

    def _look(self) -> None:
        """See whether Pods matter now, and tell of each quota once that it limits nothing."""
        if self._holdings.has_limits:
            self._pods_matter.set()
        unapplied = self._holdings.unapplied
        self._unapplied.set(len(unapplied))
        for name in sorted(unapplied.keys() - self._told):
            logger.warning("A quota with scopes limits no managed resource", quota=name, resources=unapplied[name])
        self._told = frozenset(unapplied)

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


def unapplied_gauge(registry: CollectorRegistry) -> Gauge:
    """Return what counts the quotas that `HoldingsWatch` finds to limit nothing."""
    return Gauge(
        "hami_webhook_unapplied_quotas",
        "ResourceQuotas that name managed resources and limit none of them, because they have scopes.",
        registry=registry,
    )


def unasked_gauge(registry: CollectorRegistry) -> Gauge:
    """Return what counts the resources that `RegistrationWatch` finds left out."""
    return Gauge(
        "hami_webhook_unasked_resources",
        "Managed resources by which the API server does not know the Pods to ask about.",
        registry=registry,
    )


class RegistrationWatch:
    """Tells, as long as it is so, which managed resources the API server does not ask the webhook about."""

    def __init__(self, kube: Kube, name: str, resource_names: Collection[str], gauge: Gauge) -> None:
        """Hold the MutatingWebhookConfiguration *name* against *resource_names* once `run` is awaited."""
        self._name = name
        self._gauge = gauge
        self._resource_names = resource_names
        self._configuration: Object | None = None
        """Empty where it does not exist, None before that is known."""
        self._told: tuple[str, ...] = ()
        self._reflector = Reflector(
            kube,
            "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
            field_selector=f"metadata.name={name}",
            replace=lambda found: self._see(found[0] if found else {}),
            upsert=self._see,
            delete=lambda _: self._see({}),
        )

    async def run(self) -> None:
        """Follow until cancelled."""
        await self._reflector.run()

    def manage(self, resource_names: Collection[str]) -> None:
        """Hold it against *resource_names* from now on."""
        self._resource_names = resource_names
        self._look()

    def _see(self, configuration: Object) -> None:
        self._configuration = configuration
        self._look()

    def _look(self) -> None:
        if self._configuration is None:
            return
        missing = unasked(self._configuration, self._resource_names)
        self._gauge.set(len(missing))
        if missing and missing != self._told:
            logger.warning("Pods pass by, the registration leaves out resources", name=self._name, resources=missing)
        self._told = missing
