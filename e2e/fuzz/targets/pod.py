"""
A Pod as the API has it, `hamicommon.pod`: any JSON object is a Pod, or DecodeError.

What has the types of a v1 Pod can be asked what it was granted and what it takes, by every vendor.
"""

from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from typing import Any, Final

import orjson

from fuzz.targets.forms import DEVICE_CONFIGS, VECTORS, WEBHOOK, cases, some
from hamicommon.config.device_config import load_device_config
from hamicommon.pod.amounts import AMOUNT_LIMIT, effective_counts
from hamicommon.pod.reading import Pod, read_pod
from hamicommon.pod.shape import POD, check_shape
from hamicommon.vendors.description import Vendor
from hamicommon.wire.errors import DecodeError

INPUTS: Final = 5_000
IS_JSON: Final = True


def check(data: bytes) -> None:
    """Read a Pod, and ask it what every service asks."""
    try:
        item = orjson.loads(data)
    except orjson.JSONDecodeError:
        return
    if not isinstance(item, dict):
        return
    with suppress(DecodeError):
        pod = read_pod(item, _vendors())
        check_shape(item, POD, "Pod")
        ask(pod, item)


def ask(pod: Pod, item: dict[str, Any]) -> None:
    """Ask *pod*, read from *item*, what it holds."""
    assert all(isinstance(text, str) for text in (pod.uid, pod.namespace, pod.name, pod.node, pod.phase, str(pod)))
    resources = frozenset(name for vendor in _vendors() for name in vendor.resource_set)
    assert all(0 < count <= AMOUNT_LIMIT * len(pod.containers) for count in effective_counts(item, resources).values())
    for container in pod.containers:
        assert isinstance(container.priority, int | None)
        assert all(request.count > 0 for request in container.requests)
    for vendor in _vendors():
        for key in (vendor.key, None):
            with suppress(DecodeError):
                granted = pod.granted(vendor.allocated_key, key)
                assert len(granted.shares) in (0, len(pod.containers))
                assert all(taken.memory_mib >= 0 for taken in pod.amounts(granted.shares).values())
                pod.mig_allocations(granted)


def seeds() -> Iterator[bytes]:
    """Return Pods with grants, and those that HAMi admits."""
    yield from (orjson.dumps(case["pod"]) for case in cases(VECTORS / "pod/grants.json"))
    for case in cases(VECTORS / "pod/variables.json"):
        yield orjson.dumps({"spec": {"containers": [{"name": "c", "env": case["env"]}]}})
    yield from (orjson.dumps(case["pod"]) for case in some(WEBHOOK / "pods.json"))


@cache
def _vendors() -> tuple[Vendor, ...]:
    return load_device_config(DEVICE_CONFIGS[0].read_text()).vendors()
