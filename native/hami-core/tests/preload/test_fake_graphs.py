"""
Graphs of the fake driver run what was captured or built into them, for as long as that takes.
"""

from typing import Any

import pytest
from containers import Container
from virtual import not_under_tsan, virtual

PRELUDE = """
from device import *
a, b = stream(1), stream(1)
def took(graph, times=1):
    first = recorded(a)
    for _ in range(times): assert lib.cuGraphLaunch(graph, a) == 0
    return elapsed_ms(first, recorded(a))
class Params(ctypes.Structure):
    _fields_ = [("function", c_void_p), ("sizes", c_uint * 7), ("params", c_void_p), ("extra", c_void_p),
                ("kernel", c_void_p), ("context", c_void_p)]
def kernel_node(graph, handle, *after):
    node, order = c_void_p(), (c_void_p * len(after))(*after)
    params = Params(handle, (c_uint * 7)(1, 1, 1, 1, 1, 1, 0))
    assert lib.cuGraphAddKernelNode_v2(byref(node), graph, order, c_size_t(len(after)), byref(params)) == 0
    return node
def new_graph():
    graph = c_void_p()
    assert lib.cuGraphCreate(byref(graph), 0) == 0
    return graph
def instantiate(graph):
    handle = c_void_p()
    assert lib.cuGraphInstantiateWithFlags(byref(handle), graph, ctypes.c_ulonglong(0)) == 0
    return handle
"""


def run(container: Container, program: str) -> Any:
    """Run a program in virtual time."""
    return container.run(PRELUDE + program, preload=False, **virtual(container))


FORK = """
capture(a)
launch(function("busy_1000"), a)
gate = event()
lib.cuEventRecord(gate, a)
lib.cuStreamWaitEvent(b, gate, 0)
launch(function("busy_3000@{part}"), b)
launch(function("busy_2000@{part}"), a)
lib.cuEventRecord(gate, b)
lib.cuStreamWaitEvent(a, gate, 0)
launch(function("busy_500"), a)
say(took(executable(a)))
"""


@pytest.mark.parametrize(("part", "milliseconds"), [(100, 6.5), (50, 4.5)], ids=["fills the device", "side by side"])
def test_branches_of_a_capture_run_side_by_side_where_they_fit(
    container: Container, part: int, milliseconds: float
) -> None:
    """
    A stream that waits for a captured event joins the capture. The graph's kernels overlap where they fit.
    """
    assert milliseconds == run(container, FORK.format(part=part))


def test_nothing_of_a_capture_runs(container: Container) -> None:
    """
    Captured launches take no time of the device. Each launch of the graph takes the time of all of them.
    """
    program = """
began = now()
capture(a)
launch(function("busy_1000"), a, 5)
graph = executable(a)
lib.cuCtxSynchronize()
say([now() - began, took(graph), took(graph, 10)])
"""

    assert [0, 5, 50] == run(container, program)


def test_random_kernels_are_drawn_at_each_launch(container: Container) -> None:
    """
    Each launch of a graph with random kernels takes another time.
    """
    program = """
capture(a)
launch(function("lognormal_1000_50"), a, 3)
graph = executable(a)
say([took(graph) for _ in range(20)])
"""
    times = run(container, program)

    assert len(set(times)) == 20
    assert 2 < sorted(times)[10] < 5


def test_graph_built_by_hand_follows_its_dependencies(container: Container) -> None:
    """
    Kernel, empty and child graph nodes. Nodes without an order run side by side where they fit.
    """
    program = """
half, child, graph = function("busy_1000@50"), new_graph(), new_graph()
kernel_node(child, half, kernel_node(child, half))
first = kernel_node(graph, half)
kernel_node(graph, half)
last = c_void_p()
assert lib.cuGraphAddChildGraphNode(byref(last), graph, byref(first), c_size_t(1), child) == 0
count = c_size_t()
lib.cuGraphGetNodes(graph, None, byref(count))
say([took(instantiate(child)), took(instantiate(graph)), count.value])
"""

    assert [2, 3, 3] == run(container, program)


def test_executable_graph_can_be_updated(container: Container) -> None:
    """
    A node's new kernel counts from the next launch. An update by a graph of another shape is refused.
    """
    program = """
graph, other, longer = new_graph(), new_graph(), new_graph()
node = kernel_node(graph, function("busy_1000"))
kernel_node(other, function("busy_3000"))
kernel_node(longer, function("busy_1000"), kernel_node(longer, function("busy_1000")))
handle, times, info = instantiate(graph), [], (c_uint64 * 3)()
times.append(took(handle))
params = Params(function("busy_2000"), (c_uint * 7)(1, 1, 1, 1, 1, 1, 0))
assert lib.cuGraphExecKernelNodeSetParams_v2(handle, node, byref(params)) == 0
times.append(took(handle))
results = [lib.cuGraphExecUpdate_v2(handle, other, info)]
times.append(took(handle))
results.append(lib.cuGraphExecUpdate_v2(handle, longer, info))
times.append(took(handle))
say([times, results])
"""

    assert [[1, 2, 3, 3], [0, 910]] == run(container, program)


@not_under_tsan
def test_host_nodes_run_after_their_graph(container: Container) -> None:
    """
    A captured host function is called at each launch, when the graph is done. Later work of the stream waits for it.
    """
    program = """
called = []
@ctypes.CFUNCTYPE(None, c_void_p)
def call(_): called.append((now() - began) // 1000000)
capture(a)
launch(function("busy_1000"), a, 2)
lib.cuLaunchHostFunc(a, call, None)
graph, began = executable(a), now()
took(graph, 3)
say(called)
"""

    assert [2, 4, 6] == run(container, program)


MODES = {
    "global": (0, [900, 900], 901),
    "thread-local": (1, [0, 900], 901),
    "relaxed": (2, [0, 0], 0),
}


@not_under_tsan
@pytest.mark.parametrize(("mode", "answers", "end"), MODES.values(), ids=MODES)
def test_capture_forbids_what_could_depend_on_it(container: Container, mode: int, answers: list[int], end: int) -> None:
    """
    An event query invalidates a global capture from any thread, and a thread-local one from its own. A relaxed one may
    query.
    """
    program = f"""
import threading
done, answers, graph = recorded(b), [], c_void_p()
def ask(): answers.append(lib.cuEventQuery(done))
def ask_relaxed():
    mode = c_int(2)
    lib.cuThreadExchangeStreamCaptureMode(byref(mode))
    assert lib.cuEventQuery(done) == 0
def run(target):
    thread = threading.Thread(target=target)
    thread.start()
    thread.join()
capture(a, {mode})
run(ask_relaxed)
run(ask)
ask()
say([answers, lib.cuStreamEndCapture(a, byref(graph))])
"""

    assert [answers, end] == run(container, program)


def test_legacy_stream_is_closed_during_a_capture(container: Container) -> None:
    """
    The legacy default stream would wait for the captured stream, so it cannot be used or queried.
    """
    program = """
c, status = stream(), c_int()
capture(c, 2)
answers = [launch(function("busy_1"), None), launch(function("busy_1"), b)]
say(answers + [lib.cuStreamIsCapturing(on, byref(status)) for on in (None, c)] + [status.value])
"""

    assert [906, 0, 906, 0, 1] == run(container, program)
