"""
Serve POST /webhook: read an AdmissionReview, answer it, count and log the decision. The only module with aiohttp.

Must never answer a problem of a Pod with an HTTP error, because that is a decision.
"""

import time
from collections.abc import Callable

import structlog
from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, Histogram

from hami_webhook import __version__
from hami_webhook.config import NAME
from hami_webhook.decide.admission import Admission, Outcome
from hami_webhook.decide.review import Review, ReviewError, answer, read_review
from hamicommon.runtime.serving import http
from hamicommon.runtime.serving.access import Access

MAX_BODY_BYTES = 4 * 1024 * 1024
"""More than the largest object that an API server accepts (3 MiB)."""
_BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0, 5.0)

Decide = Callable[[Review], Admission]

logger = structlog.get_logger()


class AdmissionMetrics:
    """The metrics of decisions."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Register the metrics, each outcome at 0."""
        self.admissions = Counter(
            "hami_webhook_admissions", "Pods decided on, by outcome.", ["outcome"], registry=registry
        )
        self.rejected_bodies = Counter(
            "hami_webhook_rejected_bodies", "Requests that were not an AdmissionReview.", registry=registry
        )
        self.seconds = Histogram(
            "hami_webhook_admission_duration_seconds",
            "Time from a request's last byte to its decision, by outcome.",
            ["outcome"],
            buckets=_BUCKETS,
            registry=registry,
        )
        for outcome in Outcome:
            self.admissions.labels(outcome.value)
            self.seconds.labels(outcome.value)


def webhook_application(
    decide: Decide, registry: CollectorRegistry, ready: http.Probe | None = None, access: Access | None = None
) -> web.Application:
    """Return the application that answers each review with *decide*, and scrapes as *access* allows."""
    metrics = AdmissionMetrics(registry)

    async def handle(request: web.Request) -> web.StreamResponse:
        """Answer one review."""
        if request.content_type != "application/json":
            metrics.rejected_bodies.inc()
            text = f"Content-Type: must be application/json, not {request.content_type}\n"
            raise web.HTTPUnsupportedMediaType(text=text)
        body = await http.read_body(request)
        began = time.perf_counter()
        try:
            review = read_review(body)
        except ReviewError as error:
            metrics.rejected_bodies.inc()
            raise web.HTTPBadRequest(text=f"{error}\n") from error
        admission = decide(review)
        outcome = admission.outcome.value
        metrics.seconds.labels(outcome).observe(time.perf_counter() - began)
        metrics.admissions.labels(outcome).inc()
        _log(review, admission)
        return web.Response(body=answer(review, admission), content_type="application/json")

    app = http.application(
        NAME, __version__, ready=ready, registry=registry, access=access, max_body_bytes=MAX_BODY_BYTES
    )
    app.router.add_post("/webhook", handle)
    return app


def _log(review: Review, admission: Admission) -> None:
    facts = {"namespace": review.namespace, "pod": review.name, "uid": review.uid, "outcome": admission.outcome.value}
    if not admission.allowed:
        logger.info("Pod rejected", **facts, reason=admission.message, detail=list(admission.warnings))
    elif admission.patch:
        logger.info("Pod changed", **facts, paths=[operation["path"] for operation in admission.patch])
    else:
        logger.debug("Pod not changed", **facts)
