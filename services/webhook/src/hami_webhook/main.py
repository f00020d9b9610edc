"""
Put the webhook together: settings, the decision, the servers, its certificate, and the watches behind quotas.

The API server is optional with a certificate that is given: without it, or before the first list, quotas are left to
the scheduler, and Pods are admitted all the same.
"""

import asyncio
import sys
from contextlib import AsyncExitStack

import structlog
from prometheus_client import CollectorRegistry, Gauge

from hami_webhook import __version__
from hami_webhook.admission import Admission, Outcome, Policy, admit
from hami_webhook.config import NAME, Config, read_config
from hami_webhook.http import webhook_application
from hami_webhook.kube import HoldingsWatch, RegistrationWatch, unapplied_gauge, unasked_gauge
from hami_webhook.quota import Holdings
from hami_webhook.review import Review
from hami_webhook.upkeep import Metrics as CertificateMetrics
from hami_webhook.upkeep import Upkeep
from hamicommon.config import ConfigError, DeviceConfig
from hamicommon.runtime import http, logs, process
from hamicommon.runtime.device_config import DeviceConfigFile
from hamicommon.runtime.kube import Kube, KubeConfigError
from hamicommon.runtime.tls import Certificate, FileCertificate

logger = structlog.get_logger()


def main() -> int:
    """Run `hami-webhook` and return its exit code."""
    try:
        config = read_config(sys.argv[1:])
    except ConfigError as error:
        return process.refuse(NAME, error)
    logs.configure(config.verbosity)
    return process.run(lambda: run(config), NAME)


async def run(config: Config) -> None:
    """
    Serve until cancelled, then finish the requests in progress.

    Raises:
        ConfigError: the device config is wrong.
        KubeConfigError: a certificate of our own is asked for, and there is no way to reach an API server.
        ServeError: an address is not usable.
        TlsError: the certificate's files are not usable.
    """
    for flag in config.without_effect:
        logger.warning("A flag has no effect", flag=flag)
    devices = DeviceConfigFile(config.device_config_file)
    registry = CollectorRegistry()
    admissions = Admissions(config, devices.config, unapplied_gauge(registry))
    registry.register(devices)
    async with AsyncExitStack() as stack:
        kube = await _connect(config, stack)
        certificate, upkeep = _tls(config, kube, registry)
        ready = upkeep.unready if upkeep else None
        app = webhook_application(admissions.decide, registry, ready)
        server = await http.serve(app, config.http_bind, certificate, flag="--http_bind")
        stack.push_async_callback(server.close)
        tls = certificate is not None
        logger.info("Serving", version=__version__, address=config.http_bind, port=server.port, tls=tls)
        if config.metrics_bind_address:
            app = http.application(NAME, __version__, ready=ready, registry=registry)
            server = await http.serve(app, config.metrics_bind_address, flag="--metrics-bind-address")
            stack.push_async_callback(server.close)
            logger.info("Serving metrics", address=config.metrics_bind_address, port=server.port)
        registration = _registration(config, admissions.policy, kube, registry)
        await _keep_up(devices, admissions, kube, upkeep, registration)


class Admissions:
    """Decides by the device config in force, and by what is held under quotas."""

    def __init__(self, config: Config, devices: DeviceConfig, unapplied: Gauge) -> None:
        """Decide by *devices* and the flags in *config*; *unapplied* counts the quotas that limit nothing."""
        self._config = config
        self._unapplied = unapplied
        self.take(devices)

    def take(self, devices: DeviceConfig) -> None:
        """Decide by *devices* from now on; what is held has to be told anew."""
        config = self._config
        enabled = devices.enabled(has_ascend=config.enable_ascend, has_iluvatar=config.enable_iluvatar)
        self.policy = Policy.of(enabled, config.scheduler_name, config.overwrite_default_scheduler)
        self.holdings = Holdings(self.policy.vendors)

    def watch(self, kube: Kube) -> HoldingsWatch:
        """Return what tells of quotas and of what is held under them, until a device config is taken."""
        return HoldingsWatch(kube, self.holdings, self._unapplied)

    def decide(self, review: Review) -> Admission:
        """Return what becomes of what *review* is about; only the creation of Pods is for us."""
        if not review.is_pod_creation:
            return Admission(Outcome.NOT_ASKING)
        return admit(review.object, self.policy, review.namespace, self.holdings.of(review.namespace))


async def _keep_up(
    devices: DeviceConfigFile,
    admissions: Admissions,
    kube: Kube | None,
    upkeep: Upkeep | None,
    registration: RegistrationWatch | None,
) -> None:
    """Keep the certificate, and all else in step with the device config, *admissions* with quotas, too."""
    async with asyncio.TaskGroup() as group:
        if upkeep is not None:
            group.create_task(upkeep.run())
        if registration is not None:
            group.create_task(registration.run())
        watch = _watch(group, kube, admissions)
        async for changed in devices.changes():
            admissions.take(changed)
            if registration is not None:
                registration.manage(admissions.policy.resource_names)
            if watch is not None:
                watch.cancel()
            watch = _watch(group, kube, admissions)


def _registration(
    config: Config, policy: Policy, kube: Kube | None, registry: CollectorRegistry
) -> RegistrationWatch | None:
    """Return what looks at the registration; None where it is not named, or nobody can be asked."""
    if kube is None or not config.webhook_configuration:
        return None
    return RegistrationWatch(kube, config.webhook_configuration, policy.resource_names, unasked_gauge(registry))


def _watch(group: asyncio.TaskGroup, kube: Kube | None, admissions: Admissions) -> asyncio.Task[None] | None:
    """Have *admissions* told of quotas and of what is held under them."""
    return None if kube is None else group.create_task(admissions.watch(kube).run())


async def _connect(config: Config, stack: AsyncExitStack) -> Kube | None:
    """Return a client of the API server; None where there is no way to reach one and nothing depends on it."""
    try:
        kube = await Kube.connect(config.kubeconfig or None, f"{NAME}/{__version__}")
    except KubeConfigError as error:
        if config.tls_secret:
            raise
        logger.warning("Neither quotas nor the registration are looked at", reason=str(error))
        return None
    return await stack.enter_async_context(kube)


def _tls(config: Config, kube: Kube | None, registry: CollectorRegistry) -> tuple[Certificate | None, Upkeep | None]:
    """Return what is shown in handshakes, None for plain HTTP, and what keeps it where it is our own."""
    if config.cert_file:
        given = FileCertificate(config.cert_file, config.key_file)
        CertificateMetrics(registry, given)
        return given, None
    if kube is None or not config.tls_secret:
        return None, None
    own = Certificate()
    upkeep = Upkeep(
        kube,
        own,
        CertificateMetrics(registry, own),
        secret=config.tls_secret,
        configuration=config.webhook_configuration,
        names=config.tls_names,
    )
    return own, upkeep
