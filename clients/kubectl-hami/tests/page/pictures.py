"""
Pictures of clusters of any size, for tests of the page.

A number decides all of a picture, so that two runs draw the same.
"""

import random
from datetime import UTC, datetime, timedelta
from typing import Any

Json = dict[str, Any]
NOW = datetime(2026, 3, 2, 9, 30, tzinfo=UTC)
TEAMS = ("vision", "speech", "search", "ranking", "robotics", "notebooks")
WORK = ("train", "serve", "embed", "tune", "eval", "notebook")
MODELS = (("NVIDIA A100-SXM4-80GB", 81920), ("NVIDIA H100 80GB HBM3", 81559), ("NVIDIA L40S", 46068))
SIZES = (0.125, 0.25, 0.25, 0.5, 0.5, 1.0)
HOSTILE = "<img src=x onerror=\"document.title='owned'\">\u202ered\u0007"


def a_share(pod: str, namespace: str = "default", **fields: Any) -> Json:
    """Return a share of 3000 MiB and 25 % that uses 2000 MiB."""
    share = {
        "namespace": namespace,
        "pod": pod,
        "container": "main",
        "kind": "app",
        "memoryMib": 3000,
        "corePercent": 25,
        "holds": True,
        "usedMemoryMib": 2000,
        "usedCorePercent": 11.5,
        "throttledSeconds": 0.0,
    }
    share |= fields
    return {"limitMemoryMib": share["memoryMib"], **share}


def a_device(node: str, index: int, *shares: Json, **fields: Any) -> Json:
    """Return a device of 40960 MiB with *shares*."""
    device = {
        "id": f"GPU-{node}-{index}",
        "node": node,
        "index": index,
        "model": "NVIDIA A100-SXM4-40GB",
        "vendor": "NVIDIA",
        "mode": "hami-core",
        "replicas": 10,
        "memoryMib": 40960,
        "corePercent": 100,
        "isHealthy": True,
        "isCordoned": False,
        "grantedReplicas": len(shares),
        "grantedMemoryMib": sum(share["memoryMib"] for share in shares),
        "grantedCorePercent": sum(share["corePercent"] for share in shares),
        "usedMemoryMib": sum(share["usedMemoryMib"] or 0 for share in shares) + 400,
        "usedCorePercent": 35.0,
        "shares": list(shares),
    }
    return device | fields


def a_node(name: str, *devices: Json, **fields: Any) -> Json:
    """Return a node that is ready and measured."""
    node = {"name": name, "isReady": True, "isCordoned": False, "isMeasured": True, "devices": list(devices)}
    return node | fields


def a_waiting_pod(pod: str, namespace: str = "default", minutes: float = 12, **fields: Any) -> Json:
    """Return a Pod that waits since *minutes*."""
    waiting = {
        "namespace": namespace,
        "pod": pod,
        "since": (NOW - timedelta(minutes=minutes)).isoformat(),
        "asks": "nvidia.com/gpu 1, nvidia.com/gpumem 45000",
        "cause": "0 of 2 nodes: 2 lack 45000 MiB on any NVIDIA device (best has 40960)",
    }
    return waiting | fields


def a_status(pod: str, namespace: str = "default", minutes: float = 90, **fields: Any) -> Json:
    """Return the status of a Pod that runs since *minutes*, of a Deployment."""
    status = {
        "namespace": namespace,
        "pod": pod,
        "phase": "Running",
        "since": (NOW - timedelta(minutes=minutes)).isoformat(),
        "owner": "Deployment/train",
        "cause": "",
    }
    return status | fields


def a_picture(*nodes: Json, waiting: tuple[Json, ...] = (), **fields: Any) -> Json:
    """Return a picture of *nodes*."""
    picture = {
        "cluster": "demo",
        "takenAt": NOW.isoformat(),
        "nodes": list(nodes),
        "waiting": list(waiting),
        "pods": [],
        "problems": [],
    }
    return picture | fields


def a_cluster(devices: int, seed: int = 1) -> Json:
    """Return the picture of a busy cluster with *devices*, eight on a node."""
    dice = random.Random(seed)
    nodes = []
    for number in range(-(-devices // 8)):
        name = f"gpu-{number + 1:03d}" if devices > 8 else "gpu-node-1"
        model, memory_mib = MODELS[number % len(MODELS)]
        here = [
            a_device(
                name,
                index,
                *_shares(dice, memory_mib),
                model=model,
                memoryMib=memory_mib,
                isHealthy=dice.random() > 0.012,
                usedCorePercent=round(dice.uniform(5, 95), 1),
            )
            for index in range(min(8, devices - 8 * number))
        ]
        nodes.append(a_node(name, *here, isReady=number % 60 != 41, isMeasured=number % 40 != 17))
    waits = sorted((round(dice.expovariate(1 / 45), 1) for _ in range(max(2, devices // 40))), reverse=True)
    waiting = tuple(
        a_waiting_pod(
            f"{dice.choice(WORK)}-{dice.randrange(16**5):05x}",
            dice.choice(TEAMS),
            minutes=minutes,
            asks=f"nvidia.com/gpu {count}, nvidia.com/gpumem 60000",
            cause=f"0 of {len(nodes) + 1} nodes: {len(nodes) + 1} have fewer than {count} devices with 60000 MiB free",
        )
        for minutes, count in [(minutes, dice.choice((2, 4, 8))) for minutes in waits]
    )
    pods = [_status(dice, share) for node in nodes for device in node["devices"] for share in device["shares"]]
    pods += [
        a_status(
            one["pod"],
            one["namespace"],
            phase="Pending",
            since=one["since"],
            owner=_owner(one["pod"]),
            cause=one["cause"],
        )
        for one in waiting
    ]
    return a_picture(*nodes, waiting=waiting, pods=pods, cluster="production")


def _owner(pod: str) -> str:
    work, _, ending = pod.partition("-")
    return f"Deployment/{work}" if work in {"serve", "embed"} else f"Job/{work}-{ending[:2]}"


def _status(dice: random.Random, share: Json) -> Json:
    owner = "" if share["pod"].startswith("notebook") else _owner(share["pod"])
    if dice.random() > 0.02:
        return a_status(share["pod"], share["namespace"], minutes=round(dice.expovariate(1 / 3000)), owner=owner)
    cause = "container main: ImagePullBackOff: Back-off pulling image"
    return a_status(share["pod"], share["namespace"], minutes=4, owner=owner, phase="Pending", cause=cause)


def _shares(dice: random.Random, memory_mib: int) -> list[Json]:
    left, shares = dice.choice((0, 0.5, 1.0, 1.0, 1.0)), []
    while left > 0.1 and dice.random() < 0.92:
        part = dice.choice([size for size in SIZES if size <= left])
        left -= part
        granted_mib = int(memory_mib * part)
        used = dice.choice((0.0, dice.uniform(0.1, 0.5), dice.uniform(0.5, 0.98)))
        core_percent = int(part * 100) if dice.random() < 0.7 else 0
        shares.append(
            a_share(
                f"{dice.choice(WORK)}-{dice.randrange(16**5):05x}",
                dice.choice(TEAMS),
                memoryMib=granted_mib,
                corePercent=core_percent,
                usedMemoryMib=int(granted_mib * used),
                usedCorePercent=round(part * 100 * used, 1),
                throttledSeconds=round(dice.uniform(0, 90), 1),
            )
        )
    return shares
