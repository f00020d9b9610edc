"""
Fixtures: the programs, built once, and a container for each test.
"""

import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import pytest
import pytest_asyncio

from drills.compute import ComputeContainer
from drills.container import KINDS, Container, build_programs
from drills.memory import MemoryContainer
from drills.promises import MPS, MPS_REQUIRED, Enforced


@pytest.fixture(scope="session")
def programs() -> Iterator[Path]:
    """A folder with what takes memory. Every user can enter it."""
    with tempfile.TemporaryDirectory(prefix="hami-drills-") as name:
        Path(name).chmod(0o755)
        build_programs(Path(name))
        yield Path(name)


@pytest_asyncio.fixture(loop_scope="session")
async def container(programs: Path, enforced: Enforced) -> AsyncIterator[MemoryContainer]:
    """A container with a share of memory that is enforced as the drill says."""
    _need_namespaces()
    async with _running(MemoryContainer(programs, enforced)) as made:
        yield made


@pytest_asyncio.fixture(loop_scope="session")
async def computing(programs: Path, enforced: Enforced) -> AsyncIterator[ComputeContainer]:
    """A container with a share of compute that is enforced as the drill says."""
    _need_namespaces()
    if enforced.by in {MPS, MPS_REQUIRED} and os.geteuid() != 0:
        pytest.skip("a daemon of MPS for several users needs root")
    async with _running(ComputeContainer(programs, enforced)) as made:
        yield made


def _need_namespaces() -> None:
    if not KINDS:
        pytest.skip("containers need namespaces, as root or as an ordinary user who may make them")


C = TypeVar("C", bound=Container)


@asynccontextmanager
async def _running(made: C) -> AsyncIterator[C]:
    yield made
    await made.remove()
    shutil.rmtree(made.host.folder)
