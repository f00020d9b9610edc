"""
The namespace and service account controllers.

They empty and remove deleted namespaces, and create the default service account of new ones. Pods on a Node get their
grace period.
Source: k8s.io/kubernetes/pkg/controller/namespace/deletion, pkg/controller/serviceaccount.
"""

import asyncio
import contextlib

from hamicommon.model import Object
from minicluster.apiserver.api import errors
from minicluster.apiserver.api.resources import NAMESPACES, SERVICE_ACCOUNTS, STORED
from minicluster.apiserver.serve.requests import Target
from minicluster.apiserver.serve.verbs import Verbs, finish, stamp, strategy_of
from minicluster.apiserver.store.storage import Change, Storage

INITIAL = ("default", "kube-node-lease", "kube-public", "kube-system")


class Namespaces:
    """The controllers, on *storage*."""

    def __init__(self, storage: Storage, verbs: Verbs) -> None:
        self._storage = storage
        self._verbs = verbs
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self) -> None:
        """Create the initial namespaces, and follow all namespaces from now on."""
        for name in INITIAL:
            if self._storage.get(NAMESPACES, name) is None:
                found: Object = {"metadata": {"name": name}}
                strategy_of(NAMESPACES).default(found)
                finish(NAMESPACES, found, stamp())
                self._storage.put(NAMESPACES, name, found)
        for name in self._storage.collections[NAMESPACES].range(""):
            self._add_service_account(name)
        for resource in STORED:
            if resource.is_namespaced:
                self._storage.collections[resource].listeners.add(self._content_changed)
        self._storage.collections[NAMESPACES].listeners.add(self._namespace_changed)

    def _namespace_changed(self, change: Change) -> None:
        if change.after is None:
            return
        if change.after.fields["status.phase"] == "Terminating":
            self._later(change.key)
        elif change.before is None:
            asyncio.get_running_loop().call_soon(self._add_service_account, change.key)

    def _content_changed(self, change: Change) -> None:
        if change.after is None:
            name = change.key.split("/", 1)[0]
            namespace = self._storage.get(NAMESPACES, name)
            if namespace is not None and namespace.fields["status.phase"] == "Terminating":
                self._later(name)

    def _later(self, name: str) -> None:
        task = asyncio.get_running_loop().create_task(self._empty(name))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _add_service_account(self, namespace: str) -> None:
        key = SERVICE_ACCOUNTS.key(namespace, "default")
        if self._storage.get(SERVICE_ACCOUNTS, key) is None and self._storage.get(NAMESPACES, namespace) is not None:
            found: Object = {"metadata": {"name": "default", "namespace": namespace}}
            finish(SERVICE_ACCOUNTS, found, stamp())
            self._storage.put(SERVICE_ACCOUNTS, key, found)

    async def _empty(self, name: str) -> None:
        """Delete the objects of a namespace, and once none is left, the namespace."""
        left = 0
        for resource in STORED:
            if not resource.is_namespaced:
                continue
            collection = self._storage.collections[resource]
            for key in list(collection.range(name)):
                target = Target(resource, name, key.split("/", 1)[1], "")
                entry = collection.entries.get(key)
                if entry is not None and not entry.load()["metadata"].get("deletionTimestamp"):
                    with contextlib.suppress(errors.StatusError):
                        await self._verbs.delete(target, {})
            left += len(collection.range(name))
        entry = self._storage.get(NAMESPACES, name)
        if entry is None or left:
            return
        found = entry.load()
        found["spec"]["finalizers"] = []
        if not found["metadata"].get("finalizers"):
            self._storage.remove(NAMESPACES, name)
