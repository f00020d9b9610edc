"""
A client and builders for objects.

Must never depend on the kind of cluster, or assert a behaviour.
"""

import contextlib
import itertools
import os
from collections.abc import Awaitable
from typing import Any

from hamicommon.model import Object
from minicluster.client import ApiError, Client
from testbed.waiting import eventually

IMAGE = "localhost/conformance/shell:1"
"""The image of the containers: a shell and a few commands."""


_numbers = itertools.count(1)


class Api(Client):
    """A client that works in one namespace, and creates objects for tests."""

    namespace = "default"

    @property
    def place(self) -> str:
        """The path of the namespace."""
        return f"/api/v1/namespaces/{self.namespace}"

    @property
    def pods(self) -> str:
        """The path of the namespace's Pods."""
        return f"{self.place}/pods"

    @property
    def config_maps(self) -> str:
        """The path of the namespace's ConfigMaps."""
        return f"{self.place}/configmaps"

    async def enter_new_namespace(self, **labels: str) -> str:
        """Create a namespace with a service account, so that Pods can be created at once, and work in it."""
        self.namespace = f"t{os.getpid()}-{next(_numbers)}"
        await self.create("/api/v1/namespaces", {"metadata": {"name": self.namespace, "labels": labels}})
        with contextlib.suppress(ApiError):
            await self.create(f"{self.place}/serviceaccounts", {"metadata": {"name": "default"}})
        return self.namespace

    async def remove_namespace(self) -> None:
        """Delete the Pods of the namespace, wait until they are gone, and delete the namespace without waiting."""
        for pod in (await self.list(self.pods))[0]:
            if pod["metadata"].get("finalizers"):
                await self.patch(f"{self.pods}/{pod['metadata']['name']}", {"metadata": {"finalizers": None}})

        async def is_empty() -> bool:
            await self.request("DELETE", self.pods, {"gracePeriodSeconds": 0})
            return not await self.names(self.pods)

        await eventually(is_empty)
        with contextlib.suppress(ApiError):
            await self.delete(self.place)

    async def create_pod(self, name: str = "p", **spec: Any) -> Object:
        """Create a Pod with one container. *spec* is merged into its spec."""
        found: Object = await self.create(self.pods, a_pod(name, **spec))
        return found

    async def create_node(self, name: str = "n1", **metadata: Any) -> Object:
        """Create a ready Node with 4 cpus, 8 GiB and 110 Pods."""
        found: Object = await self.create("/api/v1/nodes", a_node(name, **metadata))
        return found

    async def pod(self, name: str = "p") -> Object:
        """Return the Pod as it is now."""
        found: Object = await self.get(f"{self.pods}/{name}")
        return found

    async def bind(self, pod: str, node: str = "n1", **metadata: Any) -> Any:
        """Bind a Pod. *metadata* is merged into the Binding's."""
        body = {"metadata": {"name": pod, **metadata}, "target": {"kind": "Node", "name": node}}
        return await self.create(f"{self.pods}/{pod}/binding", body)

    async def names(self, path: str, **query: str) -> list[str]:
        """Return the names of the objects in a list, in its order."""
        return [item["metadata"]["name"] for item in (await self.list(path, **query))[0]]


def a_pod(name: str = "p", **spec: Any) -> Object:
    """Return a Pod with one container and without a token. *metadata* and *spec* are merged into it."""
    metadata = {"name": name, **spec.pop("metadata", {})}
    containers = [{"name": "main", "image": IMAGE}]
    return {"metadata": metadata, "spec": {"containers": containers, "automountServiceAccountToken": False, **spec}}


def a_node(name: str = "n1", **metadata: Any) -> Object:
    """Return a ready Node. *metadata* is merged into it."""
    resources = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    conditions = [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]
    return {
        "metadata": {"name": name, **metadata},
        "status": {"capacity": resources, "allocatable": resources, "conditions": conditions},
    }


def limits(**amounts: Any) -> list[Object]:
    """Return one container with *amounts* as its limits."""
    return [{"name": "main", "image": IMAGE, "resources": {"limits": amounts}}]


async def error_of(request: Awaitable[Any]) -> ApiError:
    """Return the error of *request*."""
    try:
        answer = await request
    except ApiError as error:
        return error
    raise AssertionError(f"expected an error, found {answer}")


async def refusal_of(request: Awaitable[Any]) -> tuple[int, str, str]:
    """Return code, reason and message of the error of *request*."""
    error = await error_of(request)
    return error.status, error.reason, error.message
