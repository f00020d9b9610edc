"""
Pods that come and go, as controllers make them: what is refused for good is replaced, what ran is ended.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from harness.cluster import Cluster, eventually
from harness.manifests import a_pod
from minicluster.client import ApiError

WORKERS = 2
RUN_SECONDS = 60.0
"""How long a Pod may take until it runs while services are exchanged."""


async def kept_running(
    cluster: Cluster, name: str, timeout_seconds: float = 30.0, annotations: dict[str, str] | None = None
) -> None:
    """
    Do what a controller does: create the Pod, and replace it if its kubelet refused it, until it runs.

    A kubelet whose device plugin is away refuses new Pods for good (`UnexpectedAdmissionError`); replacing them is the
    controller's part. Raises: NotInTimeError; AssertionError when the Pod failed for another reason.
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
    Let WORKERS make one Pod after the other run and end, for the length of a block; yield the names that ran so far.

    Raises: ExceptionGroup when a Pod did not run in RUN_SECONDS.
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
