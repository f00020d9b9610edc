"""
Who may scrape a service that asks for a token, over real sockets.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from aiohttp import web
from prometheus_client import CollectorRegistry

from hamicommon.errors import HamiError
from hamicommon.runtime.api.kube import Kube
from hamicommon.runtime.api.reviews import may_get
from hamicommon.runtime.serving import access as access_module
from hamicommon.runtime.serving import http
from hamicommon.runtime.serving.access import ANSWERS_HELD, Access, Verdict
from hamicommon.runtime.serving.http import application, serve

PROMETHEUS = {"username": "system:serviceaccount:monitoring:prometheus", "groups": ["system:authenticated"]}


class Reviews:
    """An API server that knows two tokens and allows one owner."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.is_broken = False

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer a review."""
        body = await request.json()
        self.asked.append(body)
        spec = body["spec"]
        if self.is_broken:
            return web.json_response({"kind": "Status", "message": "away"}, status=500)
        if body["kind"] == "TokenReview":
            user = {"good": PROMETHEUS, "other": {"username": "other"}}.get(spec["token"])
            return web.json_response({"status": {"authenticated": user is not None, "user": user}})
        return web.json_response({"status": {"allowed": spec["user"] == PROMETHEUS["username"]}})


@asynccontextmanager
async def asking(reviews: Reviews, folder: Path) -> AsyncIterator[Access]:
    """Yield the decisions of an API server that answers with *reviews*."""
    app = web.Application()
    app.router.add_post("/{path:.*}", reviews.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    config = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{runner.addresses[0][1]}"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    }
    (folder / "kubeconfig").write_text(yaml.safe_dump(config))
    async with await Kube.connect(str(folder / "kubeconfig"), "svc/1") as kube:
        yield Access(partial(may_get, kube, "/metrics"))
    await runner.cleanup()


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("Bearer good", Verdict.ALLOWED),
        ("bearer  good", Verdict.ALLOWED),
        ("Bearer other", Verdict.FORBIDDEN),
        ("Bearer nobody", Verdict.UNKNOWN),
        ("Bearer ", Verdict.UNKNOWN),
        ("Basic good", Verdict.UNKNOWN),
        ("", Verdict.UNKNOWN),
        ("Bearer " + "x" * 20_000, Verdict.UNKNOWN),
    ],
)
async def test_the_api_server_says_who_may_scrape(tmp_path: Path, header: str, expected: Verdict) -> None:
    """A scraper needs a token that it knows, and the right to get /metrics."""
    async with asking(Reviews(), tmp_path) as access:
        assert expected is await access.verdict(header)


async def test_the_review_names_the_owner_and_the_path(tmp_path: Path) -> None:
    """Groups count, because rights are bound to them, too."""
    reviews = Reviews()
    async with asking(reviews, tmp_path) as access:
        await access.verdict("Bearer good")

    assert ["TokenReview", "SubjectAccessReview"] == [one["kind"] for one in reviews.asked]
    spec = reviews.asked[1]["spec"]
    assert {"path": "/metrics", "verb": "get"} == spec["nonResourceAttributes"]
    assert (PROMETHEUS["username"], PROMETHEUS["groups"]) == (spec["user"], spec["groups"])


async def test_a_decision_is_kept_for_a_while_and_a_failure_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scrapes are no load on the API server; a right that is taken away ends within the minute."""
    reviews = Reviews()
    async with asking(reviews, tmp_path) as access:
        reviews.is_broken = True
        assert Verdict.UNDECIDED is await access.verdict("Bearer good")
        reviews.is_broken = False
        for _ in range(5):
            assert Verdict.ALLOWED is await access.verdict("Bearer good")
        assert 3 == len(reviews.asked)
        monkeypatch.setattr(access_module, "HELD_SECONDS", -1)
        await access.verdict("Bearer other")
        await access.verdict("Bearer other")
        assert 7 == len(reviews.asked)


async def test_wrong_tokens_take_bounded_memory_and_few_requests() -> None:
    """Of many tokens four at a time are sent to the API server, and the last are remembered."""
    running, most = 0, 0

    async def ask(_token: str) -> bool | None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return None

    access = Access(ask)
    await asyncio.gather(*(access.verdict(f"Bearer {number}") for number in range(ANSWERS_HELD + 50)))
    assert 4 == most
    assert ANSWERS_HELD == len(access._held)


async def test_metrics_need_the_token_and_probes_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kubelet has no token."""
    monkeypatch.setattr(http, "SCRAPE_SECONDS", 0.0)

    async def ask(token: str) -> bool | None:
        if token == "broken":
            raise HamiError("away")
        return {"good": True, "other": False}.get(token)

    server = await serve(application("svc", "1", registry=CollectorRegistry(), access=Access(ask)), "127.0.0.1:0")
    found = []
    async with aiohttp.ClientSession() as session:
        for path, token in (
            ("metrics", "good"),
            ("metrics", "other"),
            ("metrics", "x"),
            ("metrics", "broken"),
            ("livez", ""),
        ):
            headers = {"Authorization": f"Bearer {token}"}
            async with session.get(f"http://127.0.0.1:{server.port}/{path}", headers=headers) as response:
                found.append((response.status, "process_" in await response.text()))
    await server.close()

    assert [(200, True), (403, False), (401, False), (503, False), (200, False)] == found
