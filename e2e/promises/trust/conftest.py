"""
Tenants of the real cluster.
"""

import pytest_asyncio

from harness.clusters.real import RealCluster
from promises.trust.editor import HAMIS_SCHEDULER, MORE_THAN_AN_EDITOR, Editor, an_editor


@pytest_asyncio.fixture(loop_scope="session")
async def editor(cluster: RealCluster) -> Editor:
    """A tenant with the cluster's role `edit` and more. HAMi's scheduler has both as well."""
    return await an_editor(cluster, MORE_THAN_AN_EDITOR, [HAMIS_SCHEDULER])


@pytest_asyncio.fixture(loop_scope="session")
async def tenant(cluster: RealCluster) -> Editor:
    """A tenant with the cluster's role `edit` and no more."""
    return await an_editor(cluster)
