"""
Keep three things in step: the Secret that holds the certificate, the bundle in the webhook configuration, and what is
served.

Every replica does so. Watches only say that something changed: each round reads both objects, decides, and writes under
the resourceVersion it read, so that of two replicas one wins and the other finds the winner's. The order is Secret,
bundle, server; killed anywhere in between, the next round goes on from there.
Must never serve what the published bundle does not vouch for.
Neighbours: `renewal` decides, `hamicommon.runtime.tls` serves.
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
from hamicommon.runtime.kube import Conflict, Kube, KubeError, Object, Reflector
from hamicommon.runtime.reflector import Backoff
from hamicommon.runtime.tls import Certificate

CHECK_SECONDS = 15.0
"""How often a round is made when nothing seems to change: for the clock, and for a watch that lost something."""
BACKOFF_SECONDS = (0.25, 5.0)
"""First and longest pause after a round that wrote or failed, so that two who undo each other's work do it slowly."""

logger = structlog.get_logger()


class CertificateMetrics:
    """What is told of the certificate, whoever made it."""

    def __init__(self, registry: CollectorRegistry, certificate: Certificate) -> None:
        """Register the metrics."""
        expiry = Gauge(
            "hami_webhook_certificate_expiry_timestamp_seconds",
            "When the certificate that is served ends, 0 while none is.",
            registry=registry,
        )
        expiry.set_function(lambda: _expiry_seconds(certificate.chain))
        self.authority_expiry = Gauge(
            "hami_webhook_authority_expiry_timestamp_seconds",
            "When the authority that signs the certificate ends, 0 while there is none of ours.",
            registry=registry,
        )
        self.writes = Counter(
            "hami_webhook_certificate_writes",
            "Writes that kept the certificate: of the Secret, of the bundle in the webhook configuration.",
            ["object"],
            registry=registry,
        )
        self.faults = Counter(
            "hami_webhook_certificate_faults", "Entries of the Secret that could not be used.", registry=registry
        )
        for name in ("secret", "configuration"):
            self.writes.labels(name)


class CertificateLoop:
    """Keeps *certificate* from a Secret and published in a MutatingWebhookConfiguration."""

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
        """Serve *names* from *secret* (`namespace/name`), published in *configuration*, once `run` is awaited."""
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
        self._problem = "not looked at yet"
        self._faults_seen = ""

    def unready(self) -> str | None:
        """Return why clients cannot be sure to be served; None when they can."""
        if not self._certificate.chain:
            return f"no certificate is served yet: {self._problem}"
        end = pki.read_bundle(self._certificate.chain)[0].not_valid_after_utc
        if datetime.now(UTC) >= end:
            return f"the certificate served ended {end:%Y-%m-%dT%H:%M:%SZ}: {self._problem}"
        if not self._is_published:
            return f"{self._configuration.name} does not vouch for the certificate served: {self._problem}"
        return None

    async def run(self) -> None:
        """Keep until cancelled."""
        async with asyncio.TaskGroup() as group:
            for place in (self._secret, self._configuration):
                group.create_task(self._doorbell(place).run())
            group.create_task(self._keep())

    def _doorbell(self, place: "_Place") -> Reflector:
        """Return what asks for a round whenever the object at *place* changes."""

        def ring(_: object) -> None:
            self._changed.set()

        selector = f"metadata.name={place.name}"
        return Reflector(
            _Unlisted(self._kube), place.collection, field_selector=selector, replace=ring, upsert=ring, delete=ring
        )

    async def _keep(self) -> None:
        """Make rounds; after one that wrote or failed wait, longer and longer until nothing happens for a while."""
        backoff = Backoff(*BACKOFF_SECONDS)
        while True:
            self._changed.clear()
            try:
                wrote = await self._round()
            except KubeError as error:
                self._say(error)
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

    def _say(self, error: KubeError) -> None:
        self._problem = str(error)
        if isinstance(error, Conflict):
            logger.info("Another replica was faster, reading again", error=str(error))
        else:
            logger.warning("Certificate not kept, trying again", error=str(error))

    async def _round(self) -> bool:
        """Bring Secret, bundle and server to where they should be, in this order; return whether that took a write."""
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
        is_stale = _webhooks_without(configuration, found.bundle)
        if is_stale:
            published = _published(await self._publish(configuration, found.bundle))
        self._serve(found, published, now)
        return renewed is not None or is_stale

    def _read(self, secret: Object) -> Material:
        found, faults = renewal.read_material(secret.get("data") or {})
        version = secret["metadata"]["resourceVersion"]
        if faults and version != self._faults_seen:
            self._faults_seen = version
            self._metrics.faults.inc(len(faults))
            logger.warning("Secret holds what cannot be used", secret=self._secret.path, faults=list(faults))
        return found

    async def _store(self, secret: Object, renewed: renewal.Renewal) -> None:
        data = {**(secret.get("data") or {}), **renewal.secret_data(renewed.material)}
        await self._kube.replace(self._secret.path, {**secret, "data": data})
        self._metrics.writes.labels("secret").inc()
        logger.info("Certificate renewed", secret=self._secret.path, reason=renewed.reason)

    async def _publish(self, configuration: Object, bundle: Bundle) -> Object:
        """Set the bundle of every webhook and return the configuration as it is then."""
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
        """Serve from *found* if clients accept it; go on with what is served otherwise."""
        assert found.authority is not None
        assert found.serving is not None
        self._metrics.authority_expiry.set(found.authority.certificate.not_valid_after_utc.timestamp())
        if not renewal.is_servable(found, published, now):
            self._problem = f"{self._configuration.name} has no webhook that vouches for it"
            return
        self._held, self._is_published = found, True
        if self._certificate.chain != found.serving.certificate_pem:
            self._certificate.take(found.serving.certificate_pem, found.serving.key_pem)
            end = found.serving.certificate.not_valid_after_utc
            logger.info("Certificate served", names=pki.names_of(found.serving.certificate), end=end)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where one object is."""

    collection: str
    name: str

    @property
    def path(self) -> str:
        return f"{self.collection}/{self.name}"


class _Unlisted:
    """A collection that is watched from now on and never listed: whoever may see one object only may not list."""

    def __init__(self, kube: Kube) -> None:
        self.watch = kube.watch

    async def pages(self, path: str, **query: str | int) -> AsyncIterator[tuple[list[Object], str]]:
        """Yield nothing and no resourceVersion, which has the watch begin with what there is."""
        yield [], ""


def _published(configuration: Object) -> Bundle:
    """Return the authorities that every webhook of *configuration* trusts."""
    bundles = [_bundle(webhook) for webhook in configuration.get("webhooks") or ()]
    return (
        tuple(authority for authority in bundles[0] if all(authority in other for other in bundles)) if bundles else ()
    )


def _webhooks_without(configuration: Object, bundle: Bundle) -> bool:
    """Return whether a webhook of *configuration* trusts anything but *bundle*."""
    return any(_bundle(webhook) != bundle for webhook in configuration.get("webhooks") or ())


def _bundle(webhook: dict[str, Any]) -> Bundle:
    """Return the authorities *webhook* trusts; what cannot be read is none."""
    try:
        return pki.read_bundle(base64.b64decode(webhook["clientConfig"].get("caBundle") or ""))
    except (CertificateError, ValueError):
        return ()


def _expiry_seconds(chain: bytes) -> float:
    return pki.read_bundle(chain)[0].not_valid_after_utc.timestamp() if chain else 0.0
