"""
Put the webhook together: settings, the decision, the servers, and the watches behind quotas.

The API server is optional: without it, or before the first list, quotas are left to the scheduler, and Pods are
admitted all the same.
"""

import asyncio
import sys
from dataclasses import replace

import structlog
from prometheus_client import CollectorRegistry

from hami_webhook import __version__
from hami_webhook.admission import Admission, Outcome, Policy, admit
from hami_webhook.config import NAME, Config, read_config
from hami_webhook.http import webhook_application
from hami_webhook.kube import HoldingsWatch
from hami_webhook.quota import Holdings
from hami_webhook.review import Review
from hamicommon.config import ConfigError, DeviceConfig
from hamicommon.runtime import http, logs, process
from hamicommon.runtime.device_config import read_device_config
from hamicommon.runtime.kube import Kube, KubeConfigError

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
        ServeError: an address or the certificate is not usable.
    """
    policy = Policy.of(_devices(config), config.scheduler_name, config.overwrite_default_scheduler)
    holdings = Holdings(policy.vendors)
    registry = CollectorRegistry()

    def decide(review: Review) -> Admission:
        if not review.is_pod_creation:
            return Admission(Outcome.NOT_ASKING)
        return admit(review.object, policy, review.namespace, holdings.of(review.namespace))

    tls = http.TlsFiles(config.cert_file, config.key_file) if config.cert_file else None
    server = await http.serve(webhook_application(decide, registry), config.http_bind, tls, flag="--http_bind")
    servers = [server]
    logger.info("Serving", version=__version__, address=config.http_bind, port=server.port, tls=tls is not None)
    try:
        if config.metrics_bind_address:
            metrics = http.application(NAME, __version__, registry=registry)
            servers.append(await http.serve(metrics, config.metrics_bind_address, flag="--metrics-bind-address"))
        await _follow_quotas(config, holdings)
    finally:
        await asyncio.gather(*(each.close() for each in servers))


def _devices(config: Config) -> DeviceConfig:
    """Return the device config without the vendors that are not enabled."""
    devices = read_device_config(config.device_config_file)
    return replace(
        devices,
        ascend=devices.ascend if config.enable_ascend else replace(devices.ascend, chips=()),
        iluvatars=devices.iluvatars if config.enable_iluvatar else (),
    )


async def _follow_quotas(config: Config, holdings: Holdings) -> None:
    """Keep *holdings* current until cancelled."""
    try:
        client = await Kube.connect(config.kubeconfig or None, f"{NAME}/{__version__}")
    except KubeConfigError as error:
        logger.warning("Quotas are not checked at admission", reason=str(error))
        await asyncio.Event().wait()
        return
    async with client:
        await HoldingsWatch(client, holdings).run()
