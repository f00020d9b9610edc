"""
KEDA on a real cluster, from the manifests of its module, with a Prometheus that scrapes the services.

Owns the images, and how replicas and metrics are read. KEDA's operator activates and deactivates a Deployment, and its
server of external metrics answers the HorizontalPodAutoscalers of kube-controller-manager. Its webhook, which only
validates, is left out. Must never change a query of an example.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import yaml

from controlplane.cluster import ControlPlane
from controlplane.images import oci
from controlplane.programs import build
from hamicommon.model import Object
from harness.clusters import names
from harness.clusters.real import RealCluster
from neighbours import prometheus
from neighbours.charts import example
from neighbours.objects import pods_with
from neighbours.page import Neighbour
from neighbours.programs import KEDA_MODULE, KEDA_VERSION, PROMETHEUS, PROMETHEUS_VERSION, keda, module_folder
from testbed.waiting import eventually

NEIGHBOUR = Neighbour((("KEDA", KEDA_VERSION),), ())
NAMESPACE = "keda"
IMAGE = f"localhost/keda:{KEDA_VERSION}"
PROMETHEUS_IMAGE = f"localhost/prometheus:{PROMETHEUS_VERSION}"
READY_SECONDS = 180
WAIT_SECONDS = 150
"""The HorizontalPodAutoscaler decides every 15 s."""
MONITORING = f"""
apiVersion: v1
kind: Namespace
metadata: {{name: monitoring}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {{name: prometheus, namespace: monitoring}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {{name: prometheus, namespace: hami}}
rules:
  - {{apiGroups: [""], resources: [pods], verbs: [get, list, watch]}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {{name: prometheus, namespace: hami}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: prometheus}}
subjects: [{{kind: ServiceAccount, name: prometheus, namespace: monitoring}}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {{name: prometheus, namespace: monitoring}}
spec:
  selector: {{matchLabels: {{app: prometheus}}}}
  template:
    metadata: {{labels: {{app: prometheus}}}}
    spec:
      serviceAccountName: prometheus
      terminationGracePeriodSeconds: 1
      containers:
        - name: prometheus
          image: {PROMETHEUS_IMAGE}
          args: [--config.file=/etc/prometheus/prometheus.yaml, --storage.tsdb.path=/data]
          readinessProbe: {{httpGet: {{path: /-/ready, port: 9090}}, periodSeconds: 1}}
          volumeMounts:
            - {{name: config, mountPath: /etc/prometheus}}
            - {{name: data, mountPath: /data}}
      volumes:
        - {{name: config, configMap: {{name: prometheus}}}}
        - {{name: data, emptyDir: {{}}}}
---
apiVersion: v1
kind: Service
metadata: {{name: prometheus, namespace: monitoring}}
spec:
  selector: {{app: prometheus}}
  ports: [{{port: 9090}}]
"""


@asynccontextmanager
async def running(cluster: RealCluster) -> AsyncIterator[None]:
    """Run KEDA and Prometheus during a block, with a name server, by which they find each other."""
    control = cluster.control_plane
    objects = await asyncio.to_thread(_manifests, control)
    await asyncio.to_thread(_load, control)
    try:
        async with names.served(control):
            await asyncio.to_thread(_apply, control, objects)
            yield
    finally:
        # Namespaces last, because what is in them may have a finalizer that only KEDA removes.
        text = yaml.safe_dump_all(reversed(objects))
        await asyncio.to_thread(
            control.kubectl, "delete", "--ignore-not-found", "--timeout=90s", "-f", "-", content=text
        )


def _load(control: ControlPlane) -> None:
    built = build.made(keda(), print)
    files = {"/keda": built / "operator", "/keda-adapter": built / "adapter"}
    control.load_image(oci.packed(build.cache() / f"{built.name}.tar", IMAGE, files, ["/keda"]))
    built = build.made(PROMETHEUS, print)
    files = {"/prometheus": built / "prometheus"}
    control.load_image(oci.packed(build.cache() / f"{built.name}.tar", PROMETHEUS_IMAGE, files, ["/prometheus"]))


def _manifests(control: ControlPlane) -> list[Object]:
    """Return KEDA's objects with our image, and those of Prometheus."""
    module = module_folder(KEDA_MODULE)
    found = list(yaml.safe_load_all(control.kubectl("kustomize", str(module / "config/minimal"))))
    for each in found:
        if each["kind"] == "Deployment":
            spec = each["spec"]["template"]["spec"]
            spec["containers"][0] |= {"image": IMAGE, "imagePullPolicy": "IfNotPresent"}
            # The manifests ask for a user that is not root, and leave its number to the image.
            spec["securityContext"]["runAsUser"] = 1000
    config = yaml.safe_load(prometheus.EXAMPLE.read_text())
    config["global"] = {"scrape_interval": prometheus.SCRAPE}
    del config["rule_files"]
    metadata = {"name": "prometheus", "namespace": "monitoring"}
    data = {"prometheus.yaml": yaml.safe_dump(config)}
    monitoring = list(yaml.safe_load_all(MONITORING))
    return [*found, *monitoring, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}]


def _apply(control: ControlPlane, objects: list[Object]) -> None:
    """Apply *objects*, namespaces and definitions first, and wait until all Deployments and the metrics are ready."""
    first = [each for each in objects if each["kind"] in ("Namespace", "CustomResourceDefinition")]
    for part in (first, [each for each in objects if each not in first]):
        control.kubectl("apply", "--server-side", "-f", "-", content=yaml.safe_dump_all(part))
    timeout = f"--timeout={READY_SECONDS}s"
    for each in objects:
        if each["kind"] == "Deployment":
            name, namespace = each["metadata"]["name"], each["metadata"]["namespace"]
            control.kubectl("rollout", "status", f"deployment/{name}", f"--namespace={namespace}", timeout)
    control.kubectl("wait", "--for=condition=Available", "apiservice/v1beta1.external.metrics.k8s.io", timeout)


def manifests(cluster: RealCluster, file: str) -> list[Object]:
    """Return the objects of a manifest of the example, whose queries name the cluster's namespace."""
    text = example("keda", file).read_text().replace('namespace="default"', f'namespace="{cluster.namespace}"')
    return list(yaml.safe_load_all(text))


async def pods_of(cluster: RealCluster, app: str) -> list[Object]:
    """Return the Pods of a Deployment that are not being deleted."""
    return await pods_with(cluster, f"app={app}")


async def replicas(cluster: RealCluster, app: str, running: int, *, others_wait: bool = False) -> list[Object]:
    """Wait until *running* Pods of a Deployment run, and others exist without a Node or do not, and return all."""

    async def probe() -> tuple[list[Object]] | None:
        found = await pods_of(cluster, app)
        placed = [pod for pod in found if pod["spec"].get("nodeName")]
        are_running = len(placed) == running and all(pod["status"]["phase"] == "Running" for pod in placed)
        return (found,) if are_running and (len(found) > running) == others_wait else None

    what = f"{running} Pods of {app} run and {'others' if others_wait else 'none'} wait"
    [found] = await eventually(probe, what, WAIT_SECONDS)
    return found
