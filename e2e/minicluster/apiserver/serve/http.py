"""
Answer HTTP requests.

Owns the way from a request to a verb, and from a result or an error to a response. Must never decide about objects.
Neighbours: `requests` reads requests; `verbs`, `subresources` and `lists` execute them.
"""

import logging
import time
from typing import Any

import orjson
from aiohttp import web

from hamicommon.model import Object
from minicluster.apiserver.admission.webhooks import USER
from minicluster.apiserver.api import discovery, errors, warnings
from minicluster.apiserver.api.resources import PODS, REVIEWS
from minicluster.apiserver.api.tables import partial, table
from minicluster.apiserver.api.warnings import WARNINGS
from minicluster.apiserver.serve.faults import PREFIX, DisconnectError, Faults
from minicluster.apiserver.serve.forwarding import PROXY, Forwarding
from minicluster.apiserver.serve.lists import list_body, page_of, watch_of
from minicluster.apiserver.serve.requests import (
    Target,
    body_of,
    is_dry_run,
    is_true,
    number_of,
    object_of,
    patch_of,
    patched,
    target_of,
)
from minicluster.apiserver.serve.subresources import Subresources
from minicluster.apiserver.serve.verbs import Verbs
from minicluster.apiserver.store.storage import Entry, Storage
from minicluster.apiserver.store.watch import Watch

HEALTH_PATHS = ("/healthz", "/livez", "/readyz")
JSON = "application/json"
BODY_LIMIT_BYTES = 3 * 1024 * 1024
WATCH_SECONDS = 1800.0
"""The duration of a watch without timeoutSeconds."""
BOOKMARK_SECONDS = 60.0
IDLE_CHECK_SECONDS = 5.0
"""The interval at which a watch without events checks its connection."""


class Running:
    """A watch with its connection."""

    def __init__(self, watch: Watch, request: web.BaseRequest) -> None:
        self._watch = watch
        self._request = request

    def end(self, how: str) -> None:
        """End it as `POST /minicluster/watches/drop` describes."""
        if how == "abort" and self._request.transport is not None:
            self._request.transport.abort()
        error = errors.too_old(0, self._watch.version).body() if how == "gone" else None
        self._watch.stop(orjson.dumps(error) if error else None)


