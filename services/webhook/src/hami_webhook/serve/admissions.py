"""
Decide on each review by the device config in force, and follow that config while it changes.

Neighbours: `hami_webhook.decide.admission` decides, `hami_webhook.adapters.kube` delivers quotas and what is held.
"""

import asyncio

from prometheus_client import Gauge

from hami_webhook.adapters.kube import QuotaWatch, RegistrationWatch
from hami_webhook.config import Config
from hami_webhook.decide.admission import Admission, Outcome, Policy, admit
from hami_webhook.decide.quota import Quotas
from hami_webhook.decide.review import Review
from hamicommon.config.device_config import DeviceConfig
from hamicommon.runtime.api.kube import Kube
from hamicommon.runtime.program.device_config import DeviceConfigFile


class Admissions:
    """Decides by the device config in force, and by what is used under quotas."""

    def __init__(self, config: Config, devices: DeviceConfig, unapplied: Gauge) -> None:
        """Decide by *devices* and the flags in *config*; *unapplied* counts the quotas that limit nothing."""
        self._config = config
        self._unapplied = unapplied
        self.take(devices)

    def take(self, devices: DeviceConfig) -> None:
        """Decide by *devices* from now on; the watch must deliver quotas and Pods again."""
        config = self._config
        enabled = devices.enabled(has_ascend=config.has_ascend, has_iluvatar=config.has_iluvatar)
        self.policy = Policy.of(
            enabled, config.scheduler_name, config.overwrite_default_scheduler, config.has_extended_resource
        )
        self.quotas = Quotas(self.policy.vendors)

    def watch(self, kube: Kube) -> QuotaWatch:
        """Return the watch that delivers quotas and Pods, for the device config in force."""
        return QuotaWatch(kube, self.quotas, self._unapplied)

    def decide(self, review: Review) -> Admission:
        """Return the decision on *review*; everything but the creation of a Pod is allowed."""
        if not review.is_pod_creation:
            return Admission(Outcome.NOT_ASKING)
        return admit(review.object, self.policy, review.namespace, self.quotas.of(review.namespace))


async def follow_device_config(
    devices: DeviceConfigFile, admissions: Admissions, kube: Kube | None, registration: RegistrationWatch | None
) -> None:
    """Keep *admissions* and *registration* in step with *devices*, and *admissions* with quotas, until cancelled."""
    async with asyncio.TaskGroup() as group:
        if registration is not None:
            group.create_task(registration.run())
        watch = _watch_quotas(group, kube, admissions)
        async for changed in devices.changes():
            admissions.take(changed)
            if registration is not None:
                registration.manage(admissions.policy.resource_names)
            if watch is not None:
                watch.cancel()
            watch = _watch_quotas(group, kube, admissions)


def _watch_quotas(group: asyncio.TaskGroup, kube: Kube | None, admissions: Admissions) -> asyncio.Task[None] | None:
    """Start the watch that delivers quotas and Pods to *admissions*; None without an API server."""
    return None if kube is None else group.create_task(admissions.watch(kube).run())
