"""
The Pods that stand for the services of an embedded cluster, as the chart's Pods do on a real one.

The services are processes beside the kubelets. Their Pods are mirror Pods, which a kubelet never starts: they say what
already runs on its Node, with its labels and ports. Neighbours: `embedded` starts the processes.
"""

from collections.abc import Mapping
from importlib.metadata import version

from hamicommon.model import Object
from minicluster.client import Client

HAMI = "hami"
"""The namespace of the services, as on a real cluster."""
COMPONENT = "app.kubernetes.io/component"
MIRROR = "kubernetes.io/config.mirror"


async def mirror(api: Client, name: str, component: str, node: str, ports: Mapping[str, int]) -> None:
    """Create the Pod *name* of a service on *node*, running, with its *ports* by name."""
    path = f"/api/v1/namespaces/{HAMI}/pods"
    created = await api.create(path, _pod(name, component, node, ports))
    status = {
        "phase": "Running",
        "podIP": "127.0.0.1",
        "hostIP": "127.0.0.1",
        "conditions": [{"type": kind, "status": "True"} for kind in ("PodScheduled", "ContainersReady", "Ready")],
        "containerStatuses": [{"name": component, "ready": True, "started": True, "restartCount": 0}],
    }
    await api.request("PUT", f"{path}/{name}/status", {**created, "status": status})


async def config_map(api: Client, name: str, key: str, text: str) -> None:
    """Create the ConfigMap *name* as the chart does, with *text* under *key*."""
    found = {"metadata": {"namespace": HAMI, "name": name}, "data": {key: text}}
    await api.create(f"/api/v1/namespaces/{HAMI}/configmaps", found)


def _pod(name: str, component: str, node: str, ports: Mapping[str, int]) -> Object:
    labels = {
        COMPONENT: f"hami-{component}",
        "app.kubernetes.io/part-of": HAMI,
        "app.kubernetes.io/version": version("hami-scheduler"),
        "hami.io/webhook": "ignore",
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": HAMI, "name": name, "labels": labels, "annotations": {MIRROR: name}},
        "spec": {
            "nodeName": node,
            "hostNetwork": True,
            "containers": [
                {
                    "name": component,
                    "image": f"{HAMI}/{component}",
                    "ports": [{"name": port, "containerPort": number} for port, number in ports.items()],
                }
            ],
        },
    }
