"""
The virtual clock: exact, the same in every run, shared by the processes of a node, and not stopped by a death.
"""

import json
import signal
import time

import pytest
from containers import Container
from virtual import not_under_tsan, virtual

SLEEPERS = """
import threading, time
order = []
def sleeper(name, milliseconds, times):
    for _ in range(times):
        time.sleep(milliseconds / 1000)
        order.append([name, time.clock_gettime_ns(time.CLOCK_MONOTONIC) - began])
began = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
"""


def test_sleeping_takes_no_time_and_exactly_what_was_asked(container: Container) -> None:
    """
    An hour of sleep is an hour on every clock that a program reads, to the nanosecond, and passes at once.
    """
    began = time.monotonic()
    results = container.run(
        """
import time
clocks = [time.CLOCK_MONOTONIC, time.CLOCK_BOOTTIME, time.CLOCK_MONOTONIC_RAW, time.CLOCK_REALTIME]
before = [time.clock_gettime_ns(clock) for clock in clocks]
time.sleep(3600)
say([time.clock_gettime_ns(clock) - then for clock, then in zip(clocks, before)])
""",
        preload=False,
        **virtual(container),
    )

    assert [3600 * 10**9] * 4 == results
    assert time.monotonic() - began < 60


@not_under_tsan
def test_threads_wake_in_order_of_time(container: Container) -> None:
    """
    The thread that is due first runs first. Threads due at the same time run in the order in which they went to sleep.
    """
    order = container.run(
        SLEEPERS
        + """
threads = [threading.Thread(target=sleeper, args=row) for row in (["a", 30, 2], ["b", 20, 3], ["c", 60, 1])]
for thread in threads: thread.start()
ctypes.CDLL(None).fake_time_leave()
for thread in threads: thread.join()
say(order)
""",
        preload=False,
        **virtual(container),
    )
    at = [(name, ns // 10**6) for name, ns in order]

    assert [("b", 20), ("a", 30), ("b", 40), ("c", 60), ("a", 60), ("b", 60)] == at
    assert all(ns % 10**6 == 0 for _, ns in order)


def test_processes_share_one_clock(container: Container) -> None:
    """
    The clock waits until all have started, and each sees the time that the others sleep.
    """
    program = """
import time
began = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
for _ in range(1000):
    time.sleep(%s / 1000)
say([began, time.clock_gettime_ns(time.CLOCK_MONOTONIC) - began])
"""
    periods = (1, 2, 3)
    processes = [
        container.start(program % period, preload=False, **virtual(container, len(periods), rank))
        for rank, period in enumerate(periods)
    ]
    results = [json.loads(process.communicate(timeout=60)[0]) for process in processes]

    assert len({began for began, _ in results}) == 1
    assert [period * 10**9 for period in periods] == [passed for _, passed in results]


def test_a_run_is_the_same_every_time(container: Container) -> None:
    """
    Three processes that use the device at random times do so identically in a second run.
    """
    program = """
from device import *
kernel, times = function("lognormal_500_80"), []
for number in range(50):
    launch(kernel)
    sleep(0.1 * (number % 7))
    lib.cuCtxSynchronize()
    times.append(now())
say(times)
"""

    def run() -> list[str]:
        for name in ("clock", "schedule", "state"):
            (container.folder / "hardware" / name).unlink(missing_ok=True)
        processes = [container.start(program, preload=False, **virtual(container, 3, rank)) for rank in range(3)]
        return [process.communicate(timeout=60)[0] for process in processes]

    first = run()
    assert all(first)
    assert first == run()


@pytest.mark.parametrize(
    "waits", ["while True: pass", "time.sleep(10**9)", "sys.stdin.read()"], ids=["runs", "sleeps", "blocks"]
)
def test_killed_process_does_not_stop_time(container: Container, waits: str) -> None:
    """
    Wherever a process is killed, the others' time continues.
    """
    victim = container.start(
        f"import time\nsay(0)\ntime.sleep(1)\nsay(1)\n{waits}", preload=False, **virtual(container, 2, 0)
    )
    survivor = container.start("import time\ntime.sleep(5)\nsay(1)", preload=False, **virtual(container, 2, 1))
    assert victim.stdout is not None
    assert ["0\n", "1\n"] == [victim.stdout.readline(), victim.stdout.readline()]
    victim.send_signal(signal.SIGKILL)

    assert "1" == survivor.communicate(timeout=20)[0].strip()
    victim.communicate(timeout=20)


@not_under_tsan
def test_thread_that_waits_for_something_else_can_leave_the_clock(container: Container) -> None:
    """
    Between fake_time_leave() and fake_time_join() a thread may wait for a pipe while the others' time passes.
    """
    passed = container.run(
        SLEEPERS
        + """
library = ctypes.CDLL(None)
reader, writer = os.pipe()
thread = threading.Thread(target=lambda: (time.sleep(10), os.write(writer, b".")))
thread.start()
library.fake_time_leave()
os.read(reader, 1)
library.fake_time_join()
say(time.clock_gettime_ns(time.CLOCK_MONOTONIC) - began)
""",
        preload=False,
        **virtual(container),
    )

    assert 10 * 10**9 == passed


@not_under_tsan
def test_parent_waits_for_its_child(container: Container) -> None:
    """
    A forked child takes part from its first sleep, and its parent may wait for it.
    """
    passed = container.run(
        """
import time
began = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
child = os.fork()
if not child:
    time.sleep(7)
    os._exit(0)
os.waitpid(child, 0)
time.sleep(1)
say(time.clock_gettime_ns(time.CLOCK_MONOTONIC) - began)
""",
        preload=False,
        **virtual(container),
    )

    assert 8 * 10**9 == passed


def test_scaled_time_runs_faster(container: Container) -> None:
    """
    At twenty times the speed a sleep of a second takes a twentieth, and is a second to the program.
    """
    began = time.monotonic()
    passed = container.run(
        "import time\nbegan = time.monotonic()\ntime.sleep(100)\nsay(time.monotonic() - began)",
        preload=False,
        **(virtual(container) | {"FAKE_TIME": "scaled:100"}),
    )

    assert 100 <= passed < 400
    assert time.monotonic() - began < 30


def test_unknown_kind_of_time_is_refused(container: Container) -> None:
    """
    An invalid setting ends the program with a message that names it.
    """
    process = container.start("say(1)", preload=False, **(virtual(container) | {"FAKE_TIME": "virtuel"}))
    output, errors = process.communicate(timeout=20)

    assert "" == output
    assert 'FAKE_TIME is "virtuel", not virtual' in errors
