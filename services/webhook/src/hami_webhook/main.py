"""
Start the webhook: its settings, its servers, its certificate and its watches.

With a given certificate the API server is optional. Without an API server, and before the first list, Pods are admitted
without a check of quotas; the scheduler checks them in any case.
"""

import asyncio
import sys
from contextlib import AsyncExitStack
from functools import partial

import structlog
from prometheus_client import CollectorRegistry

from hami_webhook import __version__
from hami_webhook.adapters.http import webhook_application
from hami_webhook.adapters.kube import RegistrationWatch, left_out_gauge, unapplied_gauge
from hami_webhook.certificates.certificate_loop import CertificateLoop, CertificateMetrics
from hami_webhook.config import NAME, Config, read_config
from hami_webhook.decide.admission import Policy
from hami_webhook.serve.admissions import Admissions, follow_device_config
from hamicommon.config.device_config import ConfigError
from hamicommon.runtime.api.kube import Kube, KubeConfigError
from hamicommon.runtime.api.reviews import may_get
from hamicommon.runtime.program import logs, process
from hamicommon.runtime.program.device_config import DeviceConfigFile
from hamicommon.runtime.serving import http
from hamicommon.runtime.serving.access import Access
from hamicommon.runtime.serving.tls import Certificate, FileCertificate

logger = structlog.get_logger()


def main() -> int:
    """Run `hami-webhook` and return its exit code."""
    try:
        config = read_config(sys.argv[1:])
    except ConfigError as error:
        return process.refuse(NAME, error)
    logs.configure(config.log_verbosity)
    return process.run(lambda: run(config), NAME)


async def run(config: Config) -> None:
    """
    Serve until cancelled, then finish the requests in progress.

    Raises:
        ConfigError: the device config is wrong.
        KubeConfigError: the webhook shall make its certificate, and no API server can be reached.
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
        certificate, certificate_loop = _tls(config, kube, registry)
        ready = certificate_loop.not_ready if certificate_loop else None
        access = Access(partial(may_get, kube, "/metrics")) if kube and config.authenticates_scrapes else None
        app = webhook_application(admissions.decide, registry, ready, access)
        limit = config.max_connections
        server = await http.serve(app, config.http_bind, certificate, flag="--http_bind", max_connections=limit)
        stack.push_async_callback(server.close)
        tls = certificate is not None
        logger.info("Serving", version=__version__, address=config.http_bind, port=server.port, tls=tls)
        if config.metrics_bind_address:
            await _serve_metrics(config, ready, registry, access, stack)
        registration = _registration(config, admissions.policy, kube, registry)
        async with asyncio.TaskGroup() as group:
            if certificate_loop is not None:
                group.create_task(certificate_loop.run())
            group.create_task(follow_device_config(devices, admissions, kube, registration))


async def _serve_metrics(
    config: Config,
    ready: http.Probe | None,
    registry: CollectorRegistry,
    access: Access | None,
    stack: AsyncExitStack,
) -> None:
    app = http.application(NAME, __version__, ready=ready, registry=registry, access=access)
    address, limit = config.metrics_bind_address, config.max_connections
    server = await http.serve(app, address, flag="--metrics-bind-address", max_connections=limit)
    stack.push_async_callback(server.close)
    logger.info("Serving metrics", address=address, port=server.port)


def _registration(
    config: Config, policy: Policy, kube: Kube | None, registry: CollectorRegistry
) -> RegistrationWatch | None:
    """Return the watch on the registration; None if it is not named, or without an API server."""
    if kube is None or not config.webhook_configuration:
        return None
    return RegistrationWatch(kube, config.webhook_configuration, policy.resource_names, left_out_gauge(registry))


async def _connect(config: Config, stack: AsyncExitStack) -> Kube | None:
    """Return a client of the API server; None if there is none and nothing depends on it."""
    try:
        kube = await Kube.connect(config.kubeconfig or None, f"{NAME}/{__version__}")
    except KubeConfigError as error:
        if config.tls_secret or config.authenticates_scrapes:
            raise
        logger.warning("Quotas and the registration are not checked", reason=str(error))
        return None
    return await stack.enter_async_context(kube)


def _tls(
    config: Config, kube: Kube | None, registry: CollectorRegistry
) -> tuple[Certificate | None, CertificateLoop | None]:
    """Return the certificate to serve, None for plain HTTP, and its loop if the webhook makes it."""
    if config.cert_file:
        given = FileCertificate(config.cert_file, config.key_file)
        CertificateMetrics(registry, given)
        return given, None
    if kube is None or not config.tls_secret:
        return None, None
    own = Certificate()
    certificate_loop = CertificateLoop(
        kube,
        own,
        CertificateMetrics(registry, own),
        secret=config.tls_secret,
        configuration=config.webhook_configuration,
        names=config.tls_names,
    )
    return own, certificate_loop
