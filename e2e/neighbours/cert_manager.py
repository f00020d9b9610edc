"""
cert-manager's controllers beside a real cluster.

Must never write a certificate.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from controlplane.programs.build import made
from harness.clusters.real import RealCluster
from neighbours.beside import beside
from neighbours.page import Neighbour
from neighbours.programs import CERT_MANAGER, CERT_MANAGER_MODULE, CERT_MANAGER_VERSION, module_folder

NEIGHBOUR = Neighbour(
    (("cert-manager", CERT_MANAGER_VERSION),), ("webhook.tls.mode=cert-manager", "webhook.tls.issuerRef")
)


@asynccontextmanager
async def running(cluster: RealCluster) -> AsyncIterator[None]:
    """Run the controllers during a block."""
    program = await asyncio.to_thread(made, CERT_MANAGER, print) / "cert-manager"
    definitions = await asyncio.to_thread(module_folder, CERT_MANAGER_MODULE) / "deploy/crds"
    async with beside(cluster, [str(program), f"--config={cluster.kubeconfig}"], [definitions]):
        yield
