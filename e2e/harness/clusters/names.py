"""
The name server of a real cluster: CoreDNS, which Pods need to reach Services by name.

Owns its objects. Few tests need names, so a cluster has it only during a block.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from controlplane.cluster import ControlPlane
from controlplane.images import oci
from controlplane.machines import network
from controlplane.programs import build

PROGRAM = "/usr/local/bin/coredns"
IMAGE = f"localhost/coredns:{build.COREDNS_VERSION}"
READY_SECONDS = 120
MANIFEST = f"""\
apiVersion: v1
kind: ServiceAccount
metadata: {{name: coredns, namespace: kube-system}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {{name: coredns}}
rules:
  - {{apiGroups: [""], resources: [namespaces, services], verbs: [list, watch]}}
  - {{apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [list, watch]}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {{name: coredns}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: coredns}}
subjects: [{{kind: ServiceAccount, name: coredns, namespace: kube-system}}]
---
apiVersion: v1
kind: ConfigMap
metadata: {{name: coredns, namespace: kube-system}}
data:
  Corefile: |
    .:53 {{
      errors
      ready
      kubernetes cluster.local
    }}
---
apiVersion: apps/v1
kind: Deployment
metadata: {{name: coredns, namespace: kube-system}}
spec:
  selector: {{matchLabels: {{app: coredns}}}}
  template:
    metadata: {{labels: {{app: coredns}}}}
    spec:
      serviceAccountName: coredns
      dnsPolicy: Default
      terminationGracePeriodSeconds: 0
      containers:
        - name: coredns
          image: {IMAGE}
          args: [-conf=/etc/coredns/Corefile]
          readinessProbe: {{httpGet: {{path: /ready, port: 8181}}, periodSeconds: 1}}
          volumeMounts: [{{name: config, mountPath: /etc/coredns}}]
      volumes: [{{name: config, configMap: {{name: coredns}}}}]
---
apiVersion: v1
kind: Service
metadata: {{name: kube-dns, namespace: kube-system}}
spec:
  clusterIP: {network.DNS_SERVICE}
  selector: {{app: coredns}}
  ports: [{{name: udp, port: 53, protocol: UDP}}, {{name: tcp, port: 53, protocol: TCP}}]
"""


@asynccontextmanager
async def served(cluster: ControlPlane) -> AsyncIterator[None]:
    """Let every Pod find Services by name during a block."""
    try:
        await asyncio.to_thread(_start, cluster)
        yield
    finally:
        await asyncio.to_thread(cluster.kubectl, "delete", "--ignore-not-found", "-f", "-", content=MANIFEST)


def _start(cluster: ControlPlane) -> None:
    program = build.made(build.COREDNS, print) / "coredns"
    archive = build.cache() / f"{program.parent.name}.tar"
    cluster.load_image(oci.packed(archive, IMAGE, {PROGRAM: program}, [PROGRAM]))
    cluster.kubectl("apply", "-f", "-", content=MANIFEST)
    ready = ("deployment/coredns", "--namespace=kube-system", f"--timeout={READY_SECONDS}s")
    cluster.kubectl("rollout", "status", *ready)
