"""
Keep the certificate's Secret, the bundle in the webhook configuration and the served certificate in step.

Every replica runs this loop. A watch only wakes it: each round reads both objects, decides, and writes with the
resourceVersion it read. So one of two replicas wins, and the other reads the winner's result. A round writes the
Secret, then the bundle, then changes the served certificate. If the process is killed in between, the next round
continues.
Must never serve a certificate that no published authority signed.
Neighbours: `renewal` decides, `hamicommon.runtime.serving.tls` serves.
"""

import asyncio
import base64
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge

from hami_webhook.certificates import pki, renewal
from hami_webhook.certificates.pki import Bundle, CertificateError, Names
from hami_webhook.certificates.renewal import Material
from hamicommon.model import Object
from hamicommon.runtime.api.kube import Conflict, Kube, KubeError, Reflector
from hamicommon.runtime.api.reflector import Backoff
from hamicommon.runtime.serving.tls import Certificate

CHECK_SECONDS = 15.0
"""Longest pause between two rounds: time passes, and a watch may miss a change."""
BACKOFF_SECONDS = (0.25, 5.0)
"""First and longest pause after a round that wrote or failed; it slows down replicas that undo each other's writes."""

logger = structlog.get_logger()


class CertificateMetrics:
    """The metrics of the served certificate, given or self-made."""

    def __init__(self, registry: CollectorRegistry, certificate: Certificate) -> None:
        expiry = Gauge(
            "hami_webhook_certificate_expiry_timestamp_seconds",
            "When the served certificate ends; 0 if none is served.",
            registry=registry,
        )
        expiry.set_function(
            lambda: pki.read_bundle(chain)[0].not_valid_after_utc.timestamp() if (chain := certificate.chain) else 0.0
        )
        self.authority_expiry = Gauge(
            "hami_webhook_authority_expiry_timestamp_seconds",
            "When the webhook's own authority ends; 0 if it has none.",
            registry=registry,
        )
        self.writes = Counter(
            "hami_webhook_certificate_writes",
            "Writes of the certificate, by object (secret, configuration).",
            ["object"],
            registry=registry,
        )
        self.problems = Counter(
            "hami_webhook_certificate_faults", "Entries of the Secret that could not be used.", registry=registry
        )
        for name in ("secret", "configuration"):
            self.writes.labels(name)


