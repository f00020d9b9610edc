"""
A mutating webhook that records its calls, and its configuration for an API server.
"""

import base64
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
from aiohttp import web

from conformance.peers.clusters import Peer
from conformance.peers.objects import Api, a_pod
from controlplane.pki import issue_serving
from hamicommon.model import Object
from minicluster.client import ApiError
from testbed.waiting import eventually

CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
SENTINEL = "sentinel.hami.io"
"""A webhook that sorts before all others. Once it is called, the others are called as well."""


@dataclass
class Webhook:
    """A webhook with settable answers."""

    url: str
    bundle: str
    """The caBundle of a configuration for it."""
    mute: str = ""
    """A URL that accepts connections and never answers."""
    reviews: list[Object] = field(default_factory=list)
    queries: list[str] = field(default_factory=list)
    announced: int = 0
    """The number of calls of the sentinel."""
    answer: Callable[[Object], Object] = lambda request: {"allowed": True}

    async def handle(self, request: web.Request) -> web.Response:
        """Answer one AdmissionReview in its version."""
        review = orjson.loads(await request.read())
        if request.path == "/sentinel":
            self.announced += 1
            answer: Object = {"allowed": True}
        else:
            self.reviews.append(review)
            self.queries.append(request.query_string)
            answer = self.answer(review["request"])
        response = {"uid": review["request"]["uid"], **answer}
        return web.json_response({"apiVersion": review["apiVersion"], "kind": "AdmissionReview", "response": response})

    def described(self, api: Api, name: str = "a.hami.io", path: str = "/mutate", **fields: Any) -> Object:
        """Return a webhook of a configuration, for new Pods of the test's namespace."""
        return {
            "name": name,
            "clientConfig": {"url": self.url + path, "caBundle": self.bundle},
            "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}],
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": api.namespace}},
            **fields,
        }

    async def install(self, api: Api, cleanup: list[str], *webhooks: Object) -> Object:
        """Create a configuration of *webhooks*, by default the described one, and wait until it takes effect."""
        name = f"c-{api.namespace}"
        cleanup.append(f"{CONFIGURATIONS}/{name}")
        first = self.described(api, SENTINEL, "/sentinel")
        body = {"metadata": {"name": name}, "webhooks": [first, *(webhooks or [self.described(api)])]}
        made: Object = await api.create(CONFIGURATIONS, body)

        async def is_asked() -> bool:
            # The answers of the other webhooks to this probe do not matter.
            with suppress(ApiError):
                await api.create(api.pods, a_pod("probe"), dryRun="All")
            return self.announced > 0

        await eventually(is_asked)
        self.reviews.clear()
        self.queries.clear()
        return made


@asynccontextmanager
async def webhook(peer: Peer, folder: Path) -> AsyncIterator[Webhook]:
    """Yield a webhook that the API server can reach. *folder* holds its certificate."""
    authority = issue_serving(folder)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    socket, mute = peer.listen(), peer.listen()
    url, mute_url = (f"https://127.0.0.1:{each.getsockname()[1]}" for each in (socket, mute))
    found = Webhook(url, base64.b64encode(authority).decode(), mute_url)
    application = web.Application()
    application.router.add_post("/{path}", found.handle)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.SockSite(runner, socket, ssl_context=context).start()
    try:
        yield found
    finally:
        await runner.cleanup()
        mute.close()
