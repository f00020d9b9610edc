"""
Pods that come and go, as a controller would create them: a rejected Pod is replaced, a running one is deleted.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from harness.cluster import Cluster
from harness.manifests import a_pod
from minicluster.client import ApiError
from testbed.waiting import eventually

WORKERS = 2
RUN_SECONDS = 60.0
"""The time limit for a Pod to run while services are replaced."""


async def kept_running(
    cluster: Cluster, name: str, timeout_seconds: float = 30.0, annotations: dict[str, str] | None = None
) -> None:
    """
    Create the Pod, and replace it as a controller would whenever the kubelet rejects it, until it runs.

    A kubelet without its device plugin rejects new Pods with `UnexpectedAdmissionError`, which is final.
    Raises: NotInTimeError; AssertionError if the Pod failed for another reason.
    """
    path = f"/api/v1/namespaces/{cluster.namespace}/pods/{name}"

    async def runs() -> bool:
        try:
            pod = await cluster.pod(name)
        except ApiError as error:
            if error.status == 404:
                await cluster.create(a_pod(name, annotations=annotations, gpu=1, gpumem=1500, gpucores=10))
            return False
        if pod["status"]["phase"] == "Failed":
            assert pod["status"].get("reason") == "UnexpectedAdmissionError", pod["status"]
            await cluster.api.delete(path, 0)
        return bool(pod["status"]["phase"] == "Running")

    await eventually(runs, f"{name} runs", timeout_seconds)


@asynccontextmanager
async def coming_and_going(cluster: Cluster) -> AsyncIterator[list[str]]:
    """
    During a block, let WORKERS each run one Pod after another. Yields the growing list of Pods that ran.

    Raises: ExceptionGroup if a Pod did not run within RUN_SECONDS.
    """
    ran: list[str] = []
    is_over = asyncio.Event()
    numbers = itertools.count()

    async def work() -> None:
        while not is_over.is_set():
            name = f"load-{next(numbers)}"
            await kept_running(cluster, name, RUN_SECONDS)
            ran.append(name)
            await cluster.delete_pod(name)

    async with asyncio.TaskGroup() as group:
        for _ in range(WORKERS):
            group.create_task(work())
        try:
            yield ran
        finally:
            is_over.set()
