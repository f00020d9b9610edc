"""
The three listeners: for kube-scheduler, for Prometheus, and for people.

Each closes, and finishes its requests, when the exit stack closes. Neighbours: `http` has the routes, `main` starts
them.
"""

from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack

import structlog
from prometheus_client import CollectorRegistry

from hami_scheduler import __version__
from hami_scheduler.config import NAME, Config
from hami_scheduler.serve.context import Context
from hami_scheduler.serve.explainer import Explainer
from hami_scheduler.serve.listen.http import BODY_LIMIT_BYTES, add_explanations, add_verbs
from hami_scheduler.serve.listen.metrics import Verbs
from hamicommon.runtime.serving.http import ServeError, application, serve
from hamicommon.runtime.serving.tls import FileCertificate

Ready = Callable[[], str | None]
"""Why the probe `/readyz` fails, None if it succeeds."""

logger = structlog.get_logger()


async def serve_verbs(
    config: Config, context: Context, registry: CollectorRegistry, ready: Ready, stack: AsyncExitStack
) -> int:
    """Listen for kube-scheduler and return the port."""
    app = application(NAME, __version__, ready=ready, registry=registry, max_body_bytes=BODY_LIMIT_BYTES)
    add_verbs(app, context, Verbs(registry).observe)
    tls = FileCertificate(config.cert_file, config.key_file) if config.cert_file else None
    server = await serve(app, config.http_bind, tls, flag="--http_bind")
    stack.push_async_callback(server.close)
    logger.info("Serving kube-scheduler", address=config.http_bind, port=server.port)
    return server.port


async def serve_metrics(address: str, registry: CollectorRegistry, ready: Ready, stack: AsyncExitStack) -> int | None:
    """Listen for Prometheus and return the port, None without an *address*; `/metrics` is at `--http_bind` too."""
    if not address:
        return None
    app = application(NAME, __version__, ready=ready, registry=registry)
    server = await serve(app, address, flag="--metrics-bind-address")
    stack.push_async_callback(server.close)
    logger.info("Serving metrics", address=address, port=server.port)
    return server.port


async def serve_explanations(
    address: str,
    explainer: Explainer,
    settings: Callable[[], Mapping[str, str]],
    registry: CollectorRegistry,
    ready: Ready,
    stack: AsyncExitStack,
) -> int | None:
    """Listen for people and return the port, None without an *address* or if it is taken: scheduling goes on."""
    if not address:
        return None
    app = application(NAME, __version__, ready=ready, registry=registry)
    add_explanations(app, explainer, settings)
    try:
        server = await serve(app, address, flag="--explain-bind-address")
    except ServeError as error:
        logger.warning("Explanations are not served", reason=str(error))
        return None
    stack.push_async_callback(server.close)
    logger.info("Serving explanations", address=address, port=server.port)
    return server.port
