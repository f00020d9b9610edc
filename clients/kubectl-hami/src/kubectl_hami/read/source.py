"""
The one interface to a cluster: a path in, bytes out.

A path of the API server also reaches a service that listens on its Pod's address, by the proxy of the Pod. What
listens on the Pod's loopback alone, because its answers show all namespaces, is reached by forwarding a port.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Protocol
from urllib.parse import urlencode

import orjson

from hamicommon.errors import HamiError
from hamicommon.model import Object

ANSWER_LIMIT_BYTES: Final = 64 * 1024 * 1024
"""The largest answer that is read."""
PAGE_OBJECTS: Final = 500
"""Objects in one page of a list, as in kubectl."""


class ReadError(HamiError):
    """Something could not be read. The message says what and why."""

    def __init__(self, what: str, why: str, status: int = 0) -> None:
        super().__init__(f"{what}: {why}")
        self.what = what
        self.why = why
        self.status = status
        """The HTTP status, 0 if nothing answered."""

    @property
    def is_forbidden(self) -> bool:
        """Whether the caller's rights do not suffice."""
        return self.status == 403


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A port of a Pod."""

    namespace: str
    pod: str
    port: int

    def __str__(self) -> str:
        return f"Pod {self.namespace}/{self.pod}, port {self.port}"


class Source(Protocol):
    """A cluster that can be read."""

    @property
    def name(self) -> str:
        """How it is called, for people."""

    @property
    def namespace(self) -> str:
        """The namespace of the context, `default` if it names none."""

    @property
    def patience_seconds(self) -> float | None:
        """How long to wait for many things that are asked side by side; None is for ever."""

    def now(self) -> datetime:
        """Return the time of what is read."""

    def get(self, path: str) -> bytes:
        """
        Return what the API server has at *path*, with its query.

        Raises:
            ReadError: it has nothing there, forbids it, or does not answer.
        """

    def ask(self, endpoint: Endpoint, path: str, body: bytes | None = None) -> bytes:
        """
        Return what a service on the loopback of its Pod answers at *path*, to a POST if there is a *body*.

        Raises:
            ReadError: no such port can be reached, or the answer is an error; its text is the reason.
        """


def objects(source: Source, path: str, **query: str) -> Iterator[Object]:
    """
    Yield the objects of a collection, page by page.

    Raises:
        ReadError: a page cannot be read.
    """
    more = ""
    while True:
        options = {**query, "limit": PAGE_OBJECTS, **({"continue": more} if more else {})}
        page = listing(source, f"{path}?{urlencode(options)}")
        yield from page.get("items") or ()
        more = (page.get("metadata") or {}).get("continue") or ""
        if not more:
            return


def listing(source: Source, path: str) -> dict[str, Any]:
    """
    Return the JSON object at *path*.

    Raises:
        ReadError: it cannot be read, or is no JSON object.
    """
    try:
        found = orjson.loads(source.get(path))
    except orjson.JSONDecodeError as error:
        raise ReadError(path.partition("?")[0], "the answer is not JSON") from error
    if not isinstance(found, dict):
        raise ReadError(path.partition("?")[0], "the answer is not a JSON object")
    return found


def proxied(endpoint: Endpoint, path: str) -> str:
    """Return the path by which the API server's proxy reaches *path* of a Pod's port."""
    return f"/api/v1/namespaces/{endpoint.namespace}/pods/{endpoint.pod}:{endpoint.port}/proxy{path}"
