"""
How the fake driver runs work: in the order of streams, side by side where it fits, in slices between processes.

All in virtual time, so every number is exact.
"""

import json
from typing import Any

import pytest
from containers import Container
from virtual import not_under_tsan, virtual

MS = 10**6
DEVICE = "from device import *\n"


def alone(container: Container, program: str, **extra: str) -> Any:
    """Run a program alone on the device."""
    return container.run(DEVICE + program, preload=False, **virtual(container), **extra)


def together(container: Container, *programs: str, **extra: str) -> list[Any]:
    """Run programs that start at the same time."""
    processes = [
        container.start(DEVICE + program, preload=False, **virtual(container, len(programs), rank), **extra)
        for rank, program in enumerate(programs)
    ]
    outcomes = [process.communicate(timeout=60) for process in processes]
    assert [""] * len(programs) == [errors for _, errors in outcomes]
    return [json.loads(output) for output, _ in outcomes]


ORDERS = {
    "one stream": ([1, 3, 6], "[(whole[1], a), (whole[2], a), (whole[3], a)]"),
    "two streams, each kernel fills the device": ([1, 3, 4], "[(whole[1], a), (whole[2], b), (whole[1], a)]"),
    "two halves fit": ([2, 2, 4], "[(half[2], a), (half[2], b), (half[2], c)]"),
    "a late half fits in a gap that is long enough": ([2, 3, 1], "[(half[2], a), (whole[1], b), (half[1], c)]"),
    "a gap too short is left": ([1, 2, 4], "[(half[1], a), (whole[1], b), (half[2], c)]"),
    "legacy waits for blocking streams": ([2, 3], "[(half[2], a), (half[1], None)]"),
    "blocking streams wait for legacy": ([2, 3], "[(half[2], None), (half[1], a)]"),
    "a non-blocking stream waits for no other": ([2, 1], "[(half[2], None), (half[1], free)]"),
    "a per-thread default stream is a blocking one": (
        [2, 3, 3],
        "[(half[2], None), (half[1], c_void_p(2)), (half[1], a)]",
    ),
}


@pytest.mark.parametrize(("ends", "steps"), ORDERS.values(), ids=ORDERS)
def test_work_runs_in_order_and_where_it_fits(container: Container, ends: list[int], steps: str) -> None:
    """
    Kernels end when streams, default streams and room on the device allow. A row says when, in milliseconds.
    """
    prelude = """
a, b, c, free, own = stream(), stream(), stream(), stream(1), c_void_p(2)
whole = {ms: function(f"busy_{ms}000") for ms in (1, 2, 3)}
half = {ms: function(f"busy_{ms}000@50") for ms in (1, 2, 3)}
"""

    assert ends == alone(container, f"{prelude}say(spans({steps}))")


def test_stream_waits_for_an_event(container: Container) -> None:
    """
    Later work begins when the other stream has reached the event. An event that was not recorded delays nothing.
    """
    program = """
a, b, half = stream(), stream(), function("busy_1000@25")
first = recorded(a)
launch(half, a, 3)
gate = recorded(a)
launch(half, a, 5)
lib.cuStreamWaitEvent(b, gate, 0)
lib.cuStreamWaitEvent(b, event(), 0)
launch(half, b)
say([elapsed_ms(first, recorded(b)), elapsed_ms(first, recorded(a))])
"""

    assert [4, 8] == alone(container, program)


def test_launch_blocks_when_the_queue_is_full(container: Container) -> None:
    """
    1024 launches return at once. The next one returns when the first is done. Another stream has its own queue.
    """
    program = """
a, kernel, began = stream(), function("busy_1000"), now()
launch(kernel, a, 1024)
free = now() - began
launch(function("busy_1"), stream(), 1024)
other = now() - began
launch(kernel, a)
say([free, other, now() - began])
"""

    assert [0, 0, MS] == alone(container, program)


def test_event_is_ready_when_its_work_is_done(container: Container) -> None:
    """
    Queries are exact to the nanosecond, and an event on an idle stream is ready at once.
    """
    program = """
a = stream()
idle = lib.cuEventQuery(recorded(a))
launch(function("busy_5000"), a)
end = recorded(a)
answers = []
for pause in (0, 4.999999, 0.000001):
    sleep(pause)
    answers.append([lib.cuEventQuery(end), lib.cuStreamQuery(a)])
say([idle, answers])
"""

    assert [0, [[600, 600], [600, 600], [0, 0]]] == alone(container, program)


