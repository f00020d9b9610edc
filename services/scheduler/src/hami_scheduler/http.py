"""
The HTTP face: kube-scheduler's extender protocol, and health and metrics on the same listener.

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

from hami_scheduler.errors import BindError
from hami_scheduler.extender import Extender, FilterAnswer
from hamicommon.runtime.http import read_body

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
