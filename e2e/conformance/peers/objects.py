"""
A client and builders for objects, as tests of a cluster need them.

Owns no promise and knows no kind of cluster.
"""

import asyncio
import contextlib
import itertools
import os
import time
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import grpc

from minicluster.client import ApiError, Client

Object = dict[str, Any]

IMAGE = "localhost/conformance/shell:1"
"""What containers run: a shell and a handful of commands."""


_numbers = itertools.count(1)


class Api(Client):
    """A client that works in one namespace and knows how to make the objects tests need."""

    namespace = "default"

    @property
    def place(self) -> str:
        """The namespace's path in the core group."""
        return f"/api/v1/namespaces/{self.namespace}"

    @property
    def pods(self) -> str:
        """The path of the namespace's Pods."""
        return f"{self.place}/pods"

    @property
    def config_maps(self) -> str:
        """The path of the namespace's ConfigMaps."""
        return f"{self.place}/configmaps"

    async def attempt(self, request: Awaitable[Any]) -> None:
        """Send a request whose refusal does not matter."""
        with contextlib.suppress(ApiError):
            await request

    async def enter_new_namespace(self, **labels: str) -> str:
        """Make a namespace and work in it; Pods can be made at once: their service account need not be waited for."""
        self.namespace = f"t{os.getpid()}-{next(_numbers)}"
        await self.create("/api/v1/namespaces", {"metadata": {"name": self.namespace, "labels": labels}})
        with contextlib.suppress(ApiError):
            await self.create(f"{self.place}/serviceaccounts", {"metadata": {"name": "default"}})
        return self.namespace

    async def remove_namespace(self) -> None:
        """Delete the namespace; wait until no Pod is left, but not until the namespace itself is gone."""
        for pod in (await self.list(self.pods))[0]:
            if pod["metadata"].get("finalizers"):
                await self.patch(f"{self.pods}/{pod['metadata']['name']}", {"metadata": {"finalizers": None}})

        async def is_empty() -> bool:
            await self.request("DELETE", self.pods, {"gracePeriodSeconds": 0})
            return not await self.names(self.pods)

        await poll(is_empty)
        with contextlib.suppress(ApiError):
            await self.delete(self.place)

    async def create_pod(self, name: str = "p", **spec: Any) -> Object:
        """Create a Pod with one container; *spec* is merged into its spec."""
        found: Object = await self.create(self.pods, a_pod(name, **spec))
        return found

    async def create_node(self, name: str = "n1", **metadata: Any) -> Object:
        """Create a ready Node with 4 cpus, 8 GiB and room for 110 Pods."""
        found: Object = await self.create("/api/v1/nodes", a_node(name, **metadata))
        return found

    async def pod(self, name: str = "p") -> Object:
        """Return the Pod as it is now."""
        found: Object = await self.get(f"{self.pods}/{name}")
        return found

    async def bind(self, pod: str, node: str = "n1", **metadata: Any) -> Any:
        """Bind a Pod; *metadata* is merged into the Binding's."""
        body = {"metadata": {"name": pod, **metadata}, "target": {"kind": "Node", "name": node}}
        return await self.create(f"{self.pods}/{pod}/binding", body)

    async def names(self, path: str, **query: str) -> list[str]:
        """Return the names of a list's objects, in its order."""
        return [item["metadata"]["name"] for item in (await self.list(path, **query))[0]]


def a_pod(name: str = "p", **spec: Any) -> Object:
    """Return a Pod to create: one container, no token; *metadata* and *spec* are merged in."""
    metadata = {"name": name, **spec.pop("metadata", {})}
    containers = [{"name": "main", "image": IMAGE}]
    return {"metadata": metadata, "spec": {"containers": containers, "automountServiceAccountToken": False, **spec}}


def a_node(name: str = "n1", **metadata: Any) -> Object:
    """Return a Node to create."""
    resources = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    conditions = [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]
    return {
        "metadata": {"name": name, **metadata},
        "status": {"capacity": resources, "allocatable": resources, "conditions": conditions},
    }


def limits(**amounts: Any) -> list[Object]:
    """Return one container with *amounts* as its limits."""
    return [{"name": "main", "image": IMAGE, "resources": {"limits": amounts}}]


async def poll(check: Callable[[], Any], seconds: float = 20.0) -> Any:
    """
    Return the first true answer of *check*, plain or async, asked again and again.

    Raises: what *check* raised last, or AssertionError, after *seconds*.
    """
    deadline, pause_seconds = time.monotonic() + seconds, 0.02
    while True:
        try:
            answer = check()
            answer = await answer if isinstance(answer, Awaitable) else answer
            if answer:
                return answer
            problem: Exception = AssertionError(f"not true within {seconds:g} s: {check}")
        except (AssertionError, ApiError, KeyError, OSError, aiohttp.ClientError, grpc.aio.AioRpcError) as error:
            problem = error
        if time.monotonic() > deadline:
            raise problem
        await asyncio.sleep(pause_seconds)
        pause_seconds = min(pause_seconds * 1.2, 0.1)


async def error_of(request: Awaitable[Any]) -> ApiError:
    """Return the error *request* ends with."""
    try:
        answer = await request
    except ApiError as error:
        return error
    raise AssertionError(f"expected an error, found {answer}")


async def refusal_of(request: Awaitable[Any]) -> tuple[int, str, str]:
    """Return all that a client sees of the error *request* ends with: code, reason and message."""
    error = await error_of(request)
    return error.status, error.reason, error.message
