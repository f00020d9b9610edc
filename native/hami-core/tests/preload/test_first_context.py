"""
Contexts of several processes: one process finds out what the first on a device costs, and nobody is refused meanwhile.
"""

import asyncio
import signal
import subprocess

import pytest
from containers import Container

from hamicommon.wire.region.codec import decode_region
from testbed.waiting import eventually


def _is_holding(container: Container, device: int) -> bool:
    """Whether a process of the container holds memory of the device, before it has any."""
    return container.region.exists() and any(
        slot.memory[device].total for slot in decode_region(container.region.read_bytes()).slots
    )


def _held_mib(container: Container, process: "subprocess.Popen[str]") -> int:
    """Wait until a process holds memory of the first device, and return how much."""

    def held_mib() -> int:
        slots = decode_region(container.region.read_bytes()).slots
        return sum(slot.memory[0].total >> 20 for slot in slots if slot.pid == process.pid)

    return asyncio.run(eventually(held_mib, "memory held for a context"))


def test_processes_that_start_together_know_themselves(container: Container) -> None:
    """
    Eight at once, each with a context: the sum is exact.
    """
    processes = [container.start("cuda = Cuda()\nsay(0)\nwait()", FAKE_DRIVER_CONTEXT_MIB="50") for _ in range(8)]
    for process in processes:
        assert process.stdout is not None
        process.stdout.readline()
    slots = decode_region(container.region.read_bytes()).slots
    for process in processes:
        process.communicate("\n", timeout=20)

    assert {50 << 20} == {slot.memory[0].context for slot in slots}
    assert 8 == len(slots)


def test_first_contexts_of_two_devices_are_made_at_the_same_time(container: Container) -> None:
    """
    A process whose first context takes a minute does not delay the first context of another device.
    """
    slow = container.start("Cuda()", FAKE_DRIVER_FAULTS="cuDevicePrimaryCtxRetain:1:SLEEP_60000")
    asyncio.run(eventually(lambda: _is_holding(container, device=0), "memory held for the slow process's context"))
    slept, result = container.run(
        """
import time
def asleep():
    ran, queued, _ = open("/proc/self/schedstat").read().split()
    return time.monotonic() - (int(ran) + int(queued)) / 1e9
before = asleep()
cuda = Cuda(1)
say([asleep() - before, cuda.allocate(MIB)[0]])
""",
        FAKE_DRIVER_CONTEXT_MIB="150",
    )
    slow.kill()
    slow.communicate(timeout=20)

    assert 0 == result
    assert slept < 4


def test_context_that_is_being_made_is_known_when_the_one_before_it_has_ended(container: Container) -> None:
    """
    A process whose context is being made took its cost from another one, which has ended. A third process holds that
    cost too, and not all that is left: then the second could not allocate.
    """
    first = container.start("Cuda()\nsay(0)\nwait()", FAKE_DRIVER_CONTEXT_MIB="150")
    assert first.stdout is not None
    first.stdout.readline()
    second = container.start(
        """
import threading
lib = ctypes.CDLL("libcuda.so.1")
def say_when_made():
    while not lib.fake_calls(b"cuDevicePrimaryCtxRetain"): pass
    say(0)
threading.Thread(target=say_when_made).start()
say(Cuda().allocate(600 * MIB)[0])
wait()
""",
        FAKE_DRIVER_CONTEXT_MIB="150",
        FAKE_DRIVER_FAULTS="cuDevicePrimaryCtxRetain:1:SLEEP_1500",
    )
    assert second.stdout is not None
    second.stdout.readline()
    held = [_held_mib(container, second)]
    second.send_signal(signal.SIGSTOP)
    first.communicate("\n", timeout=20)
    third = container.start("Cuda()", FAKE_DRIVER_FAULTS="cuDevicePrimaryCtxRetain:1:SLEEP_60000")
    held.append(_held_mib(container, third))
    second.send_signal(signal.SIGCONT)
    output, errors = second.communicate("\n", timeout=20)
    third.kill()
    third.communicate(timeout=20)

    assert ([150, 150], "0\n", "") == (held, output, errors)


def _beside_a_first_context(container: Container, program: str) -> tuple[int, str]:
    """
    Start *program*, which says something and waits for a line. Send it while another process makes the first context.
    Returns the MiB that this process holds meanwhile, and what *program* says then.
    """
    process = container.start(f"{program}\nwait()", FAKE_DRIVER_CONTEXT_MIB="150")
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdout.readline()
    other = container.start(
        "Cuda()\nwait()",
        FAKE_DRIVER_CONTEXT_MIB="150",
        FAKE_DRIVER_FAULTS="cuDevicePrimaryCtxRetain:1:SLEEP_3000",
    )
    held_mib = _held_mib(container, other)
    process.stdin.write("\n")
    process.stdin.flush()
    answer = process.stdout.readline()
    for ending in (process, other):
        ending.communicate("\n", timeout=20)
    return held_mib, answer


def test_context_of_known_cost_waits_for_a_process_that_finds_out_what_one_costs(container: Container) -> None:
    """
    A process that had a context makes another one, while a second process makes its first and holds all that is left.
    """
    program = """
cuda = Cuda()
cuda.library.cuDevicePrimaryCtxRelease_v2(0)
say(0)
wait()
cuda.use(0)
say(cuda.allocate(600 * MIB)[0])
"""

    assert (1000, "0\n") == _beside_a_first_context(container, program)


@pytest.mark.parametrize(
    "allocation",
    [
        "lib.cuMemCreate(byref(handle), c_size_t(600 * MIB), properties, c_uint64(0))",
        "lib.cuMemPoolCreate(byref(handle), properties)"
        " or lib.cuMemAllocFromPoolAsync(byref(pointer), c_size_t(600 * MIB), handle, None)",
    ],
    ids=["physical", "pool"],
)
def test_allocation_without_a_context_waits_for_a_process_that_finds_out_what_one_costs(
    container: Container, allocation: str
) -> None:
    """
    Memory of a device can be allocated without a context there, while another process holds all that is left.
    """
    program = f"""
class Properties(ctypes.Structure):
    _fields_ = [("type", c_uint), ("handles", c_uint), ("location", c_uint), ("ordinal", c_int), ("rest", c_uint64 * 9)]
lib, handle, pointer = Cuda(1).library, c_uint64(), c_uint64()
properties = byref(Properties(type=1, location=1, ordinal=0))
say(0)
wait()
say({allocation})
"""

    assert (1000, "0\n") == _beside_a_first_context(container, program)


def test_contexts_are_charged_before_they_are_made(container: Container) -> None:
    """
    Twelve processes want 100 MiB each of 1000 at once: as many get a context as fit, and the device never has more in
    use.
    """
    program = "cuda = Cuda()\nsay(bool(cuda.context.value))\nwait()"
    processes = [container.start(program, FAKE_DRIVER_CONTEXT_MIB="100") for _ in range(12)]
    made = []
    for process in processes:
        assert process.stdout is not None
        made.append(process.stdout.readline())
    peak = container.run(
        "lib = ctypes.CDLL('libcuda.so.1')\nlib.fake_truth_memory_peak.restype = c_uint64\n"
        "say(lib.fake_truth_memory_peak(0) // MIB)"
    )
    for process in processes:
        process.communicate("\n", timeout=20)

    assert (10, 1000) == (made.count("true\n"), peak)
