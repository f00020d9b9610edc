"""
The client of the API server, and the only module that imports the Kubernetes client library.

The library finds and renews credentials. Requests use aiohttp, and objects are plain dicts: the library's typed models
cost twenty times as much as orjson, and its REST layer adds a fifth to a request.
Every request has a deadline, and every failure is a `KubeError` with the path. It must never retry a write: the caller
decides.
Neighbours: `api_errors` has the failures, `watch_stream` reads watches, `reflector` keeps a copy of a collection
current.
"""

import asyncio
import os
import socket
import ssl
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Self
from urllib.parse import quote, urlencode, urlsplit

import aiohttp
import orjson
import structlog

from hamicommon.model import Object
from hamicommon.runtime.api import packages
from hamicommon.runtime.api.api_errors import (
    Conflict,
    Gone,
    KubeConfigError,
    KubeError,
    NotFound,
    Unreachable,
    error_from_status,
)
from hamicommon.runtime.api.api_metrics import ApiMetrics
from hamicommon.runtime.api.http_proxy import proxy_of
from hamicommon.runtime.api.reflector import Reflector
from hamicommon.runtime.api.watch_stream import Event, EventReader, JsonLines

try:
    Path.home()
except RuntimeError:
    # A uid without a passwd entry has no home, and without one the client library cannot be imported. runc says / too.
    os.environ["HOME"] = "/"

if "kubernetes" not in sys.modules:
    packages.import_without_contents("kubernetes", "kubernetes.aio")

from kubernetes.aio import config as client_config
from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.client.rest import RESTClientObject

__all__ = ["Conflict", "Gone", "Kube", "KubeConfigError", "KubeError", "NotFound", "Object", "Reflector", "Unreachable"]


JSON = "application/json"
REQUEST_SECONDS = 30.0
CONNECT_SECONDS = 10.0
CONNECTIONS = 100
"""Largest number of connections, with watches. Further requests wait, instead of opening more in a burst."""
PAGE_SIZE = 500
"""Objects in a page of a list request, as in client-go's pager."""
READ_BUFFER_BYTES = 2 * 1024 * 1024
"""How much of an answer is read ahead. With aiohttp's 64 KiB a watch would pause in every burst."""

_IN_CLUSTER_REFRESH_SECONDS = 60.0
_KUBECONFIG_REFRESH_SECONDS = 300.0
_EVENT_MESSAGE_LIMIT = 1024
"""Source: https://github.com/kubernetes/kubernetes/blob/v1.34.1/pkg/apis/core/validation/events.go (NoteLengthLimit)"""

logger = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class _Call:
    """One request before it is sent."""

    method: str
    path: str
    query: Mapping[str, str | int] = field(default_factory=dict)
    body: Mapping[str, Any] | None = None
    content_type: str = JSON
    seconds: float = REQUEST_SECONDS
    readers: Mapping[str, type[EventReader]] = field(default_factory=dict)
    """For a watch: encodings that are preferred to JSON, by media type, best first."""

    def reader_of(self, response: aiohttp.ClientResponse) -> type[EventReader]:
        """Return the reader of *response* to a watch."""
        return self.readers.get(response.content_type, JsonLines)


