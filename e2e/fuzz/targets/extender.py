"""
The bodies of kube-scheduler's extender calls, and of simulations: answers, or the errors that the protocol has.

Each input is a body of every verb, of a scheduler with two Nodes that has just started. What a filter chooses is one of
the candidates, and what it reserves fits.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, Final

import orjson

from fuzz.targets.forms import DEVICE_CONFIGS, SCHEDULER, cases, some
from hami_scheduler.bind.locking import LockReading, NodeLocks
from hami_scheduler.errors import ApiRefusedError, BindError, NotReadyError
from hami_scheduler.explain.report import shape
from hami_scheduler.rules.vendors import vendor_rules
from hami_scheduler.search.prioritize import priorities
from hami_scheduler.serve.bind import bind_pod
from hami_scheduler.serve.context import Clock, Context, Settings, node_name
from hami_scheduler.serve.explainer import Explainer
from hami_scheduler.serve.filter import filter_pod
from hami_scheduler.serve.listen.protocol import (
    CallError,
    bind_body,
    filter_body,
    priorities_body,
    read_bind,
    read_nodes,
    read_pods,
    read_preempt,
    victims_body,
)
from hami_scheduler.serve.preempt import preempt_pods
from hami_scheduler.state.cluster import Cluster
from hami_scheduler.values.policies import Policies
from hami_scheduler.values.vendor import VendorRules
from hamicommon.config.device_config import load_device_config
from hamicommon.wire.errors import DecodeError

INPUTS: Final = 800
IS_JSON: Final = True
_NOW: Final = datetime(2026, 1, 1, tzinfo=UTC)


def check(data: bytes) -> None:
    """Answer each verb."""
    _loop().run_until_complete(_check(data))


def seeds() -> Iterator[bytes]:
    """Return calls about the Pods of HAMi's vectors, with Nodes by name and as objects."""
    for case in [*some(SCHEDULER / "nvidia.json", 12), *some(SCHEDULER / "mixed.json", 6)]:
        names = [node["metadata"]["name"] for node in case["nodes"]]
        yield orjson.dumps({"Pod": case["pod"], "Nodes": None, "NodeNames": names})
        yield orjson.dumps({"Pod": case["pod"], "Nodes": {"metadata": {}, "items": case["nodes"]}, "NodeNames": None})
    pod = _pod(_nvidia())
    yield orjson.dumps({"Pod": pod, "NodeNames": ["n1", "n2"]})
    yield orjson.dumps({"PodName": "p", "PodNamespace": "default", "PodUID": pod["metadata"]["uid"], "Node": "n1"})
    victims = {"n1": {"Pods": [{"UID": "u"}], "NumPDBViolations": 1}}
    yield orjson.dumps({"Pod": pod, "NodeNameToMetaVictims": victims})
    yield orjson.dumps({"Pod": pod, "NodeNameToVictims": {"n1": {"Pods": [pod], "NumPDBViolations": 0}}})
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    terms = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]
    spec = {
        **pod["spec"],
        "affinity": {"nodeAffinity": {required: {"nodeSelectorTerms": terms}}, "podAffinity": {required: [{}]}},
        "tolerations": [{"key": "key", "operator": "Gt", "value": "5", "effect": "NoSchedule"}],
        "schedulingGates": [{"name": "gate"}],
        "overhead": {"cpu": "1"},
    }
    yield orjson.dumps([{**pod, "count": 50}, {**pod, "spec": spec}])


async def _check(data: bytes) -> None:
    context = _context()
    for answer in (_filter, _prioritize, _preempt, _bind, _simulate):
        with suppress(CallError, NotReadyError):
            body = await answer(context, data)
            assert orjson.loads(body) is not None
    await asyncio.sleep(0)  # What a filter leaves for afterwards.
    for node in ("n1", "n2"):
        for use in context.cluster.ledger.device_uses(node):
            assert use.memory_mib <= use.device.memory_mib, use
            assert use.core_percent <= use.device.core_percent, use


async def _filter(context: Context, data: bytes) -> bytes:
    pod, names, nodes = read_nodes(data)
    answer = await filter_pod(context, pod, names, nodes)
    if answer.node_names is not None and names is not None:
        assert set(answer.node_names) <= set(names)
    return filter_body(answer)


