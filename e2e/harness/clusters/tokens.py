"""
The real cluster, whose last Node is of kind `dra` and gives devices to Pods that ask by resources.

kube-scheduler gives such a Pod tokens, and our scheduler decides which devices they stand for. The other Nodes have a
device plugin. Neighbours: `dra` has the Node.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import ClassVar

from hamicommon.dra.names import DRA, TOKEN_CLASS
from hamicommon.dra.tokens import is_token
from hamicommon.model import Object
from hamicommon.wire import keys
from harness.claims import API, delete_slices
from harness.clusters.dra import KIND_SECONDS, DraCluster
from harness.clusters.real import RealCluster
from harness.clusters.release import Value
from testbed.waiting import eventually

_CHECKPOINT = "/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint"


class TokenCluster(DraCluster):
    """A real cluster whose last Node gives tokens. `create` makes a Pod for that Node, unless the Pod names one."""

    values: ClassVar[Mapping[str, Value]] = {"dra.enabled": True, "dra.extendedResource": True}
    spec_names = "hami.io-vgpu_*_c-*"

    async def create(self, manifest: Object) -> Object:
        """Create one core object; a Pod for the Node with tokens."""
        if manifest["kind"] == "Pod":
            selector = {"kubernetes.io/hostname": self.node}
            manifest = {**manifest, "spec": {"nodeSelector": selector, **manifest["spec"]}}
        return await super().create(manifest)

    def prepared_mib(self) -> list[int]:
        """Read the CDI specs."""
        found = []
        for name in self.specs():
            [device] = json.loads((self.cdi_folder(self.node) / name).read_text())["devices"]
            set_ = dict(each.split("=", 1) for each in device["containerEdits"]["env"])
            found.append(int(set_["CUDA_DEVICE_MEMORY_LIMIT_0"].removesuffix("m")))
        return sorted(found)

    async def offers_tokens(self) -> bool:
        """Return whether the Node has tokens in its slices."""
        return any(
            is_token(device["name"]) for each in await self.slices() for device in each["spec"].get("devices", ())
        )

    async def forget_device_plugin(self) -> None:
        """
        Let the Node's kubelet be one that never had a device plugin, once the Node is of kind `dra`.

        It would forget by itself five minutes after the plugin has ended, and the Node gives no tokens before.
        """

        async def is_dra() -> bool:
            found = (await self.api.get(f"/api/v1/nodes/{self.node}"))["metadata"]["annotations"]
            return bool(found.get(keys.NODE_KIND) == DRA)

        await eventually(is_dra, f"{self.node} is of kind {DRA}", KIND_SECONDS)
        await self.kill(f"kubelet-{self.node}")
        machine = self.control_plane.node(self.node)
        machine.path(_CHECKPOINT).unlink()
        await asyncio.to_thread(machine.start_kubelet)
        gone = {"nvidia.com/gpu": None}
        status = {"status": {"capacity": gone, "allocatable": gone}}
        await self.api.patch(f"/api/v1/nodes/{self.node}/status", status)
        await eventually(self.offers_tokens, f"{self.node} offers tokens", KIND_SECONDS)


@asynccontextmanager
async def giving_tokens(cluster: RealCluster) -> AsyncIterator[TokenCluster]:
    """During a block, let the last Node of *cluster* give its devices to Pods that ask by resources."""
    found = TokenCluster.of(cluster)
    async with found.api:
        try:
            await found.deploy()
            await found.label(DRA)
            await found.forget_device_plugin()
            yield found
        finally:
            await found.label(None)
            await found.node_ready(found.node, KIND_SECONDS)
            await delete_slices(found)
            await cluster.deploy()
            await cluster.api.delete_if_exists(f"{API}/deviceclasses/{TOKEN_CLASS}", 0)
