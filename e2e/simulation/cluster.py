"""
The rest of the cluster, which never fails: Nodes with their kubelets and device plugins, and people who make Pods.

Pods ask for so much that some always wait, so every device is full and each double grant breaks a rule.
"""

import asyncio
import math
import random
from collections.abc import Mapping
from datetime import timedelta
from itertools import count

from hamicommon.model import Device, Object
from hamicommon.wire import keys
from hamicommon.wire.node_devices import encode_node_devices
from hamicommon.wire.node_lock import decode_node_lock
from simulation.kube_scheduler import SCHEDULER_NAME
from simulation.replica import BEGIN
from testbed.virtual.api import MemoryApi
from testbed.virtual.loop import VirtualProcess

NODES = {"identity": True, "lock": False}
"""Each Node, and whether its device plugin finds the owner of a device without the Node's lock."""
DEVICES, MEMORY_MIB, REPLICAS = 2, 40000, 4
"""Of each Node; the last two of each device."""
SHARES = ((1, 8000, 0), (1, 15000, 30), (1, 20000, 50), (1, 39000, 0), (1, 12000, 100), (2, 10000, 20))
"""What a Pod asks: devices, MiB and percent of compute of each."""
PODS = 20
"""How many Pods people want at a time."""
START_SECONDS, RUN_SECONDS, END_SECONDS = (0.05, 4.0), (1.0, 25.0), (0.2, 1.0)
NAMESPACE = "default"


