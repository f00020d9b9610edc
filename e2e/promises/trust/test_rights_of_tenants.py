"""
Neither a tenant with the cluster's role `edit` nor a service's account may write what is another's, by RBAC alone.
"""

import json

import pytest

from controlplane.cluster import ClusterError
from hamicommon.wire import keys
from harness.clusters.real import RealCluster
from harness.clusters.release import HAMI
from harness.manifests import SLEEP, a_container, a_pod
from promises.trust.editor import Editor

pytestmark = pytest.mark.real_only

REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
WRITES = ("create", "update", "patch", "delete")


async def allowed(account: Editor, resource: str, **more: str) -> list[str]:
    """Return which of WRITES the API server allows *account*, of objects that *more* narrows down."""
    found = []
    for verb in WRITES:
        attributes = {"namespace": account.cluster.namespace, "verb": verb, "resource": resource, **more}
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {"user": account.user, "resourceAttributes": attributes},
        }
        answer = await account.cluster.api.create(REVIEWS, review)
        found += [verb] if answer["status"]["allowed"] else []
    return found


async def test_tenant_changes_no_node(tenant: Editor) -> None:
    """No annotation of a device plugin or an operator, no lock and no label; its own Pods are its own."""
    assert [] == await allowed(tenant, "nodes")
    assert [] == await allowed(tenant, "nodes", subresource="status")
    assert [*WRITES] == await allowed(tenant, "pods")


async def test_tenant_changes_no_device_class(tenant: Editor) -> None:
    """The newest one that maps a resource decides for the whole cluster which devices Pods get by it."""
    assert [] == await allowed(tenant, "deviceclasses", group="resource.k8s.io")


async def test_tenant_changes_no_status_of_a_pod(tenant: Editor) -> None:
    """The scheduler's condition there fences late Bindings, and the phase says whether a Pod still holds its share."""
    await tenant.creates(a_pod("own", [{**a_container(command=SLEEP), "resources": {}}]))
    conditions = [{"type": keys.SCHEDULER_TERM, "status": "True", "reason": "Forged", "message": "somebody"}]

    assert [] == await allowed(tenant, "pods", subresource="status")
    for status in ({"conditions": conditions}, {"phase": "Succeeded"}):
        patch = json.dumps({"status": status})
        with pytest.raises(ClusterError, match="forbidden"):
            await tenant.does("patch", "pod", "own", "--subresource=status", "--type=merge", f"--patch={patch}")


async def test_only_the_scheduler_says_who_leads(cluster: RealCluster, tenant: Editor) -> None:
    """Neither a tenant nor the account of another service may write a Lease in the namespace of the services."""
    services = ("scheduler", "webhook", "device-plugin", "monitor")
    accounts = {name: Editor(cluster, f"system:serviceaccount:{HAMI}:hami-{name}") for name in services}
    may = {
        name: await allowed(account, "leases", group="coordination.k8s.io", namespace=HAMI, name="hami-scheduler")
        for name, account in (*accounts.items(), ("tenant", tenant))
    }

    assert ["create", "update"] == may.pop("scheduler")
    assert {"webhook": [], "device-plugin": [], "monitor": [], "tenant": []} == may
