"""
A neighbour's controllers beside a real cluster, as a process with the rights of the administrator.

Owns the process and its definitions of resources. Must never know which program it is.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from harness.clusters.real import RealCluster
from testbed.processes import Supervisor


@asynccontextmanager
async def beside(
    cluster: RealCluster, argv: Sequence[str], definitions: Sequence[Path], environment: Mapping[str, str] | None = None
) -> AsyncIterator[None]:
    """
    Run the command *argv* during a block. Afterwards its definitions and all their objects are gone.

    definitions     files or folders with CustomResourceDefinitions
    """
    name = Path(argv[0]).name
    files = [flag for path in definitions for flag in ("-f", str(path))]
    processes = Supervisor(cluster.folder / f"beside-{name}")
    await asyncio.to_thread(cluster.control_plane.kubectl, "apply", "--server-side", *files)
    processes.start(name, argv, environment)
    try:
        yield
    finally:
        # Before the process ends, because objects have finalizers that only it removes.
        await asyncio.to_thread(cluster.control_plane.kubectl, "delete", "--ignore-not-found", "--timeout=60s", *files)
        processes.stop()