async def _prioritize(context: Context, data: bytes) -> bytes:
    pod, names, nodes = read_nodes(data)
    names = [node_name(node) for node in nodes or ()] if names is None else names
    points = priorities(await context.read_when_ready(pod), names, context.cluster.view)
    assert all(0 <= each <= 10 for each in points.values())
    return priorities_body(points)


async def _preempt(context: Context, data: bytes) -> bytes:
    pod, planned = read_preempt(data)
    victims = await preempt_pods(context, pod, planned)
    assert set(victims) <= set(planned)
    return victims_body(victims)


async def _bind(context: Context, data: bytes) -> bytes:
    try:
        await bind_pod(context, *read_bind(data))
    except BindError as error:
        return bind_body(str(error))
    return bind_body("")


async def _simulate(context: Context, data: bytes) -> bytes:
    pods, counts = read_pods(data)
    api: Any = context.api
    explainer = Explainer(
        lambda: context.cluster, api.read_pod, api.collection, lambda _uid: None, Policies(), lambda: None
    )
    try:
        return orjson.dumps(shape(await explainer.simulate(pods, counts)))
    except DecodeError as error:
        raise CallError(str(error)) from error


class _Api:
    """An API server with one Pod, which takes every Binding, and refuses what is not asked here."""

    async def read_pod(self, _namespace: str, _name: str) -> Any:
        return orjson.loads(orjson.dumps(_pod(_nvidia())))

    async def collection(self, kind: str) -> AsyncIterator[list[Any]]:
        """Yield a Node that most Pods do not fit, or the Pod."""
        taint = {"key": "key", "value": "value", "effect": "NoSchedule"}
        node = {"metadata": {"name": "n1"}, "spec": {"taints": [taint]}, "status": {"allocatable": {"pods": "9"}}}
        yield [node] if kind == "nodes" else [await self.read_pod("", "")]

    async def read_lock(self, _node: str, _key: str) -> LockReading:
        return LockReading(None, "1")

    async def write_lock(self, *_arguments: object) -> None:
        pass

    async def bind(self, *_arguments: object) -> None:
        pass

    async def label_pod(self, *_arguments: object) -> None:
        pass

    async def living_uids(self, _node: str) -> set[str]:
        return set()

    def queue_event(self, *_arguments: object, **_keywords: object) -> None:
        pass

    def __getattr__(self, name: str) -> Callable[..., Awaitable[None]]:
        async def refuse(*_arguments: object, **_keywords: object) -> None:
            raise ApiRefusedError(f"{name} is not answered")

        return refuse


def _context() -> Context:
    cluster = Cluster(_vendors(), lambda _kind, _name, _problem: None)
    cluster.replace_nodes([_node("n1"), _node("n2")])
    api: Any = _Api()
    locks = NodeLocks(api, lambda: _NOW, timedelta(minutes=5))
    return Context(cluster, api, locks, Clock(lambda: _NOW, lambda: 0.0), Settings(), lambda: None)


def _node(name: str) -> Any:
    register = [
        {"id": f"GPU-{name}", "count": 10, "devmem": 16384, "devcore": 100, "type": "NVIDIA A10", "health": True}
    ]
    return {
        "metadata": {"name": name, "annotations": {"hami.io/node-nvidia-register": orjson.dumps(register).decode()}},
        "status": {"allocatable": {"nvidia.com/gpu": "10"}},
    }


@cache
def _nvidia() -> Any:
    return next(case for case in cases(SCHEDULER / "nvidia.json") if case["pod"]["metadata"].get("uid"))


def _pod(case: Any) -> Any:
    metadata = {**case["pod"]["metadata"], "name": "p", "namespace": "default", "resourceVersion": "1"}
    return {**case["pod"], "metadata": metadata}


@cache
def _vendors() -> tuple[VendorRules, ...]:
    return vendor_rules(load_device_config(DEVICE_CONFIGS[0].read_text()))


@cache
def _loop() -> asyncio.AbstractEventLoop:
    return asyncio.new_event_loop()
