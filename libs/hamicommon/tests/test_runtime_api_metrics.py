"""
The metrics of requests to the API server.
"""

import asyncio
from pathlib import Path

import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry

from hamicommon.runtime.api import kube as kube_module
from hamicommon.runtime.api.api_metrics import ApiMetrics
from hamicommon.runtime.api.kube import Kube, KubeError

from .test_runtime_kube import a_kubeconfig, serving


def counted(registry: CollectorRegistry) -> dict[tuple[str, str, str], float]:
    """Return how many requests were counted, by verb, resource and outcome."""
    return {
        (sample.labels["verb"], sample.labels["resource"], sample.labels["outcome"]): sample.value
        for family in registry.collect()
        for sample in family.samples
        if sample.name == "svc_api_requests_total"
    }


async def test_requests_are_counted_by_verb_resource_and_outcome(tmp_path: Path) -> None:
    """Each refusal has its outcome, an absent server is unreachable, a watch has no duration."""
    registry = CollectorRegistry()

    async def handle(request: web.Request) -> web.StreamResponse:
        status = {"/api/v1/nodes/gone": 404, "/api/v1/pods": 429}.get(request.path, 200)
        return web.Response(text='{"items": []}\n', status=status, headers={"Retry-After": "7"})

    async with serving(handle) as port:
        kubeconfig = a_kubeconfig(tmp_path, f"http://127.0.0.1:{port}")
        async with await Kube.connect(kubeconfig, "me/1", ApiMetrics(registry, "svc")) as kube:
            await kube.get("/api/v1/nodes/n")
            await kube.merge_patch("/api/v1/namespaces/a/pods/p/status", {})
            for path in ("/api/v1/nodes/gone", "/api/v1/pods"):
                with pytest.raises(KubeError):
                    await kube.get(path)
            with pytest.raises(KubeError, match="NotAnEvent"):
                [_ async for _ in kube.watch("/api/v1/nodes", 1)]
    async with await Kube.connect(kubeconfig, "me/1", ApiMetrics(away := CollectorRegistry(), "svc")) as kube:
        with pytest.raises(KubeError):
            await kube.delete("/api/v1/nodes/n")

    assert {
        ("get", "nodes", "ok"): 1,
        ("patch", "pods/status", "ok"): 1,
        ("get", "nodes", "not_found"): 1,
        ("list", "pods", "throttled"): 1,
        ("watch", "nodes", "ok"): 1,
    } == counted(registry)
    assert {("delete", "nodes", "unreachable"): 1} == counted(away)
    assert 14 <= (registry.get_sample_value("svc_api_throttled_seconds_total") or 0) < 15, "both refusals named 7 s"
    assert 2 == registry.get_sample_value("svc_api_request_seconds_count", {"verb": "get"})
    assert registry.get_sample_value("svc_api_request_seconds_count", {"verb": "watch"}) is None


async def test_time_without_a_connection_counts_as_throttled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second of two requests over one connection waits for the first."""
    monkeypatch.setattr(kube_module, "CONNECTIONS", 1)
    registry = CollectorRegistry()

    async def handle(_request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(0.1)
        return web.json_response({})

    async with serving(handle) as port:
        kubeconfig = a_kubeconfig(tmp_path, f"http://127.0.0.1:{port}")
        async with await Kube.connect(kubeconfig, "me/1", ApiMetrics(registry, "svc")) as kube:
            await asyncio.gather(kube.get("/version"), kube.get("/version"))

    assert 0.05 < (registry.get_sample_value("svc_api_throttled_seconds_total") or 0)
