"""
Karpenter with its kwok provider beside a real cluster. That makes Node objects without a kubelet.

Owns how its objects are read. Must never change a NodeOverlay of the example.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from controlplane.programs.build import made
from hamicommon.model import Object
from harness.clusters.real import RealCluster
from neighbours.beside import beside
from neighbours.page import Neighbour
from neighbours.programs import KARPENTER, KARPENTER_MODULE, KARPENTER_VERSION, module_folder
from testbed.ports import free_port

NEIGHBOUR = Neighbour((("Karpenter", KARPENTER_VERSION),), ())
API = "/apis/karpenter.sh/v1"


@asynccontextmanager
async def running(cluster: RealCluster) -> AsyncIterator[None]:
    """Run it during a block, with its gate for NodeOverlays."""
    program = await asyncio.to_thread(made, KARPENTER, print) / "kwok"
    module = await asyncio.to_thread(module_folder, KARPENTER_MODULE)
    environment = {
        **os.environ,
        "KUBECONFIG": str(cluster.kubeconfig),
        "FEATURE_GATES": "NodeOverlay=true",
        "DISABLE_LEADER_ELECTION": "true",
        "METRICS_PORT": str(free_port()),
        "HEALTH_PROBE_PORT": str(free_port()),
    }
    definitions = [module / "pkg/apis/crds", module / "kwok/apis/crds"]
    async with beside(cluster, [str(program)], definitions, environment):
        yield


async def claims(cluster: RealCluster) -> list[Object]:
    """Return the NodeClaims, one for each Node that Karpenter adds."""
    found, _ = await cluster.api.list(f"{API}/nodeclaims")
    return found
