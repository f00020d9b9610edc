"""
A process that dies at a system call of the region: the next one has all memory, and waits for nobody.

Each call is a step: the region gets its mode, its space, a lock is taken or given, the life of a slot's owner is looked
at. The kernel ends the process at the call itself, so the step before it is done and this one is not.
"""

import platform
import signal
import time
from dataclasses import replace

import pytest
from containers import SANITIZER, Container

from hamicommon.wire.region.codec import decode_region

pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64" or bool(SANITIZER), reason="the numbers are those of x86-64"
)
_FALLOCATE, _FCHMOD, _KILL, _FCNTL, _F_OFD_SETLK = 285, 91, 62, 72, 37
LOCKING = (_FCNTL, _F_OFD_SETLK)
MIB = 1 << 20
FRESH = ""
"""Nobody has used the region."""
LEFT = "cuda = Cuda()\ncuda.allocate(700 * MIB)\nsay(0)\nos.kill(os.getpid(), signal.SIGKILL)"
"""A killed process has left its memory in the region."""
WAITED_SECONDS = 5.0
"""More than a start takes on a busy machine, and less than a lock is waited for."""
POINTS = {
    "a new region gets its mode": (FRESH, "", _FCHMOD),
    "a new region gets its space": (FRESH, "", _FALLOCATE),
    "the first lock of a new region": (FRESH, "", LOCKING),
    "a lock while memory is held": (FRESH, "cuda = Cuda()\ncuda.allocate(300 * MIB)", LOCKING),
    "the first lock of a dead process's region": (LEFT, "", LOCKING),
    "the life of a slot's owner is looked at": (LEFT, "cuda = Cuda()", _KILL),
}
"""What was before, what the process does before, and the system call at which it dies."""


@pytest.mark.parametrize(("earlier", "before", "call"), POINTS.values(), ids=POINTS)
def test_next_process_has_all_memory(
    container: Container, earlier: str, before: str, call: int | tuple[int, int]
) -> None:
    """The dead process's memory comes back, and no lock is left."""
    inside = replace(container, imports=("client", "namespaces"))
    if earlier:
        inside.start(f"import os, signal\n{earlier}").communicate(timeout=60)
    program = f"{before}\ndie_at_system_calls([{call!r}])\ncuda = Cuda()\ncuda.use(1)\ncuda.allocate(600 * MIB)\nsay(0)"
    killed = inside.start(program)
    killed.communicate(timeout=60)
    assert -signal.SIGSYS == killed.returncode

    begin = time.monotonic()
    result = container.run("say(Cuda().allocate(1000 * MIB)[0])")

    assert 0 == result
    assert time.monotonic() - begin < WAITED_SECONDS
    slots = decode_region(container.region.read_bytes()).slots
    assert [1000 * MIB] == [use.total for slot in slots for use in slot.memory.values() if use.total]