def test_spinning_on_a_query_comes_to_an_end(container: Container) -> None:
    """
    A thread that only polls lets time pass, slowly.
    """
    program = """
a = stream()
launch(function("busy_2000"), a)
began = now()
while lib.cuStreamQuery(a): pass
say(now() - began)
"""

    assert 2 * MS == alone(container, program)


@not_under_tsan
def test_host_function_holds_its_stream(container: Container) -> None:
    """
    It runs when the stream reaches it. Later work of the stream waits for it; other streams do not.
    """
    program = """
a, b, called = stream(), stream(1), []
first, kernel = recorded(b), function("busy_1000@50")
@ctypes.CFUNCTYPE(None, c_void_p)
def call(_):
    called.append(now() - began)
    sleep(5)
began = now()
launch(kernel, a)
lib.cuLaunchHostFunc(a, call, None)
launch(kernel, a)
launch(kernel, b, 2)
held = lib.cuStreamQuery(a)
last, other = recorded(a), recorded(b)
lib.cuCtxSynchronize()
say([held, called, elapsed_ms(first, last), elapsed_ms(first, other)])
"""

    assert [600, [MS], 7, 2] == alone(container, program)


DURATIONS = {
    "always the same": ([700] * 4, "busy_700", {}),
    "after a change": ([700, 700, 20, 20], "phase_700_2_20", {}),
    "on a slow clock": ([1000] * 4, "busy_700", {"FAKE_DRIVER_CLOCK": "70"}),
    "in part of the device": ([700] * 4, "busy_700@10", {}),
}


@pytest.mark.parametrize(("microseconds", "name", "setting"), DURATIONS.values(), ids=DURATIONS)
def test_kernel_takes_what_its_name_says(
    container: Container, microseconds: list[int], name: str, setting: dict[str, str]
) -> None:
    """
    The name is the duration, with any grid.
    """
    program = f"""
a, kernel = stream(), function("{name}")
events = [recorded(a)]
for _ in range(4):
    launch(kernel, a)
    events.append(recorded(a))
say([round(1000 * elapsed_ms(one, other)) for one, other in zip(events, events[1:])])
"""

    assert microseconds == alone(container, program, **setting)


def test_clock_slows_down_for_a_while(container: Container) -> None:
    """
    FAKE_DRIVER_CLOCK=50:100:40 halves the clock for the last 40 of every 100 ms.
    """
    program = """
sleep(100 - now() / 1e6 % 100)
kernel, began, ends = function("busy_1000"), now(), []
for _ in range(100):
    launch(kernel)
    lib.cuCtxSynchronize()
    ends.append((now() - began) // 1000000)
say([ends[59], ends[79]])
"""

    assert [60, 100] == alone(container, program, FAKE_DRIVER_CLOCK="50:100:40")


def test_random_kernels_follow_their_seed(container: Container) -> None:
    """
    The same seed gives the same durations in every process, another seed gives others, and the median is in the name.
    """
    program = """
kernel, began, times = function("lognormal_1000_50"), now(), []
for _ in range(400):
    launch(kernel)
    lib.cuCtxSynchronize()
    times.append(now() - began)
    began = now()
say(times)
"""
    first, again = alone(container, program), alone(container, program)
    other = alone(container, program, FAKE_DRIVER_SEED="2")

    assert first == again
    assert first != other
    assert 0.9 * MS < sorted(first)[200] < 1.1 * MS
    assert 1.5 * MS < sorted(first)[340] < 1.9 * MS


def test_duration_can_be_set(container: Container) -> None:
    """
    fake_set_duration changes the duration of later launches only.
    """
    program = """
a, kernel = stream(), function("busy_1000")
first = recorded(a)
launch(kernel, a)
lib.fake_set_duration(kernel, c_uint64(123456))
launch(kernel, a)
say(elapsed_ms(first, recorded(a)))
"""

    assert 1.1235 == alone(container, program)


FILL = """
kernel, began = function("busy_%d"), now()
while now() < began + 1000 * 1000000:
    launch(kernel, None, 10)
    sleep(0.01)
say(busy(began, began + 1000 * 1000000, os.getpid()))
"""


