"""
Read ResourceClaims, and read and write this Node's ResourceSlices.

A claim is read from the server at each call, because its allocation must be the present one. Slices come from a watch:
the kubelet deletes them when it starts.
"""

import asyncio
from contextlib import suppress
from typing import Any

from hamicommon.dra.names import API_VERSION, DRIVER
from hamicommon.model import Object
from hamicommon.runtime.api.kube import Conflict, Kube, NotFound, Reflector

_API = f"/apis/{API_VERSION}"
_SLICES = f"{_API}/resourceslices"


class DraKube:
    """The claims of a cluster and the slices of one Node; `reflector` keeps the slices current."""

    def __init__(self, kube: Kube, node: str) -> None:
        """Follow this driver's slices of *node*, once `reflector` runs."""
        self._kube = kube
        self.slices: dict[str, Object] = {}
        """By name, as last seen."""
        self.changed = asyncio.Event()
        """Set at each change of a slice; the waiting task clears it."""
        self.reflector = Reflector(
            kube,
            _SLICES,
            field_selector=f"spec.nodeName={node},spec.driver={DRIVER}",
            replace=self._see_all,
            upsert=self._see,
            delete=self._forget,
        )

    async def claim(self, namespace: str, name: str) -> Object | None:
        """Return a ResourceClaim as it is now; None if there is none of that name. Raises: KubeError."""
        try:
            return await self._kube.get(f"{_API}/namespaces/{namespace}/resourceclaims/{name}")
        except NotFound:
            return None

    async def write(self, item: Object) -> None:
        """
        Write the slice *item*: replace the one that it names, else create it. Keep what the server returns.

        Raises:
            Conflict: it has changed since it was read, and was read again.
            NotFound: it is gone.
            KubeError: it cannot be written.
        """
        name = item["metadata"].get("name")
        if name is None:
            self._see(await self._kube.create(_SLICES, item))
            return
        path = f"{_SLICES}/{name}"
        try:
            self._see(await self._kube.replace(path, item))
        except NotFound:
            self.slices.pop(name, None)
            raise
        except Conflict:
            self._see(await self._kube.get(path))
            raise

    async def delete(self, name: str) -> None:
        """Delete a slice, unless it is gone. Raises: KubeError."""
        with suppress(NotFound):
            await self._kube.delete(f"{_SLICES}/{name}")
        self.slices.pop(name, None)

    def _see_all(self, items: list[Any]) -> None:
        self.slices = {item["metadata"]["name"]: item for item in items}
        self.changed.set()

    def _see(self, item: Object) -> None:
        self.slices[item["metadata"]["name"]] = item
        self.changed.set()

    def _forget(self, item: Object) -> None:
        self.slices.pop(item["metadata"]["name"], None)
        self.changed.set()
