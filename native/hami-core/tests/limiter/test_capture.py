"""
Captures beside the events that the limiter records and queries, in real time: a program sees what it sees without them.
"""

import pytest
from containers import Container
from virtual import not_under_tsan

pytestmark = not_under_tsan

PROGRAM = """
import threading, time
from device import *
kernel, end = function("busy_100"), time.monotonic() + 1.5
beside, captured = stream(1), stream(1)
launches, captures = [], []
def work(on):
    while time.monotonic() < end:
        launches.append(launch(kernel, on))
def capture_all(mode):
    while time.monotonic() < end:
        graph, count = c_void_p(), c_size_t()
        results = [lib.cuStreamBeginCapture_v2(captured, c_int(mode)), launch(kernel, captured, 3)]
        results.append(lib.cuStreamEndCapture(captured, byref(graph)))
        results.append(lib.cuGraphGetNodes(graph, None, byref(count)))
        captures.append([*results, count.value >= 3])
        lib.cuGraphDestroy(graph)
"""

SCENES = {
    "global": "[(work, beside), (capture_all, 0)]",
    "thread-local": "[(work, beside), (capture_all, 1)]",
    "relaxed": "[(work, beside), (capture_all, 2)]",
    "same-stream": "[(work, captured), (capture_all, 2)]",
}
"""What two threads do at the same time, by the mode of the capture."""


def outcome(container: Container, threads: str, *, preload: bool) -> tuple[list[int], list[list[object]]]:
    """Return the different results of launches and of captures, while two threads do both."""
    program = f"""{PROGRAM}
threads = [threading.Thread(target=target, args=[argument]) for target, argument in {threads}]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert len(captures) > 20 and len(launches) > 20, (len(captures), len(launches))
say([sorted(set(launches)), sorted(set(map(tuple, captures)))])
"""
    container.environment |= {"CUDA_DEVICE_SM_LIMIT": "50", "GPU_CORE_UTILIZATION_POLICY": "force"}
    launches, captures = container.run(program, preload=preload)
    return launches, captures


@pytest.mark.parametrize("threads", SCENES.values(), ids=SCENES)
def test_capture_beside_limited_launches_is_as_without_the_limiter(container: Container, threads: str) -> None:
    """
    The limiter's events are never part of a capture, and never end one.
    """
    bare = outcome(container, threads, preload=False)

    assert ([0], [[0, 0, 0, 0, True]]) == bare
    assert bare == outcome(container, threads, preload=True)
