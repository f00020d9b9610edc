"""
Pods that come and go, as a controller would create them: a rejected Pod is replaced, a running one is deleted.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from hamicommon.model import Object
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
    Wait until the Pod runs, and do what its controller would do until then.

    Raises: NotInTimeError; its cause says why if the Pod failed and is not replaced.
    """
    await eventually(partial(running, cluster, name, annotations), f"{name} runs", timeout_seconds)


async def running(
    cluster: Cluster, name: str, annotations: dict[str, str] | None = None, manifest: Object | None = None
) -> Object | None:
    """
    Return the Pod if it runs. Create it if there is none, and replace it if the kubelet rejected it, as a controller.

    It is created by *manifest*, if one is given. A kubelet without its device plugin rejects new Pods with
    `UnexpectedAdmissionError`, which is final.
    Raises: AssertionError if the Pod failed for another reason.
    """
    try:
        pod = await cluster.pod(name)
    except ApiError as error:
        if error.status == 404:
            await cluster.create(manifest or a_pod(name, annotations=annotations, gpu=1, gpumem=1500, gpucores=10))
        return None
    if pod["status"]["phase"] == "Failed":
        assert pod["status"].get("reason") == "UnexpectedAdmissionError", pod["status"]
        await cluster.api.delete(f"/api/v1/namespaces/{cluster.namespace}/pods/{name}", 0)
    return pod if pod["status"]["phase"] == "Running" else None


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
