"""
Objects for tests, each with defaults for what the test does not care about.
"""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from hami_scheduler.explain.kube_filters import KubeView
from hami_scheduler.rules.vendors import vendor_rules
from hami_scheduler.state.cluster import Cluster
from hami_scheduler.state.ledger import Ledger
from hami_scheduler.values.device_use import DeviceUse
from hami_scheduler.values.grant import Grant
from hami_scheduler.values.inventory import NodeInventory
from hami_scheduler.values.policies import Policies
from hami_scheduler.values.request import PodRequest, read_request
from hami_scheduler.values.vendor import VendorRules
from hamicommon.config.device_config import load_device_config
from hamicommon.model import Device, MigPlacement, MigProfile, Object, Request, Share
from hamicommon.pod.amounts import Amounts
from hamicommon.pod.containers import ContainerKind

VECTORS = Path(__file__).parents[1] / "vectors"
NOW = datetime(2026, 1, 1, tzinfo=UTC)
QUOTA: Object = {
    "kind": "ResourceQuota",
    "metadata": {"namespace": "default", "name": "q"},
    "spec": {"hard": {"limits.nvidia.com/gpumem": "5000"}},
}
"""A ResourceQuota of 5000 MiB of NVIDIA memory in the namespace `default`."""


@cache
def vendors(config: str = "default") -> tuple[VendorRules, ...]:
    """Return the vendors under one of the device configs HAMi's chart renders."""
    return vendor_rules(load_device_config((VECTORS / f"device-config-{config}.yaml").read_text(encoding="utf-8")))


def a_device(uuid: str = "GPU-a", **fields: Any) -> Device:
    """Return a healthy device of 16 GiB for 10 containers."""
    defaults = {"count": 10, "memory_mib": 16384, "core_percent": 100, "type": "NVIDIA A10", "mode": "hami-core"}
    return Device(**{"id": uuid, "vendor": "NVIDIA", **defaults, **fields})


def a_mig_device(uuid: str = "GPU-m", **fields: Any) -> Device:
    """Return an A100 with 40 GiB in MIG mode."""
    profiles = (
        MigProfile("1g.5gb", 4864, 14, 1, tuple(MigPlacement(start, 1) for start in range(7))),
        MigProfile("2g.10gb", 9856, 28, 2, tuple(MigPlacement(start, 2) for start in (0, 2, 4))),
        MigProfile("3g.20gb", 19968, 42, 3, (MigPlacement(0, 4), MigPlacement(4, 4))),
        MigProfile("7g.40gb", 40192, 100, 7, (MigPlacement(0, 8),)),
    )
    defaults: Object = {"count": 7, "memory_mib": 40960, "mode": "mig", "mig_profiles": profiles}
    return a_device(uuid, **{**defaults, **fields})


def a_use(uuid: str = "GPU-a", *, promised: tuple[int, int, int] = (0, 0, 0), **fields: Any) -> DeviceUse:
    """Return a device with *promised* (replicas, MiB, percent) of it."""
    return DeviceUse(a_device(uuid, **fields), False, *promised)


def an_inventory(name: str = "n1", *devices: Device, **fields: Any) -> NodeInventory:
    """Return a Node with *devices*, one by default."""
    return NodeInventory(name, devices or (a_device(),), **fields)


def a_register(*devices: Device) -> str:
    """Return the register annotation of *devices*, as HAMi 2.10 writes it."""
    return json.dumps(
        [
            {
                "id": device.id,
                "index": device.index,
                "count": device.count,
                "devmem": device.memory_mib,
                "devcore": device.core_percent,
                "type": device.type,
                "numa": device.numa,
                "mode": device.mode,
                "health": device.healthy,
                **({"allocation": "identity"} if device.finds_owners else {}),
            }
            for device in devices
        ]
    )


def a_node(name: str = "n1", *devices: Device, replicas: int = 10, **annotations: str) -> Object:
    """Return a v1 Node offering *devices*; annotation keys are written with `__` for `/` and `_` for `-`."""
    found = {_key(key): text for key, text in annotations.items()}
    if devices:
        found.setdefault("hami.io/node-nvidia-register", a_register(*devices))
    return {
        "metadata": {"name": name, "annotations": found},
        "status": {"allocatable": {"nvidia.com/gpu": str(replicas)}},
    }