class Handler:
    """The HTTP interface of the API server, as one callable for `aiohttp.web.Server`."""

    def __init__(
        self, storage: Storage, verbs: Verbs, subresources: Subresources, forwarding: Forwarding, faults: Faults
    ) -> None:
        self._storage = storage
        self._verbs = verbs
        self._subresources = subresources
        self._forwarding = forwarding
        self._faults = faults

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request, with what webhooks warn of."""
        warned: list[str] = []
        WARNINGS.set(warned)
        response = await self._answer(request)
        for header in warnings.headers(warned):
            response.headers.add(warnings.HEADER, header)
        return response

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request. Every error becomes a `Status`."""
        try:
            if request.body_exists:
                # A request that has arrived is carried out, also if its client is gone when a fault lets it go on.
                await request.read()
            is_lost = not request.path.startswith(PREFIX) and await self._faults.before(
                request.method, request.path_qs, _agent(request)
            )
            response = await self._route(request)
            if is_lost:
                raise DisconnectError
            return response
        except errors.StatusError as error:
            return _json(error.body(), error.code)
        except DisconnectError:
            if request.transport is not None:
                request.transport.abort()
            return web.Response()
        except web.HTTPRequestEntityTooLarge:
            text = f"Request entity too large: limit is {BODY_LIMIT_BYTES}"
            return _json(errors.StatusError(413, "RequestEntityTooLarge", text).body(), 413)
        except ConnectionError:
            return web.Response()
        except Exception as error:
            logging.exception("%s %s failed", request.method, request.path_qs)
            return _json(errors.internal(f"{type(error).__name__}: {error}").body(), 500)

    async def _route(self, request: web.BaseRequest) -> web.StreamResponse:
        path, method = request.path, request.method
        if path.startswith(PREFIX):
            content = await request.read()
            try:
                return _json(self._faults.handle(method, path, orjson.loads(content) if content else None))
            except orjson.JSONDecodeError as error:
                raise errors.bad_request(f"error decoding the body: {error}") from error
        if path.startswith(HEALTH_PATHS):
            return web.Response(text="ok")
        if method == "GET":
            found = discovery.document(path.rstrip("/"))
            if found is not None:
                return _json(found)
        if method == "POST" and path.startswith("/api/v1/namespaces/") and path.endswith("/bindings"):
            body = body_of(await request.read(), _content_type(request), "Binding")
            path = f"{path.removesuffix('/bindings')}/pods/{(body.get('metadata') or {}).get('name')}/binding"
        proxied = PROXY.fullmatch(path)
        if proxied:
            return await self._forwarding.proxy(request, proxied)
        target = target_of(path)
        self._count(request, target)
        if target.resource in REVIEWS:
            return await self._review(request, target)
        if target.subresource in {"binding", "eviction", "log", "portforward"}:
            return await self._subresource(request, target)
        return await self._verb(request, target)

    def _count(self, request: web.BaseRequest, target: Target) -> None:
        verb = request.method
        if verb == "GET":
            verb = "WATCH" if is_true(request.query, "watch") else "GET" if target.name else "LIST"
        place = f"{target.resource.plural}/{target.subresource}" if target.subresource else target.resource.plural
        self._faults.requests[verb, place, _agent(request).split(" ", 1)[0]] += 1

    async def _verb(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        match request.method:
            case "GET" if is_true(request.query, "watch") and not target.subresource:
                return await self._watch(request, target)
            case "GET" if target.name:
                return _shown(request, target, self._verbs.read(target))
            case "GET":
                return self._list(request, target)
            case "POST" if not target.name and bool(target.namespace) == target.resource.is_namespaced:
                found = object_of(await request.read(), _content_type(request), target)
                entry = await self._verbs.create(target, found, is_dry_run(request.query))
                return _shown(request, target, entry, 201)
            case "PUT" if target.name:
                return await self._replace(request, target)
            case "PATCH" if target.name:
                kind, patch = patch_of(await request.read(), _content_type(request))
                dry_run = is_dry_run(request.query)
                entry = await self._verbs.update(target, lambda found: patched(found, kind, patch), dry_run, True)
                return _shown(request, target, entry)
            case "DELETE" if target.name and not target.subresource:
                return await self._delete(request, target)
            case "DELETE" if not target.name and bool(target.namespace) == target.resource.is_namespaced:
                return await self._delete_all(request, target)
        raise errors.method_not_allowed()

    async def _replace(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        found = object_of(await request.read(), _content_type(request), target)
        dry_run = is_dry_run(request.query)
        creates = target.resource.creates_on_update and not target.subresource
        if creates and self._storage.get(target.resource, target.key) is None:
            found["metadata"].pop("resourceVersion", None)
            return _shown(request, target, await self._verbs.create(target, found, dry_run), 201)
        # The change may be called again, so it starts from the body as it was sent.
        content = orjson.dumps(found)
        entry = await self._verbs.update(target, lambda _: orjson.loads(content), dry_run)
        return _shown(request, target, entry)

    async def _delete(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        options = await _delete_options(request)
        entry, is_gone = await self._verbs.delete(target, options, is_dry_run(request.query))
        if is_gone and not target.resource.returns_deleted:
            uid = entry.load()["metadata"]["uid"]
            resource = target.resource
            group = {"group": resource.group} if resource.group else {}
            return _json(errors.success({"name": target.name, **group, "kind": resource.plural, "uid": uid}))
        return _shown(request, target, entry)

    async def _delete_all(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        options, dry_run = await _delete_options(request), is_dry_run(request.query)
        page = page_of(self._storage, target, request.query)
        for entry in page.entries:
            one = Target(target.resource, target.namespace, entry.fields["metadata.name"], "")
            if self._storage.get(one.resource, one.key) is not None:
                await self._verbs.delete(one, options, dry_run)
        return web.Response(body=list_body(target, page), content_type=JSON)

    def _list(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        page = page_of(self._storage, target, request.query)
        form = _form(request)
        if form == "Table":
            objects = [entry.data for entry in page.entries]
            body = table(target.resource, objects, page.metadata(), request.query.get("includeObject", ""))
        elif form == "PartialObjectMetadataList":
            body = partial([entry.data for entry in page.entries], page.metadata())
        else:
            body = list_body(target, page)
        return web.Response(body=body, content_type=JSON)

    async def _watch(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        watch = watch_of(self._storage, target, request.query, _renderer(request, target))
        running = Running(watch, request)
        self._faults.watches[running] = request.path_qs
        response = web.StreamResponse(headers={"Content-Type": JSON})
        limit = number_of(request.query, "timeoutSeconds") or WATCH_SECONDS
        try:
            await response.prepare(request)
            await self._stream(request, response, watch, time.monotonic() + limit)
            await response.write_eof()
        finally:
            watch.stop()
            del self._faults.watches[running]
        return response

    async def _stream(
        self, request: web.BaseRequest, response: web.StreamResponse, watch: Watch, deadline: float
    ) -> None:
        sends_bookmarks = is_true(request.query, "allowWatchBookmarks")
        next_bookmark = time.monotonic() + BOOKMARK_SECONDS
        while True:
            now = time.monotonic()
            lines = await watch.lines(max(0.0, min(IDLE_CHECK_SECONDS, deadline - now)))
            if lines:
                await self._faults.hold(request.path_qs)
            now = time.monotonic()
            if sends_bookmarks and (now >= next_bookmark or now >= deadline):
                lines.append(watch.bookmark())
                next_bookmark = now + BOOKMARK_SECONDS
            if lines:
                await response.write(b"".join(lines))
            if watch.ended or now >= deadline or request.transport is None or request.transport.is_closing():
                return

    async def _subresource(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        match request.method, target.subresource:
            case "GET", "log":
                return await self._subresources.log(request, target)
            case "GET" | "POST", "portforward":
                return await self._forwarding.forward(request, target)
            case "POST", "binding":
                body = body_of(await request.read(), _content_type(request), "Binding")
                return _json(self._subresources.bind(target, body, is_dry_run(request.query)), 201)
            case "POST", "eviction":
                body = body_of(await request.read(), _content_type(request), "Eviction")
                one = Target(PODS, target.namespace, target.name, "")
                return _json(await self._subresources.evict(one, body, is_dry_run(request.query)), 201)
        raise errors.method_not_allowed()

    async def _review(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        """Accept every token, and allow everything, because this cluster has no users."""
        if request.method != "POST":
            raise errors.method_not_allowed()
        found = object_of(await request.read(), _content_type(request), target)
        is_token = target.resource.kind == "TokenReview"
        found["status"] = {"authenticated": True, "user": USER} if is_token else {"allowed": True}
        return _json(found, 201)


def _json(found: Any, status: int = 200) -> web.Response:
    return web.Response(body=orjson.dumps(found), status=status, content_type=JSON)


def _agent(request: web.BaseRequest) -> str:
    return request.headers.get("User-Agent", "")


def _content_type(request: web.BaseRequest) -> str:
    return request.headers.get("Content-Type", "")


async def _delete_options(request: web.BaseRequest) -> Object:
    options = body_of(await request.read(), _content_type(request), "DeleteOptions")
    if "gracePeriodSeconds" in request.query:
        options["gracePeriodSeconds"] = number_of(request.query, "gracePeriodSeconds")
    return options


def _form(request: web.BaseRequest) -> str:
    """Return the `as=` of the first acceptable media type, or nothing for the plain object."""
    for accepted in request.headers.get("Accept", "*/*").split(","):
        media_type, *parameters = [part.strip() for part in accepted.split(";")]
        if media_type in {JSON, "*/*", "application/*"}:
            return next((part[3:] for part in parameters if part.startswith("as=")), "")
    accepted_types = (JSON, "application/yaml")
    message = f"only the following media types are accepted: {', '.join(accepted_types)}"
    raise errors.StatusError(406, "NotAcceptable", message)


def _renderer(request: web.BaseRequest, target: Target) -> Any:
    """Return a function that converts a watch's objects to the requested form, or None for plain objects."""
    form = _form(request)
    if form == "PartialObjectMetadata":
        return lambda data: partial([data], None)
    if form != "Table":
        return None
    sent: list[bool] = []

    def render(data: bytes) -> bytes:
        include = request.query.get("includeObject", "")
        metadata = {"resourceVersion": orjson.loads(data)["metadata"].get("resourceVersion", "")}
        body = table(target.resource, [data], metadata, include, has_columns=not sent)
        sent.append(True)
        return body

    return render


def _shown(request: web.BaseRequest, target: Target, entry: Entry, status: int = 200) -> web.Response:
    form = _form(request)
    body = entry.data
    if form == "Table":
        metadata = {"resourceVersion": str(entry.version)}
        body = table(target.resource, [body], metadata, request.query.get("includeObject", ""))
    elif form == "PartialObjectMetadata":
        body = partial([body], None)
    return web.Response(body=body, status=status, content_type=JSON)