class Kube:
    """
    A connection to one API server.

    Paths are the API's own (`/api/v1/nodes/n1`); query parameters are keyword arguments in the API's spelling
    (`labelSelector="a=b"`). Use as `async with await Kube.connect(...) as kube`.
    """

    def __init__(
        self, configuration: Configuration, kubeconfig: str | None, user_agent: str, metrics: ApiMetrics | None
    ) -> None:
        """
        Use the server of *configuration*, which was read from *kubeconfig*, None for the service account.

        Raises:
            OSError: a certificate cannot be read.
            ValueError: a certificate is malformed.
        """
        self._configuration = configuration
        self._tls: ssl.SSLContext = RESTClientObject(configuration).ssl_context
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=self._tls),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"User-Agent": user_agent},
            read_bufsize=READ_BUFFER_BYTES,
        )
        self._turns = asyncio.Semaphore(CONNECTIONS)
        self._kubeconfig = kubeconfig
        self._credentials_read = time.monotonic()
        self._credentials_lock = asyncio.Lock()
        self._metrics = metrics

    @classmethod
    async def connect(cls, kubeconfig: str | None, user_agent: str, metrics: ApiMetrics | None = None) -> Self:
        """
        Read credentials and return a client, without a request. *metrics* counts each request.

        The first that exists is used: *kubeconfig*, `$KUBECONFIG`, `~/.kube/config`, the Pod's service account.

        Raises:
            KubeConfigError: none exists, the one found cannot be read, or the environment's proxy cannot be used.
        """
        found = _kubeconfig_path(kubeconfig)
        configuration = await _read_credentials(found)
        # aiohttp would look for proxies and a netrc at every request, in another thread.
        configuration.proxy = configuration.proxy or _proxy(configuration.host)
        try:
            return cls(configuration, found, user_agent, metrics)
        except (OSError, ValueError) as error:
            raise KubeConfigError(f"{found or 'service account'}: certificates cannot be used: {error}") from error

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close every connection; watches in progress end with an error."""
        await self._session.close()

    async def get(self, path: str, **query: str | int) -> Object:
        """Return the object, or the list, at *path*."""
        return await self._request(_Call("GET", path, query))

    async def create(self, path: str, body: Mapping[str, Any]) -> Object:
        """POST *body* to the collection or subresource at *path* and return the answer."""
        return await self._request(_Call("POST", path, body=body))

    async def merge_patch(self, path: str, body: Mapping[str, Any]) -> Object:
        """Apply *body* as a JSON merge patch (RFC 7386); `metadata.resourceVersion` in it makes it conditional."""
        return await self._request(_Call("PATCH", path, body=body, content_type="application/merge-patch+json"))

    async def strategic_patch(self, path: str, body: Mapping[str, Any]) -> Object:
        """Apply *body* as a strategic merge patch, which merges lists with named items, such as conditions."""
        content_type = "application/strategic-merge-patch+json"
        return await self._request(_Call("PATCH", path, body=body, content_type=content_type))

    async def replace(self, path: str, body: Mapping[str, Any]) -> Object:
        """PUT *body* in the place of the object at *path*, if it is still at `metadata.resourceVersion` of *body*."""
        return await self._request(_Call("PUT", path, body=body))

    async def delete(self, path: str) -> Object:
        """Delete the object at *path* and return the answer."""
        return await self._request(_Call("DELETE", path))

    async def items(self, path: str, **query: str | int) -> AsyncIterator[Object]:
        """
        Yield each object of a collection, page by page.

        Raises:
            Gone: the server no longer has the snapshot between two pages; start again.
        """
        async for page, _ in self.pages(path, **query):
            for item in page:
                yield item

    async def pages(self, path: str, **query: str | int) -> AsyncIterator[tuple[list[Object], str]]:
        """Yield `(objects, resourceVersion)` of each page; all pages of one list share the resourceVersion."""
        parameters: dict[str, str | int] = {"limit": PAGE_SIZE, **query}
        while True:
            answer = await self._request(_Call("GET", path, parameters))
            metadata, items = answer.get("metadata"), answer.get("items")
            if not isinstance(metadata, dict) or not isinstance(items, list | None):
                raise KubeError(path, 200, "NotAList", "the answer has no metadata object or no items list")
            yield [item for item in items or () if isinstance(item, dict)], str(metadata.get("resourceVersion", ""))
            following = metadata.get("continue")
            if not following:
                return
            parameters["continue"] = str(following)

    async def watch(
        self,
        path: str,
        timeout_seconds: int,
        readers: Mapping[str, type[EventReader]] = MappingProxyType({}),
        /,
        **query: str | int,
    ) -> AsyncIterator[Event]:
        """
        Yield each event of a watch at *path* until the server ends it.

        *readers* are preferred encodings by media type, best first. A server without any of them answers JSON.

        Raises:
            KubeError: the watch was rejected, had an ERROR event, or something that is no event.
            Unreachable: the stream broke, or ended in the middle of an event.
        """
        parameters = {"watch": "1", "timeoutSeconds": timeout_seconds, **query}
        call = _Call("GET", path, parameters, seconds=timeout_seconds + REQUEST_SECONDS, readers=readers)
        async with self._turn(call) as timed:
            response = await self._send(timed)
            try:
                _detect_dead_peer(response)
                reader = call.reader_of(response)(path)
                async for chunk in response.content.iter_any():
                    for event in reader.feed(chunk):
                        yield event
                reader.end()
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                raise _unreachable(path, error) from error
            finally:
                # A watch is left in the middle of its stream, so its connection cannot be used again.
                response.close()

    @asynccontextmanager
    async def _turn(self, call: "_Call") -> AsyncIterator["_Call"]:
        """Hold one of CONNECTIONS during a block; yield *call* with the time that is left."""
        if self._turns.locked():
            call = await self._wait_for_turn(call)
        else:
            await self._turns.acquire()
        try:
            yield call
        finally:
            self._turns.release()

    async def _wait_for_turn(self, call: "_Call") -> "_Call":
        began = time.monotonic()
        try:
            async with asyncio.timeout(call.seconds):
                await self._turns.acquire()
        except TimeoutError as error:
            raise _unreachable(call.path, error) from error
        waited = time.monotonic() - began
        if self._metrics is not None:
            self._metrics.waited(waited)
        return replace(call, seconds=call.seconds - waited)

    async def _request(self, call: "_Call") -> Object:
        async with self._turn(call) as timed:
            response = await self._send(timed)
            try:
                answer = orjson.loads(await response.read())
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                raise _unreachable(call.path, error) from error
            except orjson.JSONDecodeError as error:
                raise KubeError(call.path, response.status, "NotJson", f"the answer is not JSON: {error}") from error
        if not isinstance(answer, dict):
            raise KubeError(call.path, response.status, "NotAnObject", f"the answer is a {type(answer).__name__}")
        return answer

    async def _send(self, call: "_Call") -> aiohttp.ClientResponse:
        """Send one request and return its successful response with an unread body. Retry once after 401."""
        await self._refresh_credentials(
            _KUBECONFIG_REFRESH_SECONDS if self._kubeconfig else _IN_CLUSTER_REFRESH_SECONDS
        )
        response = await self._send_once(call)
        if response.status == 401:
            response.release()
            await self._refresh_credentials(older_than_seconds=1.0)
            response = await self._send_once(call)
        if response.status < 300:
            return response
        try:
            text = await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise _unreachable(call.path, error) from error
        text = call.reader_of(response).refusal(text)
        refusal = error_from_status(call.path, response.status, text, response.headers.get("Retry-After"))
        if self._metrics is not None:
            self._metrics.waited(refusal.retry_after_seconds)
        raise refusal

    async def _send_once(self, call: "_Call") -> aiohttp.ClientResponse:
        settings = self._configuration
        credentials: Mapping[str, Any] = await settings.auth_settings()
        query = urlencode([(name, value) for name, value in call.query.items() if value != ""], quote_via=quote)
        began, status = time.monotonic(), 0
        try:
            response = await self._session.request(
                call.method,
                f"{settings.host}{call.path}?{query}" if query else f"{settings.host}{call.path}",
                headers={
                    "Accept": ",".join([*call.readers, JSON]),
                    "Content-Type": call.content_type,
                    **{found["key"]: found["value"] for found in credentials.values()},
                },
                data=None if call.body is None else orjson.dumps(call.body),
                proxy=settings.proxy,
                proxy_headers=settings.proxy_headers,
                server_hostname=settings.tls_server_name,
                timeout=aiohttp.ClientTimeout(total=call.seconds, sock_connect=CONNECT_SECONDS),
            )
            status = response.status
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise _unreachable(call.path, error) from error
        finally:
            if self._metrics is not None:
                seconds, is_watch = time.monotonic() - began, "watch" in call.query
                self._metrics.answered(call.method, call.path, status, seconds, is_watch=is_watch)
        return response

    async def _refresh_credentials(self, older_than_seconds: float) -> None:
        """Read credentials again if they are old, because tokens and certificates expire."""
        if time.monotonic() - self._credentials_read < older_than_seconds:
            return
        async with self._credentials_lock:
            if time.monotonic() - self._credentials_read < older_than_seconds:
                return
            self._credentials_read = time.monotonic()
            try:
                fresh = await _read_credentials(self._kubeconfig)
                await asyncio.to_thread(_load_certificates, self._tls, fresh)
            except (KubeConfigError, OSError) as error:
                logger.warning("Credentials not refreshed, the old ones stay in use", error=str(error))
                return
            self._configuration.api_key = fresh.api_key


def event(
    regarding: Object, reason: str, message: str, *, component: str, warning: bool = False, now: datetime
) -> Object:
    """
    Return a core/v1 Event about *regarding*. For a cluster-wide object its namespace is `default`.

    The name is unique to the microsecond, as client-go's is to the nanosecond.
    """
    metadata = regarding.get("metadata", {})
    namespace = metadata.get("namespace") or "default"
    name = metadata.get("name", "")
    stamp = timestamp(now)
    reference = {
        "apiVersion": regarding.get("apiVersion", "v1"),
        "kind": regarding.get("kind", "Pod"),
        "namespace": metadata.get("namespace"),
        "name": name,
        "uid": metadata.get("uid"),
        "resourceVersion": metadata.get("resourceVersion"),
    }
    unique = f"{int(now.timestamp() * 1e6):x}"
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{name[: 252 - len(unique)]}.{unique}", "namespace": namespace},
        "involvedObject": {key: value for key, value in reference.items() if value},
        "reason": reason,
        "message": message.encode()[:_EVENT_MESSAGE_LIMIT].decode(errors="ignore"),
        "type": "Warning" if warning else "Normal",
        "source": {"component": component},
        "firstTimestamp": stamp,
        "lastTimestamp": stamp,
        "count": 1,
    }


def timestamp(now: datetime) -> str:
    """Return *now*, in UTC, as the API server writes it."""
    return f"{now.replace(tzinfo=None).isoformat(timespec='seconds')}Z"


def _proxy(server: str) -> str | None:
    """
    Return the proxy that the environment names for the URL *server*, None without a proxy.

    Raises:
        KubeConfigError: it is no HTTP proxy.
    """
    proxy = proxy_of(server, os.environ)
    if proxy is None:
        return None
    try:
        parts = urlsplit(proxy)
        is_usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_usable = False
    if not is_usable:
        # The value may contain a password.
        name = f"{urlsplit(server).scheme}_proxy".upper()
        raise KubeConfigError(f"{name}: must be the URL of an HTTP proxy, such as http://proxy.example:3128")
    return proxy


def _kubeconfig_path(argument: str | None) -> str | None:
    """Return the kubeconfig to use, or None for the Pod's service account."""
    if argument:
        return argument
    if os.environ.get("KUBECONFIG"):
        return os.environ["KUBECONFIG"]
    default = Path.home() / ".kube" / "config"
    return str(default) if default.is_file() else None