def _key(name: str) -> str:
    domain, _, rest = name.partition("__")
    return f"{domain.replace('_', '.')}/{rest.replace('_', '-')}"


def a_container(name: str = "app", *, sidecar: bool = False, **limits: int) -> Object:
    """Return a container asking `gpu`, `gpumem`, `gpucores`, `gpumem_percentage` as given."""
    amounts = {f"nvidia.com/{key.replace('_', '-')}": str(value) for key, value in limits.items()}
    container: Object = {"name": name, "resources": {"limits": amounts}}
    return {**container, "restartPolicy": "Always"} if sidecar else container


def a_pod(
    name: str = "p",
    *containers: Object,
    inits: Sequence[Object] = (),
    namespace: str = "default",
    uid: str = "",
    node: str = "",
    allocated: str | None = None,
    phase: str = "Pending",
    annotations: dict[str, str] | None = None,
) -> Object:
    """Return a v1 Pod; with *node* it is bound there, with *allocated* it carries that allocation."""
    found = dict(annotations or {})
    if allocated is not None:
        found["hami.io/vgpu-devices-allocated"] = allocated
    spec: Object = {"containers": list(containers or (a_container(gpu=1, gpumem=1000),)), "initContainers": list(inits)}
    if node:
        spec["nodeName"] = node
    return {
        "metadata": {"name": name, "namespace": namespace, "uid": uid or f"uid-{name}", "annotations": found},
        "spec": spec,
        "status": {"phase": phase},
    }


def a_request(pod: Object | None = None, *, config: str = "default", **policies: str) -> PodRequest:
    """Return what *pod* asks."""
    return read_request(pod or a_pod(), vendors(config), Policies(**policies))


def asks(memory_mib: int = 1000, core_percent: int = 0, count: int = 1, memory_percent: int | None = None) -> Request:
    """Return what one container asks of NVIDIA."""
    return Request("NVIDIA", count, memory_mib, memory_percent, core_percent)


def a_share(uuid: str = "GPU-a", memory_mib: int = 1000, core_percent: int = 0) -> Share:
    """Return one container's part of one device."""
    return Share(uuid, "NVIDIA", memory_mib, core_percent)


def a_grant(uid: str = "u1", node: str = "n1", *shares: Share, **fields: Any) -> Grant:
    """Return a Pod of one container that holds *shares*, one by default."""
    return Grant(
        uid,
        fields.pop("namespace", "default"),
        f"pod-{uid}",
        node,
        (ContainerKind.APP,),
        {"NVIDIA": (shares or (a_share(),),)},
        **fields,
    )


def a_cluster(*nodes: Object, config: str = "default") -> Cluster:
    """Return a cluster with *nodes*, whose contained problems nobody hears of."""
    cluster = Cluster(vendors(config), lambda _kind, _name, _problem: None)
    cluster.replace_nodes(list(nodes))
    return cluster


def only_devices(cluster: Cluster) -> KubeView:
    """Return what a kube-scheduler sees that rules out no Node of *cluster*."""
    return KubeView(dict.fromkeys((*cluster.ledger.names, *cluster.ledger.silent)))


def promise_of(ledger: Ledger, node: str, uuid: str) -> Amounts:
    """Return what is promised of one device; nothing if it is unknown."""
    entry = ledger.node(node)
    row = entry.rows.get(uuid) if entry else None
    return Amounts() if row is None else Amounts(*ledger.promised[row].tolist())


def promises(cluster: Cluster, node: str) -> dict[str, list[int]]:
    """Return per device of *node* with promises: replicas, MiB, percent."""
    if cluster.ledger.node(node) is None:
        return {}
    found = {
        use.device.id: [use.replicas, use.memory_mib, use.core_percent] for use in cluster.ledger.device_uses(node)
    }
    return {uuid: amounts for uuid, amounts in found.items() if any(amounts)}
