"""
Fixtures: the programs, built once, and a container for each test.
"""

import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from drills.container import KINDS, Container, build_programs
from drills.promises import Enforced


@pytest.fixture(scope="session")
def programs() -> Iterator[Path]:
    """A folder with what takes memory. Every user can enter it."""
    with tempfile.TemporaryDirectory(prefix="hami-drills-") as name:
        Path(name).chmod(0o755)
        build_programs(Path(name))
        yield Path(name)


@pytest_asyncio.fixture(loop_scope="session")
async def container(programs: Path, enforced: Enforced) -> AsyncIterator[Container]:
    """A container with a share that is enforced as the drill says."""
    if not KINDS:
        pytest.skip("containers need namespaces, as root or as an ordinary user who may make them")
    folder = Path(tempfile.mkdtemp(prefix="hami-drill-"))
    folder.chmod(0o755)
    made = Container(folder, programs, enforced)
    yield made
    await made.remove()
    shutil.rmtree(folder)
