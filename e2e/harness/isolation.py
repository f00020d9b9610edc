"""
A namespace for each test, and what must hold after it.

Must never start or change a cluster.
"""

import itertools
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from harness.cluster import Cluster
from harness.invariants import check

_names = (f"test-{os.getpid()}-{number}" for number in itertools.count(1))
"""Names that no earlier run has used, because a cluster may be kept."""


async def enter_new_namespace(cluster: Cluster) -> None:
    """Make a namespace, and use it from now on."""
    await cluster.use_namespace(next(_names))


@asynccontextmanager
async def own_namespace(cluster: Cluster) -> AsyncIterator[None]:
    """
    Use a new namespace during a block. After it, all services run, the invariants hold, and the Pods are deleted.

    Raises: AssertionError if an invariant does not hold.
    """
    await enter_new_namespace(cluster)
    yield
    await cluster.heal()
    try:
        await check(cluster)
    finally:
        await cluster.delete_all_pods()
    await check(cluster)
