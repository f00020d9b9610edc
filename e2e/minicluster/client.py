"""
A client of the API server, and a local copy of a collection.

`Client` sends one request a method and raises errors as `ApiError`. `Mirror` lists, watches and reconnects for ever.
Must never interpret an object beyond its metadata. Neighbours: `kubescheduler`, `kubelet` and the tests use it.
"""

import asyncio
import base64
import random
import ssl
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp
import orjson
import yaml
from yarl import URL

from hamicommon.model import Object

PATCH_TYPES = {
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "json": "application/json-patch+json",
}

REQUEST_TIMEOUT_SECONDS = 30.0
RECONNECT_DELAY_SECONDS = (0.05, 5.0)
"""The first and the longest pause before a failed list or watch is retried. The pause doubles, with jitter."""
WATCH_SILENCE_SECONDS = 45.0
"""
After which a watch is taken for broken, as the client of Kubernetes does when its ping is not answered.

Source: https://github.com/kubernetes/apimachinery/blob/v0.37.2/pkg/util/net/http.go (`configureHTTP2Transport`)
"""


class ApiError(Exception):
    """The API server answered with an error, or could not be reached (`status` 0)."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message


class Client:
    """
    A connection to one API server, by plain paths (`/api/v1/namespaces/default/pods/p`).

    >>> async with Client.from_kubeconfig("kubeconfig", "kubelet") as client:
    ...     await client.patch("/api/v1/nodes/n1", {"metadata": {"labels": {"a": "b"}}})
    """

    def __init__(self, server: str, user_agent: str, tls: ssl.SSLContext | None = None, token: str = "") -> None:
        self.server = server.rstrip("/")
        headers = {"User-Agent": user_agent, "Accept": "application/json"}
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=tls or True),
            headers={**headers, "Authorization": f"Bearer {token}"} if token else headers,
            timeout=aiohttp.ClientTimeout(total=REQUEST_TIMEOUT_SECONDS),
        )

    @classmethod
    def from_kubeconfig(cls, path: str | Path, user_agent: str) -> Self:
        """
        Return a client for the current context of the kubeconfig at *path*.

        A user is a token, or a client certificate in the file itself or in files that it names. Raises: ValueError if
        its current context has no cluster with a server.
        """
        config = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
        contexts = {entry["name"]: entry["context"] for entry in config.get("contexts") or ()}
        clusters = {entry["name"]: entry["cluster"] for entry in config.get("clusters") or ()}
        users = {entry["name"]: entry["user"] for entry in config.get("users") or ()}
        context = contexts.get(config.get("current-context"), {})
        cluster = clusters.get(context.get("cluster"), {})
        if not cluster.get("server"):
            raise ValueError(f"{path}: current-context {config.get('current-context')!r} has no cluster with a server")
        user = users.get(context.get("user")) or {}
        return cls(cluster["server"], user_agent, _tls(cluster, user), user.get("token", ""))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()

    async def request(
        self, method: str, path: str, body: Any = None, content_type: str = "application/json", **query: str
    ) -> Any:
        """
        Send one request, and return the decoded answer.

        Raises: ApiError for an answer of 400 and above, and with status 0 if there is no answer.
        """
        content = None if body is None else orjson.dumps(body)
        answer = await self._answer(method, path, query, content, content_type)
        return orjson.loads(answer) if answer else None

    async def text(self, path: str, **query: str) -> str:
        """
        Read an answer that is not JSON: a log, or metrics through the API server's proxy.

        Raises: as `request`.
        """
        return (await self._answer("GET", path, query)).decode("utf-8", "replace")

    async def _answer(
        self, method: str, path: str, query: dict[str, str], content: bytes | None = None, content_type: str = ""
    ) -> bytes:
        headers = {"Content-Type": content_type} if content is not None else {}
        try:
            async with self._session.request(
                method, self.server + path, data=content, headers=headers, params=query
            ) as response:
                answer = await response.read()
                if response.status >= 400:
                    raise _error_of(response.status, answer)
                return answer
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise ApiError(0, "Unreachable", f"{method} {path}: {error or type(error).__name__}") from error

    def pass_on(
        self, method: str, path: str, headers: Mapping[str, str], content: bytes
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """
        Send somebody else's request as this client's user, and return its answer as it is, which may be a watch.

        *path* has the query. Raises: aiohttp.ClientError, OSError
        """
        url, endless = URL(self.server + path, encoded=True), aiohttp.ClientTimeout(total=None)
        return self._session.request(method, url, headers=headers, data=content, timeout=endless)

    async def get(self, path: str, **query: str) -> Any:
        """Read an object or a list."""
        return await self.request("GET", path, **query)

    async def exists(self, path: str) -> bool:
        """Return whether there is an object at *path*."""
        try:
            await self.get(path)
        except ApiError as error:
            if error.status == 404:
                return False
            raise
        return True

    async def create(self, path: str, body: Object, **query: str) -> Any:
        """POST *body* to a collection or subresource."""
        return await self.request("POST", path, body, **query)

    async def replace(self, path: str, body: Object, **query: str) -> Any:
        """PUT *body*. Its `metadata.resourceVersion`, if set, is a precondition."""
        return await self.request("PUT", path, body, **query)

    async def patch(self, path: str, body: Any, kind: str = "merge", **query: str) -> Any:
        """PATCH with *kind* `merge`, `strategic` or `json`."""
        return await self.request("PATCH", path, body, PATCH_TYPES[kind], **query)

    async def delete(self, path: str, grace_seconds: int | None = None, uid: str | None = None) -> Any:
        """DELETE. *grace_seconds* 0 removes a Pod at once, and *uid* is a precondition."""
        options: Object = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        if uid is not None:
            options["preconditions"] = {"uid": uid}
        return await self.request("DELETE", path, options)

    async def delete_if_exists(self, path: str, grace_seconds: int | None = None) -> None:
        """DELETE an object that may be gone already."""
        try:
            await self.delete(path, grace_seconds)
        except ApiError as error:
            if error.status != 404:
                raise

    async def list(self, path: str, **query: str) -> tuple[list[Object], str]:
        """Return all objects of a collection, and the resourceVersion of the list."""
        answer = await self.get(path, **query)
        kind, version = answer.get("kind", "List").removesuffix("List"), answer.get("apiVersion", "v1")
        for item in answer["items"]:
            item.setdefault("kind", kind)
            item.setdefault("apiVersion", version)
        return answer["items"], answer["metadata"]["resourceVersion"]

    async def watch(self, path: str, resource_version: str, **query: str) -> AsyncIterator[tuple[str, Object]]:
        """
        Yield `(type, object)` after *resource_version* until the server ends the watch.

        Raises: ApiError as `request`, and for an ERROR event (410 after compaction).
        """
        params = {"watch": "true", "resourceVersion": resource_version, "allowWatchBookmarks": "true", **query}
        try:
            async with self._session.get(
                self.server + path,
                params=params,
                timeout=aiohttp.ClientTimeout(total=None, sock_read=WATCH_SILENCE_SECONDS),
                read_bufsize=2**20,
            ) as response:
                if response.status >= 400:
                    raise _error_of(response.status, await response.read())
                async for line in _lines(response.content):
                    event = orjson.loads(line)
                    if event["type"] == "ERROR":
                        raise _error_of(event["object"].get("code", 500), orjson.dumps(event["object"]))
                    yield event["type"], event["object"]
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise ApiError(0, "Unreachable", f"watch {path}: {error or type(error).__name__}") from error


class Mirror:
    """
    A copy of a collection that is kept up to date for ever.

    `changed(old, new)` is called for each difference, in order: `(None, new)` for an addition, `(old, None)` for a
    removal. After an outage, a new list causes the same calls, for objects that really differ. Objects are shared, so
    callers must not change them.
    """

    def __init__(
        self, client: Client, path: str, changed: Callable[[Object | None, Object | None], None], **query: str
    ) -> None:
        self.objects: dict[tuple[str, str], Object] = {}
        """By `(namespace, name)`. The namespace of cluster-wide objects is empty."""
        self.synced = asyncio.Event()
        """Set after the first list."""
        self.restarts = 0
        """The number of lists after the first."""
        self._client = client
        self._path = path
        self._changed = changed
        self._query = query

    async def run(self) -> None:
        """List and watch until cancelled. Errors of the API do not end it."""
        first, longest = RECONNECT_DELAY_SECONDS
        delay = first
        while True:
            try:
                objects, version = await self._client.list(self._path, **self._query)
                self._replace(objects)
                delay = first
                await self._follow(version)
            except ApiError:
                await asyncio.sleep(delay * random.uniform(0.5, 1.5))
                delay = min(delay * 2, longest)
            self.restarts += 1

    async def _follow(self, version: str) -> None:
        """Watch from *version*, reconnecting, until the server no longer has the version."""
        failures = 0
        while True:
            try:
                async for kind, found in self._client.watch(self._path, version, **self._query):
                    version = found["metadata"]["resourceVersion"]
                    failures = 0
                    if kind != "BOOKMARK":
                        self._apply(kind, found)
            except ApiError as error:
                failures += 1
                if error.status != 0 or failures > 3:
                    raise
                await asyncio.sleep(RECONNECT_DELAY_SECONDS[0] * failures)

    def _apply(self, kind: str, found: Object) -> None:
        key = _key(found)
        old = self.objects.get(key)
        if kind == "DELETED":
            self.objects.pop(key, None)
            if old is not None:
                self._changed(old, None)
        else:
            self.objects[key] = found
            self._changed(old, found)

    def _replace(self, objects: list[Object]) -> None:
        fresh = {_key(found): found for found in objects}
        for key in [key for key in self.objects if key not in fresh]:
            self._changed(self.objects.pop(key), None)
        for key, found in fresh.items():
            old = self.objects.get(key)
            if old is not None and old["metadata"]["uid"] != found["metadata"]["uid"]:
                self._changed(self.objects.pop(key), None)
                old = None
            self.objects[key] = found
            if old is None or old["metadata"]["resourceVersion"] != found["metadata"]["resourceVersion"]:
                self._changed(old, found)
        self.synced.set()


def _tls(cluster: Object, user: Object) -> ssl.SSLContext | None:
    """Return the TLS context for a kubeconfig's *cluster* and *user*, or None for a cluster without TLS."""
    if not cluster["server"].startswith("https:"):
        return None
    context = ssl.create_default_context(cadata=_content(cluster, "certificate-authority").decode())
    if "client-certificate" in user or "client-certificate-data" in user:
        # OpenSSL reads certificates from files only.
        with tempfile.NamedTemporaryFile() as file:
            file.write(_content(user, "client-certificate") + b"\n" + _content(user, "client-key"))
            file.flush()
            context.load_cert_chain(file.name)
    return context


def _content(entry: Object, name: str) -> bytes:
    """Return the data of a kubeconfig's entry *name*, from the entry itself or from the file that it names."""
    data = entry.get(f"{name}-data")
    return Path(entry[name]).read_bytes() if data is None else base64.b64decode(data)


def _key(found: Object) -> tuple[str, str]:
    return found["metadata"].get("namespace", ""), found["metadata"]["name"]


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Split *content* into lines. Unlike with `readline`, a line may have any length."""
    rest = b""
    async for chunk in content.iter_any():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if line:
                yield line


def _error_of(status: int, answer: bytes) -> ApiError:
    try:
        found = orjson.loads(answer)
        return ApiError(status, str(found.get("reason", "")), str(found.get("message", "")))
    except (orjson.JSONDecodeError, AttributeError):
        return ApiError(status, "", answer[:200].decode("utf-8", "replace"))
