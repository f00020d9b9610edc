"""
Hostile requests: the answer is a decision or an error line, memory stays flat, and the next request is served.
"""

import copy
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hami_webhook.decide.admission import Policy, admit
from hami_webhook.decide.review import VALUES_MAX, ReviewError, answer, read_review

from .test_service import Service, a_service

REVIEW: dict[str, Any] = {
    "apiVersion": "admission.k8s.io/v1",
    "kind": "AdmissionReview",
    "request": {
        "uid": "u",
        "operation": "CREATE",
        "subResource": "",
        "namespace": "ns",
        "name": "p",
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "object": {
            "metadata": {"name": "p", "namespace": "ns", "annotations": {"metax-tech.com/sgpu-app-class": "offline"}},
            "spec": {
                "schedulerName": "default-scheduler",
                "nodeName": "",
                "runtimeClassName": "mine",
                "initContainers": [
                    {
                        "name": "i",
                        "restartPolicy": "Always",
                        "resources": {"limits": {"huawei.com/Ascend910B3": "1", "huawei.com/Ascend910B3-memory": "1"}},
                    }
                ],
                "containers": [
                    {
                        "name": "c",
                        "env": [{"name": "SOL_CONTINER_NAME", "value": "v"}],
                        "securityContext": {"privileged": False},
                        "resources": {
                            "limits": {
                                "nvidia.com/gpu": "1",
                                "nvidia.com/gpumem": "1",
                                "nvidia.com/gpumem-percentage": "50",
                                "nvidia.com/gpucores": "1",
                                "nvidia.com/priority": "1",
                                "mthreads.com/vgpu": "1",
                                "mthreads.com/sgpu-memory": "2",
                                "metax-tech.com/sgpu": "1",
                                "metax-tech.com/vmemory": "1",
                                "kunlunxin.com/vxpu": "1",
                                "kunlunxin.com/vxpu-memory": "1",
                                "enflame.com/gcu-memory": "1",
                                "amd.com/gpu": "1",
                                "aws.amazon.com/neuroncore": "1",
                                "iluvatar.ai/BI-V150-vgpu": "2",
                            },
                            "requests": {"nvidia.com/gpu": "1", "hygon.com/dcumem": "1"},
                        },
                    }
                ],
            },
        },
    },
}
"""A review with every field that is read."""


