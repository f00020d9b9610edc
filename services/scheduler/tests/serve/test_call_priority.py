"""A filter goes before a bind, and an unfinished filter delays a bind only briefly."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from hami_scheduler.serve.call_priority import CallPriority
from hami_scheduler.serve.listen import http
from hamicommon.model import Object

from ..support.api_server import ApiServer
from ..support.builders import a_container, a_pod
from ..support.service import Running, running


class UnderWay:
    """A filter of which the scheduler has seen the head."""

    def __init__(self, answer: "asyncio.Task[Object]", rest: asyncio.Event) -> None:
        """*rest* sends its body."""
        self.answer = answer
        self.rest = rest


@asynccontextmanager
async def a_filter_under_way(
    api: ApiServer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Running, Object, UnderWay]]:
    """Yield a scheduler, a Pod with a Node reserved for it, and a filter for another Pod that lacks its body's end."""
    began, rest = asyncio.Event(), asyncio.Event()

    class Told(CallPriority):
        @contextmanager
        def first(self) -> Iterator[None]:
            with super().first():
                began.set()
                yield

    monkeypatch.setattr(http, "CallPriority", Told)
    first = api.put("pods", a_pod("first", a_container(gpu=1, gpumem=1000)))
    other = api.put("pods", a_pod("other", a_container(gpu=1, gpumem=1000)))
    body = json.dumps({"Pod": other, "Nodes": None, "NodeNames": ["exact"]}).encode()

    async def parts() -> AsyncIterator[bytes]:
        yield body[:10]
        await rest.wait()
        yield body[10:]

    async def ask(scheduler: Running) -> Object:
        async with scheduler.session.post(f"{scheduler.url}/filter", data=parts()) as answer:
            found: Object = await answer.json()
            return found

    async with running(api, folder) as scheduler:
        first = api.pod("first")
        assert ["exact"] == (await scheduler.filter(first, "exact"))["NodeNames"]
        began.clear()
        task = asyncio.create_task(ask(scheduler))
        await began.wait()
        yield scheduler, first, UnderWay(task, rest)
        rest.set()
        assert ["exact"] == (await task)["NodeNames"]


async def test_a_bind_waits_for_a_filter_under_way(
    api: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kube-scheduler waits for nothing but the filter."""
    monkeypatch.setattr(http, "BIND_PATIENCE_SECONDS", 60.0)

    async with a_filter_under_way(api, tmp_path, monkeypatch) as (scheduler, pod, under_way):
        bind = asyncio.create_task(scheduler.bind(pod, "exact"))
        await asyncio.sleep(0.2)
        assert not bind.done()
        assert [] == api.writes_to("/binding")
        under_way.rest.set()
        assert ["exact"] == (await under_way.answer)["NodeNames"]
        assert "" == await bind

    assert 1 == len(api.writes_to("/binding"))


async def test_a_filter_that_never_comes_whole_holds_no_bind_up(
    api: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Patience ends."""
    async with a_filter_under_way(api, tmp_path, monkeypatch) as (scheduler, pod, under_way):
        assert "" == await scheduler.bind(pod, "exact")
        assert not under_way.answer.done()
