"""
ResourceClaims on a cluster, the ResourceSlices of our driver, and the kind of a Node.
"""

from hamicommon.dra.names import API_VERSION, DRIVER
from hamicommon.model import Object
from hamicommon.wire import keys
from harness.cluster import Cluster

API = f"/apis/{API_VERSION}"
_SINCE = (1, 36)
"""The first minor of Kubernetes whose claims share a device or take a part of one, unless its features are changed."""


def is_new_enough(kubernetes: str) -> bool:
    """Return whether this minor of Kubernetes shares devices by claims."""
    return tuple(map(int, kubernetes.split("."))) >= _SINCE


async def label_kind(cluster: Cluster, node: str, kind: str | None) -> None:
    """Make *node* one of *kind*; None: of the default kind."""
    await cluster.api.patch(f"/api/v1/nodes/{node}", {"metadata": {"labels": {keys.NODE_KIND: kind}}})


async def slices(cluster: Cluster) -> list[Object]:
    """Return the ResourceSlices of our driver."""
    found, _ = await cluster.api.list(f"{API}/resourceslices", fieldSelector=f"spec.driver={DRIVER}")
    return list(found)


async def delete_slices(cluster: Cluster) -> None:
    """Delete them: a driver that ends leaves them behind."""
    for found in await slices(cluster):
        await cluster.api.delete_if_exists(f"{API}/resourceslices/{found['metadata']['name']}", 0)


async def create_claims(cluster: Cluster, *manifests: Object) -> None:
    """Create claims and templates of claims."""
    for manifest in manifests:
        plural = f"{manifest['kind'].lower()}s"
        await cluster.api.create(f"{API}/namespaces/{cluster.namespace}/{plural}", manifest)


async def create_template(cluster: Cluster, name: str, **request: object) -> None:
    """Create a template of claims with one *request*, `gpu`."""
    await create_claims(cluster, a_template(name, **request))


def a_template(name: str, **request: object) -> Object:
    """Return a template of claims with one *request*, `gpu`."""
    spec = {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": request}]}}}
    return {"kind": "ResourceClaimTemplate", "metadata": {"name": name}, "spec": spec}


def with_claim(pod: Object, template: str) -> Object:
    """Return *pod*, whose container `main` uses a claim by *template*."""
    pod["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": template}]
    pod["spec"]["containers"][0]["resources"] = {"claims": [{"name": "gpu"}]}
    return pod