def places(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yield the path of every value in *value*, starting with the empty path."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from places(item, (*path, key))


def at(value: Any, path: tuple[str | int, ...]) -> Any:
    """Return the value at *path* of *value*."""
    for key in path:
        value = value[key]
    return value


def replaced(value: Any, path: tuple[str | int, ...], by: Any) -> Any:
    """Return *value* with *by* at *path*."""
    if not path:
        return by
    result = copy.deepcopy(value)
    at(result, path[:-1])[path[-1]] = by
    return result


PLACES = sorted(places(REVIEW), key=str)
OBJECTS = [path for path in PLACES if isinstance(at(REVIEW, path), dict)]
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
    | st.sampled_from(["-1", "1e400", "9" * 5000, "1" * 300 + "m", "0x10", "١", "Inf", ".", "1Ei", f"-{2**63}"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.property
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(path=st.sampled_from(PLACES), by=JSON)
def test_any_value_in_any_place_is_a_4xx_or_a_decision(policy: Policy, path: tuple[str | int, ...], by: Any) -> None:
    """A decision has the uid that was sent, and a rejection has a reason."""
    try:
        review = read_review(orjson.dumps(replaced(REVIEW, path, by)))
    except ReviewError:
        return
    response = orjson.loads(answer(review, admit(review.object, policy, review.namespace)))["response"]
    assert review.uid == response["uid"]
    assert response["allowed"] or response["status"]["message"]


@pytest.mark.parametrize("path", OBJECTS, ids=lambda path: ".".join(map(str, path)) or "review")
def test_a_key_given_twice_in_any_object_is_refused(path: tuple[str | int, ...]) -> None:
    """Another reader of the body could see another Pod."""
    body = orjson.dumps(replaced(REVIEW, path, {**at(REVIEW, path), "twice": 1}))

    with pytest.raises(ReviewError, match="key 'twice' is given twice"):
        read_review(body.replace(b'"twice":1', b'"twice":1,"twice":2'))


def about(value: bytes) -> bytes:
    """Return a body with *value* as its object."""
    return orjson.dumps(replaced(REVIEW, ("request", "object"), "*")).replace(b'"*"', value)


def many(item: bytes, mib: int = 3) -> bytes:
    """Return a list of *item*, about *mib* MiB long."""
    return b"[" + b",".join([item] * (mib * 2**20 // (len(item) + 1))) + b"]"


BODIES = {
    "too large": (b" " * (9 * 2**20), 413),
    "nothing": (b"", 400),
    "no UTF-8": (about(b'"\xff\xfe"'), 400),
    "overlong UTF-8": (about(b'"\xc0\xaf"'), 400),
    "half a surrogate pair": (about(b'"\\ud800"'), 400),
    "zero byte": (about(b'"\0"'), 400),
    "UTF-16": (about(b"{}").decode().encode("utf-16"), 400),
    "byte order mark": (b"\xef\xbb\xbf" + about(b"{}"), 400),
    "NaN": (about(b"NaN"), 400),
    "deep": (about(b"[" * 50_000 + b"]" * 50_000), 400),
    "deep objects": (about(b'{"a":' * 50_000 + b"1" + b"}" * 50_000), 400),
    "many lists": (about(many(b"[]")), 400),
    "many objects": (about(many(b"{}")), 400),
    "many nested": (about(many(b"[[[]]]")), 400),
    "many keys": (about(b"{" + b",".join(b'"%x":1' % number for number in range(300_000)) + b"}"), 400),
    "twice": (about(b'{"spec":{},"spec":{}}'), 400),
    "many numbers": (about(many(b"1")), 200),
    "long text": (about(b'"' + b"x" * (3 * 2**20) + b'"'), 200),
    "long number": (about(b"1" * 1_000_000), 400),
}
"""By what is wrong: a body, and the status of its answer."""


def memory_mib(service: Service) -> tuple[int, int]:
    """Return the process's memory, present and peak."""
    status = Path(f"/proc/{service.process.pid}/status").read_text()
    now, most = (int(re.findall(rf"{name}:\s+(\d+) kB", status)[0]) // 1024 for name in ("VmRSS", "VmHWM"))
    return now, most


async def sent(service: Service, body: bytes) -> int:
    """Return the status of the answer to *body*."""
    headers = {"Content-Type": "application/json"}
    async with service.session.post(f"{service.url}/webhook", data=body, headers=headers) as response:
        assert 200 == response.status or "text/plain" == response.content_type
        assert len(await response.read()) < 2000
        return response.status


async def test_bodies_made_to_hurt_change_nothing(device_config_file: str) -> None:
    """
    After each an ordinary review is served, and memory stays flat: what is kept of a round is less than its bodies.

    The chart gives the process 256 MiB.
    """
    ordinary = orjson.dumps(REVIEW)
    async with a_service(device_config_file) as service:
        assert 200 == await sent(service, ordinary)
        idle, _ = memory_mib(service)
        held = []
        for _ in range(2):
            for what, (body, status) in BODIES.items():
                assert (what, status) == (what, await sent(service, body))
                assert 200 == await sent(service, ordinary)
            held.append(memory_mib(service)[0])
        assert held[1] < held[0] + sum(len(body) for body, _ in BODIES.values()) // 2**20
        assert memory_mib(service)[1] < idle + 160


def test_the_limit_on_values_is_far_beyond_a_pod() -> None:
    """A Pod of 500 containers with 50 variables each is accepted."""
    variables = [{"name": f"V{number}", "value": "https://example.com:8080/x"} for number in range(50)]
    containers = [{"name": f"c{number}", "env": variables} for number in range(500)]
    body = orjson.dumps(replaced(REVIEW, ("request", "object", "spec", "containers"), containers))

    assert body.count(b":") * 2 > VALUES_MAX // 2
    assert 500 == len(read_review(body).object["spec"]["containers"])


pytestmark = pytest.mark.timeout(240)
