"""
One stage for all tests of this folder.
"""

import shutil
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from controlplane.programs.build import DEFAULT_KUBERNETES
from dra.stage import Stage, add_a_node_of_each_kind, staged, warm_up
from testbed.folders import short_folder


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def stage(pytestconfig: pytest.Config) -> AsyncIterator[Stage]:
    """Yield a control plane with a Node of each kind."""
    folder = short_folder()
    try:
        async with staged(folder, pytestconfig.getoption("--kubernetes") or DEFAULT_KUBERNETES) as found:
            await add_a_node_of_each_kind(found)
            await warm_up(found)
            yield found
    finally:
        shutil.rmtree(folder, ignore_errors=True)
