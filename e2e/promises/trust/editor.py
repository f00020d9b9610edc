"""
A tenant of the real cluster: what it does there is checked by RBAC and by the admission policies.
"""

import asyncio
import json
from collections.abc import Collection, Sequence

from controlplane.cluster import ClusterError
from hamicommon.model import Object
from harness.clusters.real import RealCluster
from testbed.waiting import eventually

RBAC = "/apis/rbac.authorization.k8s.io/v1"
HAMIS_SCHEDULER = "system:serviceaccount:kube-system:hami-scheduler"
MORE_THAN_AN_EDITOR = [
    {"apiGroups": [""], "resources": ["pods/status", "pods/ephemeralcontainers"], "verbs": ["patch", "update"]},
    {"apiGroups": [""], "resources": ["pods/binding", "bindings", "pods/eviction"], "verbs": ["create"]},
]
"""The rights of a tenant who runs a scheduler or a controller."""


class Editor:
    """A ServiceAccount that may edit its namespace only."""

    def __init__(self, cluster: RealCluster, user: str) -> None:
        self.cluster = cluster
        self.user = user

    async def does(self, *arguments: str, content: Object | None = None) -> str:
        """Run kubectl as this account, and return its output. Raises: ClusterError."""
        run = self.cluster.control_plane.kubectl
        place = (f"--as={self.user}", f"--namespace={self.cluster.namespace}")
        return await asyncio.to_thread(run, *arguments, *place, content=json.dumps(content))

    async def creates(self, manifest: Object) -> None:
        """Create an object. Raises: ClusterError."""
        await self.does("create", "--filename=-", content=manifest)

    async def posts(self, resource: str, content: Object) -> None:
        """Create *content* at the path of a subresource. Raises: ClusterError."""
        path = f"/api/v1/namespaces/{self.cluster.namespace}/{resource}"
        await self.does("create", f"--raw={path}", "--filename=-", content=content)

    async def annotates(self, pod: str, key: str, text: str | None, *options: str) -> None:
        """Set or remove an annotation of a Pod. Raises: ClusterError."""
        patch = json.dumps({"metadata": {"annotations": {key: text}}})
        await self.does("patch", "pod", pod, "--type=merge", f"--patch={patch}", *options)


async def an_editor(cluster: RealCluster, more: Sequence[Object] = (), others: Collection[str] = ()) -> Editor:
    """Return an account with the role `edit` and the rules *more* in the namespace, as *others* have too."""
    found = Editor(cluster, f"system:serviceaccount:{cluster.namespace}:editor")
    subjects = [
        {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": user} for user in (found.user, *others)
    ]
    await cluster.api.create(
        f"{RBAC}/namespaces/{cluster.namespace}/roles",
        {"kind": "Role", "metadata": {"name": "more"}, "rules": [*more]},
    )
    for kind, name in (("ClusterRole", "edit"), ("Role", "more")):
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}
        binding = {"kind": "RoleBinding", "metadata": {"name": name}, "roleRef": role, "subjects": subjects}
        await cluster.api.create(f"{RBAC}/namespaces/{cluster.namespace}/rolebindings", binding)

    async def may() -> bool:
        wanted = ("create", "pods", *(["--subresource=binding"] if more else []))
        try:
            return (await found.does("auth", "can-i", *wanted)).strip() == "yes"
        except ClusterError:
            return False

    await eventually(may, "the editor's roles are in force")
    return found
