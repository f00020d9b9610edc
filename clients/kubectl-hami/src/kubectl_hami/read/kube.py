"""
The live cluster: the API server, with the kubeconfig and the rights of the caller.

The only module that imports the Kubernetes client, which finds and renews credentials.
"""

import http.client
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, TypeVar

import orjson
import urllib3
import yaml
from kubernetes import client, config
from kubernetes.stream import portforward

from hamicommon.runtime.api.http_proxy import proxy_of
from kubectl_hami.read.source import ANSWER_LIMIT_BYTES, Endpoint, ReadError
from kubectl_hami.read.together import THREADS

T = TypeVar("T")

READ_SECONDS: Final = 8.0
"""Longest wait for one answer of the API server, or of a service behind its proxy."""
ANSWER_SECONDS: Final = 30.0
"""Longest wait for one answer behind a forwarded port: an explanation of many Nodes takes a while."""
SOCKET_SECONDS: Final = 30.0
"""After this time without a byte, a thread that nobody waits for any more ends."""
_PIECE_BYTES: Final = 1024 * 1024
_REASON_CHARACTERS: Final = 500

_LOG_IN: Final = "your credentials may have expired: log in again, or take another --context"
_EVERY_HOST: Final = "*"
_NO_HOST: Final = "no-host.invalid"
"""Values for the hosts that need no proxy."""

_UNUSABLE: Final = (config.ConfigException, OSError, ValueError, TypeError, yaml.YAMLError)
"""What the library raises for a kubeconfig that it cannot use."""

# The library has no types here.
_list_contexts: Final[Any] = config.list_kube_config_contexts
_load: Final[Any] = config.load_kube_config


class _Forwarding:
    """The one method of the library's `CoreV1Api` that is needed; importing that class takes more than a second."""

    def __init__(self, api_client: client.ApiClient) -> None:
        self.api_client = api_client

    def connect(self, path: str, ports: str, **_options: object) -> Any:
        """Open *ports*. `portforward` puts a WebSocket in the place of the request."""
        query = [("ports", ports)]
        call = self.api_client.param_serialize("GET", path, query_params=query, auth_settings=["BearerToken"])
        return self.api_client.call_api(*call).response


class LiveCluster:
    """A context of a kubeconfig. Its methods may be called from several threads, and none hangs."""

    def __init__(
        self, name: str, namespace: str, new_client: Callable[[], client.ApiClient], seconds: float | None
    ) -> None:
        """Wait *seconds* for each answer, 0 for ever, None as long as each kind of answer should take."""
        self.name = name
        """The name of the context."""
        self.namespace = namespace
        """That of the context."""
        self._new_client = new_client
        self._seconds = seconds
        self._api = new_client()
        self._forwarding: list[_Forwarding] = []
        """Those that are not connecting now. The library changes one while it connects, so each does one at a time."""

    @property
    def patience_seconds(self) -> float | None:
        """As long as for one of them."""
        return self._limit(READ_SECONDS)

    def now(self) -> datetime:
        """Return the time of this machine's clock."""
        return datetime.now(UTC)

    def get(self, path: str) -> bytes:
        """Ask the API server."""
        what = path.partition("?")[0]
        return self._within(READ_SECONDS, what, lambda: self._get(path, what))

    def ask(self, endpoint: Endpoint, path: str, body: bytes | None = None) -> bytes:
        """Forward a port of the Pod, and ask there."""
        what = str(endpoint)
        return self._within(ANSWER_SECONDS, what, lambda: self._ask(endpoint, path, body, what))

    def _within(self, seconds: float, what: str, call: Callable[[], T]) -> T:
        """Return the result of *call*, which goes on alone if that takes too long, whatever it waits for."""
        limit = self._limit(seconds)
        answer: Future[T] = Future()

        def run() -> None:
            try:
                answer.set_result(call())
            except BaseException as error:
                answer.set_exception(error)

        threading.Thread(target=run, name=what, daemon=True).start()
        try:
            return answer.result(limit)
        except TimeoutError:
            raise ReadError(what, f"no answer within {limit:g} s; --request-timeout gives it more") from None

    def _get(self, path: str, what: str) -> bytes:
        serialized = self._api.param_serialize("GET", path, auth_settings=["BearerToken"])
        try:
            answer = self._api.call_api(*serialized, _request_timeout=self._socket_seconds).response
            data = _limited(answer.stream(_PIECE_BYTES), what)
        except (urllib3.exceptions.HTTPError, client.ApiException, OSError) as error:
            raise ReadError(
                what, f"the API server {self._api.configuration.host} does not answer: {_why(error)}"
            ) from error
        if answer.status == http.client.UNAUTHORIZED and b'"Status"' in data:  # its own answer, not a service's
            raise ReadError(what, f"the API server does not know you; {_LOG_IN}", answer.status)
        if answer.status >= 300:
            raise ReadError(what, _message(data) or f"HTTP {answer.status}", answer.status)
        return data

    def _limit(self, seconds: float) -> float | None:
        """Return how long to wait where *seconds* should do; None is for ever."""
        return seconds if self._seconds is None else self._seconds or None

    @property
    def _socket_seconds(self) -> float | None:
        return None if self._seconds == 0 else max(SOCKET_SECONDS, self._seconds or 0)

    def _ask(self, endpoint: Endpoint, path: str, body: bytes | None, what: str) -> bytes:
        with self._forwarded(endpoint, what) as forward:
            connection = http.client.HTTPConnection("localhost", endpoint.port)
            connection.sock = forward.socket(endpoint.port)
            connection.sock.settimeout(ANSWER_SECONDS if self._seconds is None else self._socket_seconds)
            try:
                connection.request("POST" if body is not None else "GET", path, body, {"Accept": "application/json"})
                answer = connection.getresponse()
                data = _limited(iter(lambda: answer.read(_PIECE_BYTES), b""), what)
            except (http.client.HTTPException, OSError) as error:
                raise ReadError(what, forward.error(endpoint.port) or f"does not answer: {_why(error)}") from error
        if answer.status >= 300:
            raise ReadError(what, data.decode(errors="replace").strip()[:_REASON_CHARACTERS], answer.status)
        return data

    @contextmanager
    def _forwarded(self, endpoint: Endpoint, what: str) -> Iterator[Any]:
        """Forward a port during a block."""
        path = f"/api/v1/namespaces/{endpoint.namespace}/pods/{endpoint.pod}/portforward"
        try:
            forwarding = self._forwarding.pop()
        except IndexError:
            forwarding = _Forwarding(self._new_client())
        try:
            forward = portforward(forwarding.connect, path, ports=str(endpoint.port))
        except client.ApiException as error:
            # The library has the status in a text, and the server's answer behind it.
            reason = " ".join(str(error.reason).partition("-+-+")[0].split())
            if "401" in reason:
                raise ReadError(what, f"the API server does not know you; {_LOG_IN}", 401) from error
            if "403" in reason:
                right = f"get and create on pods/portforward in namespace {endpoint.namespace}"
                raise ReadError(what, f"you may not forward its port: ask for {right}", 403) from error
            raise ReadError(what, f"its port cannot be forwarded: {reason[:_REASON_CHARACTERS]}") from error
        self._forwarding.append(forwarding)
        try:
            yield forward
        finally:
            forward.close()


