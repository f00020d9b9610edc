"""
Objects of a test on a real cluster: manifests as kubectl applies and deletes them, and the Pods of a Job.

Must never know which program they are for.
"""

import asyncio

import yaml

from hamicommon.model import Object
from harness.clusters.real import RealCluster


async def apply(cluster: RealCluster, *manifests: Object) -> None:
    """Apply *manifests* in the cluster's namespace, as kubectl does."""
    text = yaml.safe_dump_all(manifests)
    await asyncio.to_thread(
        cluster.control_plane.kubectl, "apply", f"--namespace={cluster.namespace}", "-f", "-", content=text
    )


async def delete(cluster: RealCluster, *manifests: Object) -> None:
    """Delete *manifests*, and wait until they are gone."""
    text = yaml.safe_dump_all(manifests)
    flags = (f"--namespace={cluster.namespace}", "--ignore-not-found", "--timeout=60s", "-f", "-")
    await asyncio.to_thread(cluster.control_plane.kubectl, "delete", *flags, content=text)


async def pods_of(cluster: RealCluster, job: str) -> list[Object]:
    """Return the Pods of a Job that are not being deleted."""
    return await pods_with(cluster, f"batch.kubernetes.io/job-name={job}")


async def pods_with(cluster: RealCluster, labels: str) -> list[Object]:
    """Return the Pods of the cluster's namespace with *labels*, a selector, that are not being deleted."""
    path = f"/api/v1/namespaces/{cluster.namespace}/pods"
    found, _ = await cluster.api.list(path, labelSelector=labels)
    return [pod for pod in found if not pod["metadata"].get("deletionTimestamp")]