class CertificateLoop:
    """Keeps a certificate in a Secret, publishes its bundle, and serves it."""

    def __init__(
        self,
        kube: Kube,
        certificate: Certificate,
        metrics: CertificateMetrics,
        *,
        secret: str,
        configuration: str,
        names: Names,
    ) -> None:
        """
        Prepare the loop.

        It keeps a certificate for *names* in *secret* (`namespace/name`), publishes the bundle in the
        MutatingWebhookConfiguration *configuration*, and serves through *certificate*.
        """
        namespace, name = secret.split("/")
        self._secret = _Place(f"/api/v1/namespaces/{namespace}/secrets", name)
        self._configuration = _Place(
            "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations", configuration
        )
        self._kube = kube
        self._certificate = certificate
        self._metrics = metrics
        self._names = names
        self._changed = asyncio.Event()
        self._held = Material()
        self._is_published = False
        self._problem = "no round has ended"
        self._reported_version = ""
        """resourceVersion of the Secret whose problems were logged."""

    def not_ready(self) -> str | None:
        """Return why clients may reject the served certificate; None if they accept it."""
        if not self._certificate.chain:
            return f"no certificate is served yet: {self._problem}"
        end = pki.read_bundle(self._certificate.chain)[0].not_valid_after_utc
        if datetime.now(UTC) >= end:
            return f"the certificate served ended {end:%Y-%m-%dT%H:%M:%SZ}: {self._problem}"
        if not self._is_published:
            return f"{self._configuration.name} does not publish the served certificate's authority: {self._problem}"
        return None

    async def run(self) -> None:
        """Run until cancelled."""
        async with asyncio.TaskGroup() as group:
            for place in (self._secret, self._configuration):
                group.create_task(self._watch(place).run())
            group.create_task(self._run_rounds())

    def _watch(self, place: "_Place") -> Reflector:
        """Return the watch that starts a round when the object at *place* changes."""

        def wake(_: object) -> None:
            self._changed.set()

        selector = f"metadata.name={place.name}"
        return Reflector(
            _Unlisted(self._kube), place.collection, field_selector=selector, replace=wake, upsert=wake, delete=wake
        )

    async def _run_rounds(self) -> None:
        """Run a round after each change; pause after rounds that wrote or failed, longer each time."""
        backoff = Backoff(*BACKOFF_SECONDS)
        while True:
            self._changed.clear()
            try:
                wrote = await self._round()
            except KubeError as error:
                self._report(error)
                await asyncio.sleep(backoff.next_seconds(error.retry_after_seconds))
                continue
            if wrote:
                await asyncio.sleep(backoff.next_seconds())
                continue
            try:
                async with asyncio.timeout(CHECK_SECONDS):
                    await self._changed.wait()
            except TimeoutError:
                backoff.reset()

    def _report(self, error: KubeError) -> None:
        self._problem = str(error)
        if isinstance(error, Conflict):
            logger.info("Another replica wrote first, reading again", error=str(error))
        else:
            logger.warning("Certificate not updated, retrying", error=str(error))

    async def _round(self) -> bool:
        """Update the Secret, the bundle and the served certificate, in this order; return whether it wrote."""
        secret = await self._kube.get(self._secret.path)
        configuration = await self._kube.get(self._configuration.path)
        now = datetime.now(UTC)
        published = _published(configuration)
        self._is_published = renewal.is_servable(self._held, published, now)
        found = self._read(secret)
        renewed = renewal.renew(found, self._held, published, self._names, now)
        if renewed is not None:
            await self._store(secret, renewed)
            found = renewed.material
        is_stale = any(_bundle(webhook) != found.bundle for webhook in configuration.get("webhooks") or ())
        if is_stale:
            published = _published(await self._publish(configuration, found.bundle))
        self._serve(found, published, now)
        return renewed is not None or is_stale

    def _read(self, secret: Object) -> Material:
        found, problems = renewal.read_material(secret.get("data") or {})
        version = secret["metadata"]["resourceVersion"]
        if problems and version != self._reported_version:
            self._reported_version = version
            self._metrics.problems.inc(len(problems))
            logger.warning("Secret has unusable entries", secret=self._secret.path, problems=list(problems))
        return found

    async def _store(self, secret: Object, renewed: renewal.Renewal) -> None:
        data = {**(secret.get("data") or {}), **renewal.secret_data(renewed.material)}
        await self._kube.replace(self._secret.path, {**secret, "data": data})
        self._metrics.writes.labels("secret").inc()
        logger.info("Certificate renewed", secret=self._secret.path, reason=renewed.reason)

    async def _publish(self, configuration: Object, bundle: Bundle) -> Object:
        """Set the bundle of every webhook, and return the configuration that was written."""
        text = base64.b64encode(pki.bundle_pem(bundle)).decode()
        webhooks = [
            {**webhook, "clientConfig": {**webhook["clientConfig"], "caBundle": text}}
            for webhook in configuration["webhooks"]
        ]
        version = {"resourceVersion": configuration["metadata"]["resourceVersion"]}
        patch = {"metadata": version, "webhooks": webhooks}
        answer = await self._kube.merge_patch(self._configuration.path, patch)
        self._metrics.writes.labels("configuration").inc()
        logger.info("Bundle published", configuration=self._configuration.name, authorities=len(bundle))
        return answer

    def _serve(self, found: Material, published: Bundle, now: datetime) -> None:
        """Serve the certificate in *found* if clients accept it; otherwise keep the served one."""
        assert found.authority is not None
        assert found.serving is not None
        self._metrics.authority_expiry.set(found.authority.certificate.not_valid_after_utc.timestamp())
        if not renewal.is_servable(found, published, now):
            self._problem = f"{self._configuration.name} has no webhook that trusts its authority"
            return
        self._held, self._is_published = found, True
        if self._certificate.chain != found.serving.certificate_pem:
            self._certificate.take(found.serving.certificate_pem, found.serving.key_pem)
            end = found.serving.certificate.not_valid_after_utc
            logger.info("Certificate served", names=pki.names_of(found.serving.certificate), end=end)


@dataclass(frozen=True, slots=True)
class _Place:
    """The place of one object in the API."""

    collection: str
    name: str

    @property
    def path(self) -> str:
        return f"{self.collection}/{self.name}"


class _Unlisted:
    """A collection that is watched without a list: rights on one object do not include the right to list."""

    def __init__(self, kube: Kube) -> None:
        self.watch = kube.watch

    async def pages(self, path: str, **query: str | int) -> AsyncIterator[tuple[list[Object], str]]:
        """Yield no object and no resourceVersion; the watch then starts with the objects that exist."""
        yield [], ""


def _published(configuration: Object) -> Bundle:
    """Return the authorities in the bundle of every webhook of *configuration*."""
    bundles = [_bundle(webhook) for webhook in configuration.get("webhooks") or ()]
    return (
        tuple(authority for authority in bundles[0] if all(authority in other for other in bundles)) if bundles else ()
    )


def _bundle(webhook: dict[str, Any]) -> Bundle:
    """Return the bundle of *webhook*; none if it cannot be read."""
    try:
        return pki.read_bundle(base64.b64decode(webhook["clientConfig"].get("caBundle") or ""))
    except (CertificateError, ValueError):
        return ()