async def _read_credentials(kubeconfig: str | None) -> Configuration:
    configuration = Configuration()
    # From Python 3.13 on it would refuse a cluster whose certificates lack key identifiers; kubectl does not.
    configuration.disable_strict_ssl_verification = True
    if kubeconfig is None:
        try:
            client_config.load_incluster_config(  # type: ignore[no-untyped-call]
                client_configuration=configuration, try_refresh_token=False
            )
        except (client_config.ConfigException, OSError) as error:
            raise KubeConfigError(
                f"no API server: --kubeconfig, $KUBECONFIG and ~/.kube/config are absent, and in-cluster: {error}"
            ) from error
        configuration.api_key = {key: token.strip() for key, token in configuration.api_key.items()}
        return configuration
    if not _exists(kubeconfig):
        raise KubeConfigError(f"kubeconfig {kubeconfig}: no such file")
    try:
        await client_config.load_kube_config(  # type: ignore[no-untyped-call]
            config_file=kubeconfig, client_configuration=configuration, persist_config=False
        )
    except Exception as error:
        # The loader lets the KeyError, TypeError or YAML error of a bad file through.
        reason = " ".join(str(error).split())
        raise KubeConfigError(f"kubeconfig {kubeconfig}: {type(error).__name__}: {reason}") from error
    return configuration


def _load_certificates(context: ssl.SSLContext, fresh: Configuration) -> None:
    if fresh.cert_file:
        context.load_cert_chain(fresh.cert_file, fresh.key_file)
    if fresh.ssl_ca_cert:
        context.load_verify_locations(fresh.ssl_ca_cert)


def _exists(kubeconfig: str) -> bool:
    """Return whether any file of a kubeconfig list exists. The client library skips missing ones."""
    return any(Path(part).expanduser().is_file() for part in kubeconfig.split(os.pathsep) if part)


def _detect_dead_peer(response: aiohttp.ClientResponse) -> None:
    """Let the kernel probe an idle watch, so that a dead server is noticed in a minute, not in two hours."""
    transport = response.connection.transport if response.connection else None
    connection = transport.get_extra_info("socket") if transport else None
    if connection is None or connection.family not in {socket.AF_INET, socket.AF_INET6}:
        return
    with suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)


def _unreachable(path: str, error: BaseException) -> Unreachable:
    return Unreachable(path, 0, type(error).__name__, str(error) or "no answer before the deadline")
