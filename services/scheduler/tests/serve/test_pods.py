"""
A Pod reads the same from JSON and protobuf, and bad bytes only end the watch.
"""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from hami_scheduler.serve.kube.messages._proto.pod_watch_pb2 import Pod, Status, Unknown, WatchEvent
from hami_scheduler.serve.kube.pods import PROTOBUF, PodReader, trimmed
from hamicommon.model import Object
from hamicommon.runtime.api.api_errors import Gone, KubeError, Unreachable
from hamicommon.runtime.api.kube import Kube
from hamicommon.runtime.api.watch_stream import EVENT_BYTES, Event

from ..support.api_server import ApiServer, serving
from ..support.hypothesis_profiles import profile

PATH = "/api/v1/pods"
POD: Object = {
    "metadata": {"name": "p"},
    "spec": {"containers": [{"name": "c"}]},
    "status": {"phase": "Running"},
}

texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
names = st.from_regex(r"[a-z]{1,8}", fullmatch=True)


def some(fields: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[Object]:
    """Objects with any of *fields*; an absent one is what JSON leaves out."""
    return st.fixed_dictionaries({}, optional=fields)


amounts = st.dictionaries(names, st.sampled_from(["1", "3000", "250m", "2Gi"]), min_size=1, max_size=3)
containers = st.lists(
    st.fixed_dictionaries(
        {"name": names},
        optional={
            "restartPolicy": st.just("Always"),
            "resources": st.fixed_dictionaries({"limits": amounts}, optional={"requests": amounts}),
        },
    ),
    max_size=3,
)
states: st.SearchStrategy[Object] = st.one_of(
    st.just({}), st.integers(-(2**31), 2**31 - 1).map(lambda exit_code: {"terminated": {"exitCode": exit_code}})
)
pods = st.fixed_dictionaries(
    {
        "metadata": some(
            {
                **dict.fromkeys(("name", "namespace", "uid", "resourceVersion"), names),
                "labels": st.dictionaries(names, names, min_size=1, max_size=3),
                "annotations": st.dictionaries(names, texts, min_size=1, max_size=3),
            }
        ),
        "spec": st.fixed_dictionaries(
            {"initContainers": containers, "containers": containers},
            optional={"nodeName": names, "priority": st.integers(-(2**31), 2**31 - 1)},
        ),
        "status": some(
            {
                "phase": names,
                "startTime": st.datetimes(datetime(1970, 1, 1), datetime(9999, 1, 1)).map(
                    lambda moment: f"{moment.isoformat(timespec='seconds')}Z"
                ),
                "initContainerStatuses": st.lists(
                    st.fixed_dictionaries({"name": names, "state": states}), min_size=1, max_size=3
                ),
            }
        ),
    }
)
events = st.tuples(st.sampled_from(["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]), pods)


def wrapped(raw: bytes) -> bytes:
    """Return an object as the API server writes it."""
    return b"k8s\0" + Unknown(raw=raw).SerializeToString()


def framed(kind: str, raw: bytes) -> bytes:
    """Return an event as the API server writes it."""
    event = WatchEvent(type=kind, object={"raw": wrapped(raw)}).SerializeToString()
    return len(event).to_bytes(4) + event


def in_protobuf(pod: Object) -> bytes:
    """Return *pod* in protobuf, by the names of its fields."""
    metadata, spec = pod["metadata"], pod["spec"]
    annotations = {key: value.encode() for key, value in metadata.get("annotations", {}).items()}
    message = Pod(
        metadata={**metadata, "annotations": annotations},
        spec={
            **spec,
            **{kind: [*map(_container, spec.get(kind, ()))] for kind in ("initContainers", "containers")},
        },
        status={**pod["status"], **_start(pod["status"])},
    )
    return message.SerializeToString()


def _start(status: Object) -> Object:
    if "startTime" not in status:
        return {}
    return {"startTime": {"seconds": int(datetime.fromisoformat(status["startTime"]).timestamp())}}


def _container(found: Object) -> Object:
    resources = {
        kind: {name: {"string": amount} for name, amount in amounts.items()}
        for kind, amounts in found.get("resources", {}).items()
    }
    return {**found, "resources": resources}


def read(chunks: Iterable[bytes]) -> list[Event]:
    """Return what a watch that says *chunks* tells."""
    reader = PodReader(PATH)
    found = [event for chunk in chunks for event in reader.feed(chunk)]
    reader.end()
    return found


def cut(data: bytes, places: Iterable[int]) -> list[bytes]:
    """Return *data* in pieces."""
    bounds = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[begin:end] for begin, end in pairwise(bounds)]


@pytest.mark.property
@profile(300)
@given(st.lists(events, max_size=4), st.lists(st.integers(0, 2**16), max_size=8))
def test_pods_in_protobuf_are_those_in_json_however_the_stream_is_cut(told: list[Event], places: list[int]) -> None:
    """Nothing that is kept of a Pod is lost, added or renamed."""
    stream = b"".join(framed(kind, in_protobuf(pod)) for kind, pod in told)

    assert [(kind, trimmed(pod)) for kind, pod in told] == read(cut(stream, places))


def test_start_that_no_calendar_has_ends_no_watch() -> None:
    """Kubelets write it, and the API server takes any number."""
    pod = Pod(
        metadata={"name": "p"},
        spec={"initContainers": [{"name": "i"}]},
        status={"phase": "Running", "startTime": {"seconds": 2**62}},
    )

    [(_, found)] = read([framed("ADDED", pod.SerializeToString())])

    assert {"phase": "Running"} == found["status"]


def test_what_decides_nothing_is_left_out() -> None:
    """A list of 20 000 Pods is mostly what other programs wrote into them."""
    pod = {
        "metadata": {"name": "p", "managedFields": [{}], "ownerReferences": [{}]},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": {}}], "tolerations": [], "priority": 0},
        "status": {"phase": "Running", "conditions": []},
    }

    assert {
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c"}]},
        "status": {"phase": "Running"},
    } == trimmed(pod)


def test_annotation_that_is_no_text_does_not_end_the_watch() -> None:
    """A Pod created in protobuf may hold any bytes there; JSON has a replacement character."""
    [(_, pod)] = read([framed("ADDED", Pod(metadata={"annotations": {"a": b"\xff1"}}).SerializeToString())])

    assert {"a": "\ufffd1"} == pod["metadata"]["annotations"]


@pytest.mark.property
@profile(300)
@given(st.binary(max_size=200))
def test_any_bytes_are_events_or_an_error_of_the_api(data: bytes) -> None:
    """As a whole stream, as one event, and as the object of one."""
    for stream in (data, len(data).to_bytes(4) + data, framed("ADDED", data), framed("ERROR", data)):
        with suppress(KubeError):
            assert all(kind != "ERROR" and isinstance(item, dict) for kind, item in read([stream]))


def test_event_longer_than_any_object_ends_the_watch_before_it_is_read() -> None:
    """Its length is all that is needed to know."""
    with pytest.raises(Unreachable, match="EventTooLong"):
        read([(EVENT_BYTES + 1).to_bytes(4)])


def test_half_an_event_is_an_error() -> None:
    """The stream broke in the middle of an event."""
    with pytest.raises(Unreachable, match="CutShort"):
        read([framed("ADDED", in_protobuf(POD))[:-1]])


def test_error_event_is_the_error_it_tells_of() -> None:
    """410 has the collection listed again."""
    status = Status(code=410, reason="Expired", message="too old resource version").SerializeToString()

    with pytest.raises(Gone, match="too old resource version"):
        read([framed("ERROR", status)])


@asynccontextmanager
async def a_client(status: int, media_type: str, body: bytes, folder: Path) -> AsyncIterator[Kube]:
    """Have a client of a server that answers everything alike, if protobuf is asked for first and JSON after it."""

    async def answer(request: web.Request) -> web.Response:
        assert (PATH, f"{PROTOBUF},application/json") == (request.path, request.headers["Accept"])
        return web.Response(status=status, body=body, headers={"Content-Type": media_type})

    async with serving(answer) as url, await Kube.connect(ApiServer(url=url).kubeconfig(folder), "t") as kube:
        yield kube


@pytest.mark.parametrize(
    ("media_type", "body"),
    [
        (f"{PROTOBUF};stream=watch", framed("ADDED", in_protobuf(POD))),
        ("application/json", orjson.dumps({"type": "ADDED", "object": POD}) + b"\n"),
    ],
    ids=["protobuf", "json"],
)
async def test_server_chooses_the_encoding(media_type: str, body: bytes, tmp_path: Path) -> None:
    """A server, or a proxy, that has no protobuf answers JSON, and is understood."""
    async with a_client(200, media_type, body, tmp_path) as kube:
        found = [event async for event in kube.watch(PATH, 1, {PROTOBUF: PodReader})]

    assert [("ADDED", POD)] == found


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (wrapped(Status(reason="Expired", message="too old").SerializeToString()), "too old"),
        (b"a proxy's page", "a proxy's page"),
    ],
    ids=["status", "foreign"],
)
async def test_refused_watch_says_why(body: bytes, message: str, tmp_path: Path) -> None:
    """Refusals come in the encoding that was asked for."""
    async with a_client(410, PROTOBUF, body, tmp_path) as kube:
        with pytest.raises(Gone, match=message):
            [_ async for _ in kube.watch(PATH, 1, {PROTOBUF: PodReader})]
