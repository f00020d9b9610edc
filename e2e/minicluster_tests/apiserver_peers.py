"""
A client and builders for the tests of the API server and the scheduler.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from minicluster.client import ApiError, Client

Object = dict[str, Any]


class Api(Client):
    """A client that also knows how to make the objects tests need."""

    pods = "/api/v1/namespaces/default/pods"

    async def create_pod(self, name: str = "p", **spec: Any) -> Object:
        """Create a Pod with one container; *spec* is merged into its spec."""
        found: Object = await self.create(self.pods, a_pod(name, **spec))
        return found

    async def create_node(self, name: str = "n1", **metadata: Any) -> Object:
        """Create a ready Node with 4 cpus, 8 GiB and room for 110 Pods."""
        found: Object = await self.create("/api/v1/nodes", a_node(name, **metadata))
        return found

    async def bind(self, pod: str, node: str = "n1", **metadata: Any) -> Any:
        """Bind a Pod; *metadata* is merged into the Binding's."""
        body = {"metadata": {"name": pod, **metadata}, "target": {"kind": "Node", "name": node}}
        return await self.create(f"{self.pods}/{pod}/binding", body)


def a_pod(name: str = "p", **spec: Any) -> Object:
    """Return a Pod to create."""
    containers = [{"name": "main", "image": "busybox:1"}]
    return {"metadata": {"name": name}, "spec": {"containers": containers, **spec}}


def a_node(name: str = "n1", **metadata: Any) -> Object:
    """Return a Node to create."""
    resources = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    conditions = [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]
    return {
        "metadata": {"name": name, **metadata},
        "status": {"capacity": resources, "allocatable": resources, "conditions": conditions},
    }


async def eventually(check: Callable[[], Awaitable[Any]], seconds: float = 5.0) -> Any:
    """Return the first true answer of *check*, asked again until *seconds* have passed."""
    deadline = time.monotonic() + seconds
    while True:
        answer = await check()
        if answer or time.monotonic() > deadline:
            return answer
        await asyncio.sleep(0.01)


async def error_of(request: Awaitable[Any]) -> ApiError:
    """Return the error *request* ends with."""
    try:
        answer = await request
    except ApiError as error:
        return error
    raise AssertionError(f"expected an error, found {answer}")