def contexts(kubeconfig: str | None) -> tuple[dict[str, str], str]:
    """
    Return the namespace of every context by its name, and the name of the current one.

    Raises:
        ReadError: there is no kubeconfig, or it cannot be read.
    """
    try:
        every, current = _list_contexts(kubeconfig)
    except _UNUSABLE as error:
        raise ReadError(
            kubeconfig or "kubeconfig", f"{_why(error).rstrip('.')}; give --kubeconfig, or set KUBECONFIG"
        ) from error
    return {str(one["name"]): str(one["context"].get("namespace") or "default") for one in every}, str(current["name"])


def connect(
    kubeconfig: str | None, names: Sequence[str], *, agent: str, seconds: float | None = None
) -> list[LiveCluster]:
    """
    Return the clusters of the contexts *names*, without a request. Each answer may take *seconds* (`LiveCluster`).

    Raises:
        ReadError: a context does not exist, or its credentials cannot be read.
    """
    found = []
    namespaces, _ = contexts(kubeconfig)
    for name in names:
        if name not in namespaces:
            raise ReadError(f"context {name}", f"is not in the kubeconfig, which has {', '.join(sorted(namespaces))}")
        try:
            found.append(LiveCluster(name, namespaces[name], partial(_client, kubeconfig, name, agent), seconds))
        except _UNUSABLE as error:
            raise ReadError(f"context {name}", _why(error)) from error
    return found


def _client(kubeconfig: str | None, context: str, agent: str) -> client.ApiClient:
    """Return a client of *context* that uses the proxy that kubectl uses."""
    configuration = client.Configuration()
    configuration.connection_pool_maxsize = THREADS
    _load(kubeconfig, context, client_configuration=configuration)
    proxy = proxy_of(configuration.host, os.environ)
    configuration.proxy = proxy or configuration.proxy
    # The library, and the one for WebSockets, have rules of their own for these lists: all, and none.
    configuration.no_proxy = _NO_HOST if proxy else _EVERY_HOST
    found = client.ApiClient(configuration)
    found.user_agent = agent
    return found


def _limited(pieces: Iterator[bytes], what: str) -> bytes:
    """Return all *pieces* as one, unless they are too many."""
    data = bytearray()
    for piece in pieces:
        data += piece
        if len(data) > ANSWER_LIMIT_BYTES:
            raise ReadError(what, f"the answer is larger than {ANSWER_LIMIT_BYTES >> 20} MiB")
    return bytes(data)


def _message(data: bytes) -> str:
    """Return the message of a `Status`, or the text of another error."""
    try:
        found = orjson.loads(data)
        text = str(found.get("message") or "") if isinstance(found, dict) else ""
    except orjson.JSONDecodeError:
        text = data.decode(errors="replace")
    return " ".join(text.split())[:_REASON_CHARACTERS]


def _why(error: BaseException) -> str:
    """Return the innermost reason of *error*, on one line."""
    reason = getattr(error, "reason", None) or error
    return " ".join(str(reason).split())[:_REASON_CHARACTERS]
