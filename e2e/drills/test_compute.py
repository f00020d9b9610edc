"""
Programs that try to get more of a device's compute than their share.
"""

from pathlib import Path

import pytest

from drills.compute import ComputeContainer
from drills.promises import (
    HOLDS,
    NO_DEVICE,
    NOT_IN_NAMESPACE,
    NOT_IN_REGION,
    NOT_LOADED,
    SEVERAL_IN_NAMESPACE,
    compute_drill,
    holds,
    leaves,
)
from minicluster.kubelet.runtime.isolation import PRELOAD

BUSY = "busy 2000"


@compute_drill("statically linked program", library=leaves(NOT_LOADED), mps=holds(NOT_LOADED))
async def test_static_program(computing: ComputeContainer, programs: Path) -> None:
    """It has no dynamic linker, so nothing is preloaded."""
    if not (programs / "static").exists():
        pytest.skip("the C compiler cannot link statically")
    assert computing.promise == await computing.outcome(f"exec $STATIC {BUSY}")


@compute_drill("program for musl, or with its own dynamic linker", library=leaves(NOT_LOADED), mps=holds(NOT_LOADED))
async def test_other_dynamic_linker(computing: ComputeContainer) -> None:
    """Only glibc's dynamic linker reads /etc/ld.so.preload."""
    assert computing.promise == await computing.outcome(f"exec $LOADER {BUSY}")


@compute_drill("RTLD_DEEPBIND", library=HOLDS, mps=HOLDS)
async def test_deep_binding(computing: ComputeContainer) -> None:
    """What a library that is opened so calls is changed to the hooks at the next lookup."""
    assert computing.promise == await computing.outcome(f"exec $DEEPBIND {BUSY}")


@compute_drill("dlmopen", library=leaves(NOT_IN_REGION), mps=holds(NOT_IN_REGION))
async def test_other_linker_namespace(computing: ComputeContainer) -> None:
    """Nothing is preloaded into another namespace of the dynamic linker."""
    assert computing.promise == await computing.outcome(f"exec $DLMOPEN {BUSY}")


@compute_drill("second copy of the driver", library=leaves(NOT_IN_REGION), mps=holds(NOT_IN_REGION))
async def test_second_copy_of_the_driver(computing: ComputeContainer) -> None:
    """A mixture of two drivers would not work, so a second one is left alone, and a warning names it."""
    assert computing.promise == await computing.outcome(f"exec $COPY {BUSY}")


@compute_drill("env -i, ssh, su, cron", library=HOLDS, mps=HOLDS)
async def test_no_environment(computing: ComputeContainer) -> None:
    """Library and namespace are found by files that are where programs look without being told."""
    assert computing.promise == await computing.outcome(f"exec env -i $TAKE {BUSY}")


@compute_drill("CUDA_DISABLE_CONTROL set in the Pod", library=leaves(), mps=HOLDS)
async def test_library_switched_off_by_the_pod(computing: ComputeContainer) -> None:
    """The device plugin then mounts neither preload file nor limits, as HAMi's does."""
    computing.leave_out_library()
    assert computing.promise == await computing.outcome(f"exec $TAKE {BUSY}")


@compute_drill(
    "/etc/ld.so.preload covered in the program's own namespaces", library=leaves(NOT_LOADED), mps=holds(NOT_LOADED)
)
async def test_preload_file_covered(computing: ComputeContainer) -> None:
    """Where the kernel lets a user make namespaces, a program may mount over any file for itself."""
    cover = f"mount --bind /dev/null {PRELOAD} 2>/dev/null; exec $TAKE {BUSY}"
    assert computing.promise == await computing.outcome(f"exec unshare --user --map-root-user --mount sh -c '{cover}'")


@compute_drill("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE set by the program", library=HOLDS, mps=HOLDS)
async def test_own_percentage(computing: ComputeContainer) -> None:
    """The smaller of the variable and the namespace's percentage holds."""
    assert computing.promise == await computing.outcome(f"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=100 exec $TAKE {BUSY}")


@compute_drill("command to the daemon of MPS", library=HOLDS, mps=HOLDS)
async def test_command_to_the_daemon(computing: ComputeContainer) -> None:
    """Only root may change a namespace."""
    assert computing.promise == await computing.outcome(f"$RAISE; exec $TAKE {BUSY}")


@compute_drill(
    "CUDA_MPS_PIPE_DIRECTORY set by the program", library=HOLDS, mps=leaves(NOT_IN_NAMESPACE), required=NO_DEVICE
)
async def test_other_folder_of_pipes(computing: ComputeContainer) -> None:
    """A program that finds no server runs without MPS, if the device takes it."""
    assert computing.promise == await computing.outcome(f"CUDA_MPS_PIPE_DIRECTORY=/nowhere exec $TAKE {BUSY}")


@compute_drill("several processes", library=HOLDS, mps=leaves(SEVERAL_IN_NAMESPACE))
async def test_several_processes(computing: ComputeContainer) -> None:
    """MPS limits each client, so a container has its percentage once for each of its processes."""
    assert computing.promise == await computing.outcome(f"$TAKE {BUSY} & $TAKE {BUSY} & wait", results=2)
