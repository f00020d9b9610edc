"""
Hostile bodies get an error, keep no memory, and do not affect the next call.
"""

import asyncio
import copy
import json
import tracemalloc
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hami_scheduler.bind.locking import NodeLocks
from hami_scheduler.serve.context import Clock, Context, Settings
from hami_scheduler.serve.filter import filter_pod
from hami_scheduler.serve.listen.protocol import CallError, filter_body, read_bind, read_nodes, read_preempt
from hami_scheduler.serve.preempt import preempt_pods
from hamicommon.model import Object

from ..support.builders import NOW, a_cluster, a_container, a_device, a_node, a_pod
from ..support.hypothesis_profiles import profile
from ..support.scripted_api import ScriptedApi
from ..support.service import Running

_SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5)
)
ANYTHING = st.recursive(
    _SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
)
ANNOTATED = a_pod(
    "p",
    a_container(gpu=1, gpumem=1000, gpucores=10),
    inits=[a_container("i", sidecar=True, gpu=1)],
    annotations={"nvidia.com/use-gpuuuid": "GPU-a", "hami.io/gpu-scheduler-policy": "binpack"},
)
ARGS: Object = {"Pod": ANNOTATED, "Nodes": None, "NodeNames": ["n1", "n2"]}
SIMULATION: Object = {"Pod": ANNOTATED, "Nodes": {"items": [a_node("n1", a_device())]}}
VICTIMS = {"n1": {"Pods": [{"UID": "u"}], "NumPDBViolations": 1}}
PREEMPTION: Object = {"Pod": ANNOTATED, "NodeNameToVictims": None, "NodeNameToMetaVictims": VICTIMS}


def places(found: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the path of every value in a JSON value, its own first."""
    keys = found.keys() if isinstance(found, dict) else range(len(found)) if isinstance(found, list) else ()
    return [at, *(path for key in keys for path in places(found[key], (*at, key)))]


def with_value(found: Any, path: tuple[Any, ...], value: Any) -> Any:
    """Return a JSON value with *value* at *path*."""
    if not path:
        return value
    found = copy.copy(found)
    found[path[0]] = with_value(found[path[0]], path[1:], value)
    return found


@pytest.mark.property
@pytest.mark.parametrize("base", [ARGS, SIMULATION, PREEMPTION], ids=["names", "nodes", "victims"])
@given(data=st.data(), value=ANYTHING)
@profile(60)
def test_any_value_anywhere_is_answered(base: Object, data: st.DataObject, value: Any) -> None:
    """What passes the protocol's shapes never surprises a decision; what does not is named."""
    body = json.dumps(with_value(base, data.draw(st.sampled_from(places(base))), value)).encode()
    api: Any = ScriptedApi()
    clock = Clock(lambda: NOW, lambda: 0.0)
    cluster = a_cluster(a_node("n1", a_device()))
    locks = NodeLocks(api, lambda: NOW, timedelta(minutes=5))
    context = Context(cluster, api, locks, clock, Settings(), lambda: None)
    with suppress(CallError):
        if base is PREEMPTION:
            pod, victims = read_preempt(body)
            assert set(asyncio.run(preempt_pods(context, pod, victims))) <= set(victims)
        else:
            assert filter_body(asyncio.run(filter_pod(context, *read_nodes(body))))


@pytest.mark.property
@pytest.mark.parametrize("read", [read_nodes, read_bind, read_preempt])
@given(body=st.binary(max_size=64) | ANYTHING.map(lambda found: json.dumps(found).encode()))
@profile(60)
def test_any_body_is_read_or_refused(read: Any, body: bytes) -> None:
    """With one kind of error."""
    with suppress(CallError):
        assert read(body) is not None


HOSTILE = {
    "deep": b'{"Pod":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "deep objects": b'{"Pod":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_001,
    "bad UTF-8": b'{"Pod":{"metadata":{"name":"\xff\xfe"}}}',
    "lone surrogate": b'{"Pod":{"metadata":{"name":"\\ud800"}}}',
    "NaN": b'{"Pod":{"spec":{"priority":NaN}}}',
    "huge number": b'{"Pod":{"spec":{"priority":' + b"9" * 10_000 + b"}}}",
    "wrong types": b'{"Pod":{"metadata":[],"spec":7}}',
    "environment": b'{"Pod":{"spec":{"containers":[{"env":[5]}]}}}',
    "state of a container": b'{"Pod":{"status":{"containerStatuses":[{"state":5}]}}}',
    "trailing": b'{"Pod":{}} {"Pod":{}}',
    "wide": b'{"Pod":[' + b"1," * 200_000 + b"1]}",
}


@pytest.mark.parametrize("path", ["/filter", "/bind", "/prioritize", "/preempt"])
async def test_hostile_bodies_change_nothing_for_the_next_call(scheduler: Running, path: str) -> None:
    """Each gets its answer, in the body where there is a place for it, and a Pod is placed right after."""
    for name, body in HOSTILE.items():
        async with scheduler.session.post(scheduler.url + path, data=body) as answer:
            text = await answer.text()
            if path in {"/filter", "/bind"}:
                assert (200, True) == (answer.status, bool(json.loads(text)["Error"])), name
            else:
                assert (400, True) == (answer.status, "must be" in text), name
            assert len(text) < 1000

    assert ["exact"] == (await scheduler.filter(scheduler.api.pod("p"), "exact"))["NodeNames"]


async def test_last_of_two_equal_keys_counts(scheduler: Running) -> None:
    """As for Go's decoder, also where they differ in case."""
    pod = json.dumps(scheduler.api.pod("p")).encode()
    body = b'{"Pod":1,"NodeNames":["ghost"],"pod":' + pod + b',"NODENAMES":["exact"]}'

    assert ["exact"] == (await scheduler.post("/filter", body))["NodeNames"]


async def test_hostile_bodies_leave_no_memory_behind(scheduler: Running) -> None:
    """A hundred megabytes of refused calls cost nothing afterwards."""
    body = HOSTILE["wide"] + b" " * 600_000
    await scheduler.post("/filter", body)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(100):
            await scheduler.post("/filter", body)
        assert tracemalloc.get_traced_memory()[0] - before < 4 * 2**20
    finally:
        tracemalloc.stop()
