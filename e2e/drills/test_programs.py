"""
Programs that are not loaded as others are.
"""

import os
from pathlib import Path

import pytest

from drills.memory import MemoryContainer
from drills.promises import ABOVE_GRANT, HOLDS, NOT_IN_REGION, NOT_LOADED, drill, leaves


@drill("statically linked program", library=leaves(ABOVE_GRANT, NOT_LOADED), driver=HOLDS)
async def test_static_program(container: MemoryContainer, programs: Path) -> None:
    """It has no dynamic linker, so nothing is preloaded."""
    if not (programs / "static").exists():
        pytest.skip("the C compiler cannot link statically")
    assert container.promise == await container.outcome("exec $STATIC 1100 1000")


@drill("program for musl, or with its own dynamic linker", library=leaves(ABOVE_GRANT, NOT_LOADED), driver=HOLDS)
async def test_other_dynamic_linker(container: MemoryContainer) -> None:
    """Only glibc's dynamic linker reads /etc/ld.so.preload."""
    assert container.promise == await container.outcome("exec $LOADER 1100 1000")


@drill("RTLD_DEEPBIND", library=HOLDS, driver=HOLDS)
async def test_deep_binding(container: MemoryContainer) -> None:
    """What a library that is opened so calls is changed to the hooks at the next lookup."""
    assert container.promise == await container.outcome("exec $DEEPBIND 1100 1000")


@drill("dlmopen", library=leaves(ABOVE_GRANT, NOT_IN_REGION), driver=HOLDS)
async def test_other_linker_namespace(container: MemoryContainer) -> None:
    """Nothing is preloaded into another namespace of the dynamic linker."""
    assert container.promise == await container.outcome("exec $DLMOPEN 1100 1000")


@drill("second copy of the driver", library=leaves(ABOVE_GRANT, NOT_IN_REGION), driver=HOLDS)
async def test_second_copy_of_the_driver(container: MemoryContainer) -> None:
    """A mixture of two drivers would not work, so a second one is left alone, and a warning names it."""
    assert container.promise == await container.outcome("exec $COPY 1100 1000")


@drill("setuid program beside others", library=leaves(NOT_IN_REGION), driver=HOLDS)
async def test_setuid_program(container: MemoryContainer) -> None:
    """It opens no file that its caller could have named, so it keeps to the share by itself and not with others."""
    if os.geteuid() != 0:
        pytest.skip("only root can make a program that runs as root")
    assert container.promise == await container.outcome(
        "hold $TAKE 600; setpriv --reuid=65534 --clear-groups $SETUID 600 400", results=3
    )


@drill("managed memory", library=HOLDS, driver=leaves(ABOVE_GRANT))
async def test_managed_memory(container: MemoryContainer) -> None:
    """The driver does not count memory that it may move to the host."""
    assert container.promise == await container.outcome("exec $TAKE managed 1100 1000")


@drill("memory imported from a process that ends", library=leaves(ABOVE_GRANT), driver=leaves(ABOVE_GRANT))
async def test_imported_memory(container: MemoryContainer) -> None:
    """Its maker is charged, also if that is in another container. So two containers can pass memory on."""
    handle = await container.lend(600)
    assert container.promise == await container.outcome(f"exec $TAKE 1100 1000 {handle}", results=3)


@drill(
    "managed memory in a statically linked program",
    library=leaves(ABOVE_GRANT, NOT_LOADED),
    driver=leaves(ABOVE_GRANT),
)
async def test_managed_memory_without_the_library(container: MemoryContainer, programs: Path) -> None:
    """Only the library counts managed memory, and it is not loaded."""
    if not (programs / "static").exists():
        pytest.skip("the C compiler cannot link statically")
    assert container.promise == await container.outcome("exec $STATIC managed 1100 1000")
