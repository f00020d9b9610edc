"""
Programs in another environment, and with other preload files.
"""

from pathlib import Path

from drills.memory import MemoryContainer
from drills.promises import ABOVE_GRANT, HOLDS, NOT_LOADED, drill, leaves
from minicluster.kubelet.runtime.isolation import PRELOAD


@drill("env -i, ssh, su, cron", library=HOLDS, driver=HOLDS)
async def test_no_environment(container: MemoryContainer) -> None:
    """The library is in a preload file, and the limits are in a file beside it."""
    assert container.promise == await container.outcome("exec env -i $TAKE 1100 1000")


@drill("LD_PRELOAD unset or empty", library=HOLDS, driver=HOLDS)
async def test_no_preload_variable(container: MemoryContainer) -> None:
    """The library is in a preload file."""
    assert container.promise == await container.outcome("unset LD_PRELOAD; LD_PRELOAD= exec $TAKE 1100 1000")


@drill("CUDA_DISABLE_CONTROL set by the program", library=HOLDS, driver=HOLDS)
async def test_library_switched_off_by_the_program(container: MemoryContainer) -> None:
    """Beside a limits file the library ignores it."""
    assert container.promise == await container.outcome("CUDA_DISABLE_CONTROL=true exec $TAKE 1100 1000")


@drill("CUDA_DISABLE_CONTROL set in the Pod", library=leaves(ABOVE_GRANT), driver=HOLDS)
async def test_library_switched_off_by_the_pod(container: MemoryContainer) -> None:
    """The device plugin then mounts neither preload file nor limits, as HAMi's does."""
    container.leave_out_library()
    assert container.promise == await container.outcome("exec $TAKE 1100 1000")


@drill("image with its own /etc/ld.so.preload", library=HOLDS, driver=HOLDS)
async def test_own_preload_file(container: MemoryContainer, tmp_path: Path) -> None:
    """The device plugin's file covers it, and can be neither changed nor removed."""
    own = tmp_path / "preload"
    own.touch()
    container.image.append((PRELOAD, str(own), False))
    assert container.promise == await container.outcome(
        f"exec 2>/dev/null; rm {PRELOAD}; mv {own} {PRELOAD}; true >{PRELOAD}; exec $TAKE 1100 1000"
    )


@drill(
    "/etc/ld.so.preload covered in the program's own namespaces", library=leaves(ABOVE_GRANT, NOT_LOADED), driver=HOLDS
)
async def test_preload_file_covered(container: MemoryContainer) -> None:
    """Where the kernel lets a user make namespaces, a program may mount over any file for itself."""
    cover = f"mount --bind /dev/null {PRELOAD} 2>/dev/null; exec $TAKE 1100 1000"
    assert container.promise == await container.outcome(f"exec unshare --user --map-root-user --mount sh -c '{cover}'")
