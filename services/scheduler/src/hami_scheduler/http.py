"""
The HTTP face: kube-scheduler's extender protocol, and on a listener of its own what people ask.

Owns the JSON on the wire. Every outcome of a well-formed call is HTTP 200 with the problem in `Error`, because
kube-scheduler reads nothing else; keys are matched as Go matches them, whatever their case. Neighbours: `extender`
answers.
Source: https://github.com/kubernetes/kube-scheduler/blob/v0.34.4/extender/v1/types.go
"""

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import orjson
import structlog
from aiohttp import web

from hami_scheduler.errors import ApiRefusedError, ApiUnknownError, BindError
from hami_scheduler.explainer import Explainer
from hami_scheduler.extender import Extender, FilterAnswer
from hami_scheduler.report import shape
from hamicommon.runtime.http import read_body
from hamicommon.wire.errors import DecodeError

BODY_LIMIT_BYTES = 32 * 1024 * 1024
"""HAMi stops at 1 MiB, which some 50 Node objects fill; this takes 1000 of them."""

Observe = Callable[[str, float, str], None]
"""Hears of each call: verb, seconds, outcome (`ok`, `refused`, `error`)."""

logger = structlog.get_logger()


class CallError(Exception):
    """A body that is not the extender protocol's; the message says what would be."""


def add_routes(app: web.Application, extender: Extender, observe: Observe) -> None:
    """Serve POST /filter and POST /bind on *app*."""

    async def filter_verb(body: bytes) -> tuple[bytes, str]:
        """Answer ExtenderArgs."""
        args = _object(body, "ExtenderArgs")
        pod, names, nodes = args.get("pod"), args.get("nodenames"), _items(args.get("nodes"))
        if not isinstance(pod, dict):
            raise CallError("ExtenderArgs.Pod must be a Pod object")
        if names is not None and not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
            raise CallError("ExtenderArgs.NodeNames must be a list of names, or null")
        answer = await extender.filter(pod, names, nodes)
        outcome = "error" if answer.error else "ok" if answer.node_names or answer.nodes else "refused"
        return filter_body(answer), outcome

    async def bind_verb(body: bytes) -> tuple[bytes, str]:
        """Answer ExtenderBindingArgs."""
        args = _object(body, "ExtenderBindingArgs")
        values = [args.get(key) or "" for key in ("poduid", "podnamespace", "podname", "node")]
        if not all(isinstance(value, str) for value in values) or not all(values[1:]):
            raise CallError("ExtenderBindingArgs needs PodName, PodNamespace, PodUID and Node")
        try:
            await extender.bind(*values)
        except BindError as error:
            return orjson.dumps({"Error": str(error)}), "refused"
        return orjson.dumps({"Error": ""}), "ok"

    app.router.add_post("/filter", _verb("filter", filter_verb, _filter_error, observe))
    app.router.add_post("/bind", _verb("bind", bind_verb, _bind_error, observe))


def add_explanations(app: web.Application, explainer: Explainer, settings: Callable[[], Mapping[str, str]]) -> None:
    """
    Serve what people ask on *app*: GET /explain/{namespace}/{pod}, POST /simulate, GET /settings.

    Nothing changes by it. Answers are JSON; what cannot be answered is 404, 400 or 503 with one line of text.
    """

    async def explain(request: web.Request) -> web.StreamResponse:
        """Answer why one Pod is where it is, or nowhere."""
        namespace, name = request.match_info["namespace"], request.match_info["pod"]
        try:
            report = await explainer.explain(namespace, name)
        except DecodeError as error:
            return web.Response(status=400, text=f"Pod {namespace}/{name}, hami.io/device-scoring-weights: {error}\n")
        except (ApiRefusedError, ApiUnknownError) as error:
            return web.Response(status=503, text=f"Pod {namespace}/{name} could not be read: {error}\n")
        if report is None:
            return web.Response(status=404, text=f"there is no Pod {namespace}/{name}\n")
        return _json(shape(report))

    async def simulate(request: web.Request) -> web.StreamResponse:
        """Answer what a list of Pods would get."""
        try:
            pods = orjson.loads(await read_body(request))
            if not isinstance(pods, list) or not all(isinstance(pod, dict) for pod in pods):
                return web.Response(status=400, text="the body must be a JSON list of Pods\n")
            return _json(shape(await explainer.simulate(pods)))
        except orjson.JSONDecodeError as error:
            return web.Response(status=400, text=f"the body must be a JSON list of Pods: {error}\n")
        except DecodeError as error:
            return web.Response(status=400, text=f"hami.io/device-scoring-weights: {error}\n")

    async def answer_settings(_request: web.Request) -> web.StreamResponse:
        """Answer what a snapshot needs beside objects."""
        return _json(dict(settings()))

    app.router.add_get("/explain/{namespace}/{pod}", explain)
    app.router.add_post("/simulate", simulate)
    app.router.add_get("/settings", answer_settings)


def _json(found: Any) -> web.Response:
    return web.Response(body=orjson.dumps(found), content_type="application/json")


def filter_body(answer: FilterAnswer) -> bytes:
    """Return the ExtenderFilterResult of *answer*."""
    nodes = None if answer.nodes is None else {"metadata": {}, "items": list(answer.nodes)}
    return orjson.dumps(
        {
            "Nodes": nodes,
            "NodeNames": None if answer.node_names is None else list(answer.node_names),
            "FailedNodes": dict(answer.failed_nodes) if answer.failed_nodes else None,
            "FailedAndUnresolvableNodes": None,
            "Error": answer.error,
        }
    )


def _verb(
    verb: str,
    handle: Callable[[bytes], Awaitable[tuple[bytes, str]]],
    failure: Callable[[str], bytes],
    observe: Observe,
) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def serve(request: web.Request) -> web.StreamResponse:
        """Answer one call, and tell how it went."""
        began = time.perf_counter()
        try:
            body, outcome = await handle(await read_body(request))
        except web.HTTPRequestEntityTooLarge:
            text = f"the body is larger than {BODY_LIMIT_BYTES} bytes; set nodeCacheCapable: true"
            body, outcome = failure(text), "error"
        except CallError as error:
            body, outcome = failure(str(error)), "error"
        observe(verb, time.perf_counter() - began, outcome)
        return web.Response(body=body, content_type="application/json")

    return serve


def _filter_error(text: str) -> bytes:
    return filter_body(FilterAnswer(error=text))


def _bind_error(text: str) -> bytes:
    return orjson.dumps({"Error": text})


def _object(body: bytes, what: str) -> dict[str, Any]:
    """Return the top-level keys of a JSON object in lower case."""
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise CallError(f"{what} must be JSON: {error}" if body else f"{what} must be JSON: EOF") from error
    if not isinstance(found, dict):
        raise CallError(f"{what} must be a JSON object, not {type(found).__name__}")
    return {key.lower(): value for key, value in found.items()}


def _items(nodes: Any) -> list[Mapping[str, Any]] | None:
    """Return the Nodes of a v1 NodeList, None where none was sent."""
    if nodes is None:
        return None
    items = nodes.get("items") if isinstance(nodes, dict) else None
    if items is None and isinstance(nodes, dict):
        items = nodes.get("Items") or []
    if not isinstance(items, list) or not all(isinstance(node, dict) for node in items):
        raise CallError("ExtenderArgs.Nodes must be a NodeList, or null")
    return items