class Cluster:
    """The Nodes, and the Pods that people make on them."""

    def __init__(self, api: MemoryApi, draw: random.Random) -> None:
        """Have nothing yet."""
        self.people = VirtualProcess("people")
        self._kubelets = VirtualProcess("kubelets")
        self._api = api
        self._draw = draw
        self._numbers = count(1)
        self._seen: set[str] = set()
        """UIDs of the Pods whose containers were started."""

    async def start(self) -> None:
        """Make the Nodes, and let people and kubelets work."""
        for name, finds_owners in NODES.items():
            await self._api.put("nodes", a_node(name, finds_owners=finds_owners))
        self.people.start(self._want_pods())
        self._kubelets.start(self._run_kubelets())

    def nodes(self) -> list[str]:
        """Return the names of the Nodes."""
        return [*self._api.objects.get("nodes", {})]

    # --- people ----------------------------------------------------------------------------------------------------

    async def _want_pods(self) -> None:
        """Keep PODS Pods, and delete one now and then."""
        while True:
            pods = self._api.objects.setdefault("pods", {})
            living = [key for key, pod in pods.items() if "deletionTimestamp" not in pod["metadata"]]
            if len(living) < PODS:
                await self._api.put("pods", self._a_pod())
            elif self._draw.random() < 0.1:
                await self._delete(self._draw.choice(living))
            await asyncio.sleep(self._draw.uniform(0.1, 1.5))

    def _a_pod(self) -> Object:
        number = next(self._numbers)
        devices, memory_mib, core_percent = self._draw.choice(SHARES)
        limits = {"nvidia.com/gpu": str(devices), "nvidia.com/gpumem": str(memory_mib)}
        if core_percent:
            limits["nvidia.com/gpucores"] = str(core_percent)
        free = [name for name in range(2 * PODS) if f"{NAMESPACE}/p{name}" not in self._api.objects["pods"]]
        return {
            "metadata": {
                "name": f"p{self._draw.choice(free)}",  # A name is used again by Pods with other UIDs.
                "namespace": NAMESPACE,
                "uid": f"uid-{number}",
                "creationTimestamp": self._time(),
                "annotations": {},
            },
            "spec": {
                "schedulerName": SCHEDULER_NAME,
                "containers": [{"name": "main", "resources": {"limits": limits}}],
            },
            "status": {"phase": "Pending"},
        }

    async def _delete(self, key: str) -> None:
        pod = self._api.objects["pods"][key]
        if not pod["spec"].get("nodeName") or self._draw.random() < 0.1:
            await self._api.remove("pods", key)
        else:
            metadata = {**pod["metadata"], "deletionTimestamp": self._time()}
            await self._api.put("pods", {**pod, "metadata": metadata})

    def _time(self) -> str:
        return (BEGIN + timedelta(seconds=int(asyncio.get_running_loop().time()))).isoformat()

    # --- kubelets and device plugins -------------------------------------------------------------------------------

    async def _run_kubelets(self) -> None:
        """Start each Pod that is bound."""
        async for write in self._api.writes(0, math.inf, "pods"):
            if write is None or write.change == "DELETED":
                continue
            pod = write.item
            if pod["spec"].get("nodeName") and pod["metadata"]["uid"] not in self._seen:
                self._seen.add(pod["metadata"]["uid"])
                self._kubelets.start(self._run(pod))

    async def _run(self, pod: Object) -> None:
        """Start, run and end one Pod; a deleted one is removed by the kubelet."""
        uid, key = pod["metadata"]["uid"], f"{NAMESPACE}/{pod['metadata']['name']}"
        await self._pause(START_SECONDS)
        if not NODES[pod["spec"]["nodeName"]]:
            await self._allocate(pod)
        await self._set_phase(key, uid, "Running")
        end = asyncio.get_running_loop().time() + self._draw.uniform(*RUN_SECONDS)
        while asyncio.get_running_loop().time() < end:
            found = self._found(key, uid)
            if found is None:
                return
            if "deletionTimestamp" in found["metadata"]:
                break
            await asyncio.sleep(0.5)
        await self._set_phase(key, uid, self._draw.choice(("Succeeded", "Failed")))
        await self._pause(END_SECONDS)
        if self._found(key, uid) is not None:
            await self._api.remove("pods", key)

    async def _allocate(self, pod: Object) -> None:
        """Mark *pod* and release the Node's lock, as device plugins since HAMi 2.4 do at the end of Allocate."""
        name, node = pod["metadata"]["name"], pod["spec"]["nodeName"]
        found = self._found(f"{NAMESPACE}/{name}", pod["metadata"]["uid"])
        if found is not None:
            await self._annotate("pods", found, {keys.BIND_PHASE: keys.BIND_PHASE_SUCCESS})
        on_node = self._api.objects["nodes"][node]
        text = on_node["metadata"]["annotations"].get(keys.NODE_LOCK)
        if text and decode_node_lock(text).pod == name:
            await self._annotate("nodes", on_node, {keys.NODE_LOCK: None})

    async def _annotate(self, collection: str, item: Object, changes: Mapping[str, str | None]) -> None:
        annotations = {**item["metadata"]["annotations"], **changes}
        kept = {key: text for key, text in annotations.items() if text is not None}
        await self._api.put(collection, {**item, "metadata": {**item["metadata"], "annotations": kept}})

    async def _set_phase(self, key: str, uid: str, phase: str) -> None:
        found = self._found(key, uid)
        if found is not None:
            await self._api.put("pods", {**found, "status": {**found["status"], "phase": phase}})

    def _found(self, key: str, uid: str) -> Object | None:
        found = self._api.objects["pods"].get(key)
        return found if found is not None and found["metadata"]["uid"] == uid else None

    async def _pause(self, seconds: tuple[float, float]) -> None:
        await asyncio.sleep(self._draw.uniform(*seconds))


def a_node(name: str, *, finds_owners: bool) -> Object:
    """Return a Node with its devices."""
    devices = [
        Device(
            id=f"GPU-{name}-{index}",
            vendor="NVIDIA",
            index=index,
            count=REPLICAS,
            memory_mib=MEMORY_MIB,
            core_percent=100,
            type="NVIDIA A100",
            mode="hami-core",
            finds_owners=finds_owners,
        )
        for index in range(DEVICES)
    ]
    allocatable = {"nvidia.com/gpu": str(DEVICES * REPLICAS), "pods": "110"}
    return {
        "metadata": {"name": name, "annotations": {"hami.io/node-nvidia-register": encode_node_devices(devices)}},
        "spec": {},
        "status": {"allocatable": allocatable, "conditions": [{"type": "Ready", "status": "True"}]},
    }
