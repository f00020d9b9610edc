"""
Programs in surroundings that the library cannot choose: no /proc, refused system calls, frozen neighbours, a clock that
is set back. A thousand processes are in `unit/test_region_slots.c`.
"""

import errno
import platform
import signal
import time
from dataclasses import replace

import pytest
from containers import SANITIZER, Container

_FALLOCATE, _FCHMOD, _KILL = [285], [91], [62]
REFUSED = {
    "fallocate": _FALLOCATE,
    "fchmod": _FCHMOD,
    "kill": _KILL,
    "all of them": [*_FALLOCATE, *_FCHMOD, *_KILL],
}
"""System calls of x86-64 that the library makes and a profile may refuse. Locks are in `unit/test_region_file.c`."""

CHILD = """
import subprocess
def child(code):
    return subprocess.Popen([sys.executable, "-c", "from client import *\\n" + code], stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, text=True)
def outcome(code):
    return json.loads(child(code).communicate("\\n")[0].splitlines()[-1])
import json
"""


@pytest.mark.skipif(bool(SANITIZER), reason="a sanitizer reads /proc itself")
def test_without_proc_processes_share_the_limit(container: Container) -> None:
    """
    Whether a process lives is known from its lock and its pid. What a killed one had is given back.
    """
    result = replace(container, imports=("client", "namespaces")).run(
        CHILD
        + """
try:
    cover_with_nothing("/proc")
except OSError as error:
    say(str(error))
    sys.exit(0)
holder = child("say(Cuda().allocate(700 * MIB)[0])\\nwait()")
held = json.loads(holder.stdout.readline())
beside = [outcome(f"say(Cuda().allocate({mib} * MIB)[0])") for mib in (400, 200)]
holder.kill()
holder.wait()
say([held, beside, outcome("say(Cuda().allocate(1000 * MIB)[0])")])
"""
    )
    if isinstance(result, str):
        pytest.skip(f"no disk can be mounted: {result}")

    assert [0, [2, 0], 0] == result


@pytest.mark.skipif(platform.machine() != "x86_64" or bool(SANITIZER), reason="the numbers are those of x86-64")
@pytest.mark.parametrize("error", [errno.EPERM, errno.ENOSYS], ids=["EPERM", "ENOSYS"])
@pytest.mark.parametrize("calls", REFUSED.values(), ids=REFUSED)
def test_refused_system_calls_leave_the_limit(container: Container, calls: list[int], error: int) -> None:
    """
    A process under such a profile keeps to its limit, and never ends because of it.
    """
    result, errors = replace(container, imports=("client", "namespaces")).run_and_listen(
        f"""
refuse_system_calls({calls!r}, {error})
cuda = Cuda()
kernel = cuda.kernel(10)
say([cuda.allocate(mib * MIB)[0] for mib in (1100, 900, 200)] + [cuda.launch(kernel) for _ in range(3)])
""",
        CUDA_DEVICE_SM_LIMIT="50",
    )

    assert [2, 0, 2, 0, 0, 0] == result
    assert errors.count("\n") <= 2, errors


@pytest.mark.skipif(platform.machine() != "x86_64" or bool(SANITIZER), reason="the numbers are those of x86-64")
@pytest.mark.parametrize("calls", [_FALLOCATE, _FCHMOD, _KILL], ids=list(REFUSED)[:3])
def test_processes_whose_system_calls_are_refused_share_the_limit(container: Container, calls: list[int]) -> None:
    """
    The container's processes count together.
    """
    result = replace(container, imports=("client", "namespaces")).run(
        CHILD
        + f"""
refuse_system_calls({calls!r}, {errno.EPERM})
cuda = Cuda()
held = cuda.allocate(700 * MIB)[0]
say([held, [outcome(f"say(Cuda().allocate({{mib}} * MIB)[0])") for mib in (400, 200)]])
"""
    )

    assert [0, [2, 0]] == result


def test_processes_that_are_frozen_anywhere_stop_no_other(container: Container) -> None:
    """
    The processes of a frozen cgroup stop where they are, here most of them between a charge and the driver's answer.
    Others start, allocate and end beside them, within the limit.
    """
    slow = "cuMemAlloc_v2:*:SLEEP_20,cuMemFree_v2:*:SLEEP_20"
    busy = """
cuda = Cuda()
say("started")
while True:
    result, pointer = cuda.allocate(100 * MIB)
    if result == 0:
        cuda.free(pointer)
"""
    frozen = [container.start(busy, FAKE_DRIVER_FAULTS=slow) for _ in range(3)]
    for process in frozen:
        assert process.stdout is not None
        process.stdout.readline()
    seconds = []
    for round_number in range(10):
        time.sleep(0.003 * round_number)
        for process in frozen:
            process.send_signal(signal.SIGSTOP)
        began = time.monotonic()
        assert 0 == container.run("say(Cuda().allocate(700 * MIB)[0])")
        seconds.append(time.monotonic() - began)
        for process in frozen:
            process.send_signal(signal.SIGCONT)
    running = [process.poll() for process in frozen]
    for process in frozen:
        process.kill()
        process.communicate()

    assert [None, None, None] == running
    assert max(seconds) < 8, seconds


def test_clock_that_is_set_back_again_and_again_changes_nothing(container: Container) -> None:
    """
    Limits hold, waits end, and dead processes are swept, whatever the wall clock says.
    """
    steps = str(container.build / "libclock_steps.so")
    program = """
import time
cuda = Cuda()
kernel, began = cuda.kernel(1000), time.monotonic()
results = [cuda.allocate(mib * MIB)[0] for mib in (1100, 900, 200)]
results += sorted({cuda.launch(kernel) for _ in range(500)})
cuda.library.cuCtxSynchronize()
say([results, time.monotonic() - began, [cuda.visible()[0] for _ in range(50)][-1]])
"""
    preload = ":".join(path for path in (SANITIZER, steps, str(container.build / "libvgpu.so")) if path)
    results, seconds, free_mib = container.run(
        program, LD_PRELOAD=preload, CUDA_DEVICE_SM_LIMIT="50", GPU_CORE_UTILIZATION_POLICY="force"
    )

    assert [[2, 0, 2, 0], 98] == [results, free_mib]
    assert 0.5 < seconds < 10