@pytest.mark.parametrize("lengths", [(20, 20), (20, 10000), (100, 1000, 100000)], ids=str)
def test_processes_get_equal_slices(container: Container, lengths: tuple[int, ...]) -> None:
    """
    Processes that always have work get the same time, with kernels of any length, minus what interrupting costs.
    """
    shares = together(container, *("import os\n" + FILL % length for length in lengths))

    assert max(shares) - min(shares) <= 4 * MS
    assert sum(shares) == pytest.approx(1000 * MS * 2000 / 2100, rel=0.01)


def test_mps_runs_all_at_once(container: Container) -> None:
    """
    With FAKE_DRIVER_MPS=1 no process waits for another.
    """
    assert [1000 * MS] * 3 == together(container, *["import os\n" + FILL % 1000] * 3, FAKE_DRIVER_MPS="1")


def test_process_that_is_done_makes_room(container: Container) -> None:
    """
    A process with 1 ms of work every 10 ms costs 1 ms of every 10 ms, and one interruption each.
    """
    busy = """
kernel, began = function("busy_1000"), now()
launch(kernel, None, 90)
lib.cuCtxSynchronize()
say(now() - began)
"""
    rare = """
kernel, began = function("busy_1000"), now()
for number in range(10):
    launch(kernel)
    sleep(10)
say(now() - began)
"""
    filled, _ = together(container, busy, rare)

    assert 99 * MS <= filled <= 102 * MS


def test_event_times_include_the_neighbours_slices(container: Container) -> None:
    """
    Beside a process that fills the device, a kernel of 10 ms takes 20 ms by its events and 10 ms by the oracle.
    """
    program = """
import os
a, kernel, began = stream(), function("busy_10000"), now()
sleep(20)
first = recorded(a)
launch(kernel, a)
took = elapsed_ms(first, recorded(a))
say([took, busy(began, now(), os.getpid())])
"""
    fill = 'launch(function("busy_10000"), None, 10)\nlib.cuCtxSynchronize()\nsay(0)'
    (took, truth), _ = together(container, program, fill)

    assert 19 <= took <= 23
    assert 10 * MS == truth


def test_killed_process_takes_its_work_with_it(container: Container) -> None:
    """
    What it had queued never runs. The other process has the device alone.
    """
    victim = container.start(
        DEVICE + 'import os\nlaunch(function("busy_1000000"), None, 1000)\nsleep(1)\nos.kill(os.getpid(), 9)',
        preload=False,
        **virtual(container, 2, 0),
    )
    survivor = container.start(
        DEVICE
        + """
sleep(2)
a, kernel = stream(), function("busy_1000000")
first = recorded(a)
launch(kernel, a)
say(elapsed_ms(first, recorded(a)))
""",
        preload=False,
        **virtual(container, 2, 1),
    )
    victim.communicate(timeout=60)

    assert 1000 == json.loads(survivor.communicate(timeout=60)[0])


def test_destroyed_context_drops_its_work(container: Container) -> None:
    """
    A context that is destroyed leaves the device at once, and a new one starts without work.
    """
    program = """
context, kernel, began = c_void_p(), function("busy_1000000"), now()
lib.cuCtxCreate_v2(byref(context), 0, 0)
launch(kernel)
sleep(3)
lib.cuCtxDestroy_v2(context)
sleep(3)
lib.cuCtxCreate_v2(byref(context), 0, 0)
say([busy(began, now()), lib.cuCtxSynchronize()])
"""

    assert [3 * MS, 0] == alone(container, program)


def test_oracle_counts_each_process(container: Container) -> None:
    """
    The processes' times add up to the device's, in any window of whole milliseconds, also after a process has ended.
    """
    program = """
import os
kernel, began = function("lognormal_%d_60"), now()
for number in range(100):
    launch(kernel, None, 1 + number %% 3)
    sleep(1.7)
lib.cuCtxSynchronize()
say([os.getpid(), began, now() - began])
"""
    (one, began, first), (other, _, second) = together(container, program % 300, program % 700)
    windows = [
        (began + start * MS, began + (start + length) * MS) for start in range(0, 160, 7) for length in (1, 5, 30)
    ]
    alls, ones, others = container.run(
        DEVICE + f"say([[busy(*window, pid) for window in {windows}] for pid in (0, {one}, {other})])",
        preload=False,
        **virtual(container),
    )

    assert alls == [mine + theirs for mine, theirs in zip(ones, others, strict=True)]
    assert all(0 <= busy <= end - start for busy, (start, end) in zip(alls, windows, strict=True))
    assert sum(ones) > 0
    assert sum(others) > 0
    assert min(first, second) > 160 * MS
