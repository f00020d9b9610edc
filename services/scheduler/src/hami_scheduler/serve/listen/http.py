"""
The HTTP routes: kube-scheduler's extender protocol, and the questions of people.

A failure is HTTP 200 with `Error` if the answer has that field, because kube-scheduler then reads nothing else; it is a
status code if it has not. Neighbours: `protocol` has the JSON, the other modules of `serve` answer.
"""

import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import orjson
import structlog
from aiohttp import web

from hami_scheduler.errors import ApiRefusedError, ApiUnknownError, BindError, NotReadyError
from hami_scheduler.explain.planning import AdditionError
from hami_scheduler.explain.report import shape
from hami_scheduler.search.prioritize import priorities
from hami_scheduler.serve.bind import bind_pod
from hami_scheduler.serve.call_priority import CallPriority
from hami_scheduler.serve.context import Context, node_name
from hami_scheduler.serve.explainer import Explainer, QuestionError
from hami_scheduler.serve.filter import FilterAnswer, filter_pod
from hami_scheduler.serve.listen.protocol import (
    CallError,
    bind_body,
    filter_body,
    priorities_body,
    read_bind,
    read_defragmentation,
    read_nodes,
    read_pods,
    read_preempt,
    victims_body,
)
from hami_scheduler.serve.preempt import preempt_pods
from hamicommon.runtime.serving.http import read_body
from hamicommon.wire.errors import DecodeError

BIND_PATIENCE_SECONDS = 0.02
"""Longest time that a bind waits for a filter, whose body may never arrive."""
BODY_LIMIT_BYTES = 32 * 1024 * 1024
"""Enough for 1000 Node objects; HAMi's limit of 1 MiB holds some 50."""

Application = web.Application
Observe = Callable[[str, float, str], None]
"""
Called with verb, seconds and outcome of each call.

`refused` means that no Node fits. Every other failure, such as a Pod that is not bound, is an `error`.
"""
Outcome = tuple[bytes, str]
"""The body of an answer, and the outcome."""

logger = structlog.get_logger()


def add_verbs(app: web.Application, context: Context, observe: Observe) -> None:
    """Serve POST /filter, /bind, /prioritize and /preempt on *app*."""
    priority = CallPriority()

    async def filter_verb(body: bytes) -> Outcome:
        """Answer which Nodes can take a Pod."""
        answer = await filter_pod(context, *read_nodes(body))
        outcome = "error" if answer.error else "ok" if answer.node_names or answer.nodes else "refused"
        return filter_body(answer), outcome

    async def bind_verb(body: bytes) -> Outcome:
        """Bind a Pod."""
        await priority.wait(BIND_PATIENCE_SECONDS)
        try:
            await bind_pod(context, *read_bind(body))
        except BindError as error:
            return bind_body(str(error)), "error"
        return bind_body(""), "ok"

    async def prioritize_verb(body: bytes) -> Outcome:
        """Rank Nodes."""
        pod, names, nodes = read_nodes(body)
        names = [node_name(node) for node in nodes or ()] if names is None else names
        request = await context.read_when_ready(pod)
        return priorities_body(priorities(request, names, context.cluster.view)), "ok"

    async def preempt_verb(body: bytes) -> Outcome:
        """Check the evictions that kube-scheduler plans."""
        victims = await preempt_pods(context, *read_preempt(body))
        return victims_body(victims), "ok" if victims else "refused"

    first = priority.first
    app.router.add_post(
        "/filter", _verb("filter", filter_verb, observe, lambda text: filter_body(FilterAnswer(error=text)), first)
    )
    app.router.add_post("/bind", _verb("bind", bind_verb, observe, bind_body))
    app.router.add_post("/prioritize", _verb("prioritize", prioritize_verb, observe, during=first))
    app.router.add_post("/preempt", _verb("preempt", preempt_verb, observe, during=first))


def add_explanations(app: web.Application, explainer: Explainer, settings: Callable[[], Mapping[str, str]]) -> None:
    """
    Serve the questions of people on *app*.

    They are GET /explain/{namespace}/{pod}, POST /simulate?add=…, POST /defragment and GET /settings.

    They change nothing. Answers are JSON; failures are 404, 400 or 503 with one line of text.
    """

    async def explain(request: web.Request) -> web.StreamResponse:
        """Answer why a Pod is where it is, or has no Node."""
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
            pods, counts = read_pods(await read_body(request))
            return _json(shape(await explainer.simulate(pods, counts, request.query.getall("add", []))))
        except CallError as error:
            return web.Response(status=400, text=f"the body must be a JSON list of Pods: {error}\n")
        except AdditionError as error:
            return web.Response(status=400, text=f"{error}\n")
        except DecodeError as error:
            return web.Response(status=400, text=f"hami.io/device-scoring-weights: {error}\n")

    async def defragment(request: web.Request) -> web.StreamResponse:
        """Answer which Pods would have to move."""
        try:
            return _json(shape(await explainer.defragment(read_defragmentation(await read_body(request)))))
        except (CallError, QuestionError) as error:
            return web.Response(status=400, text=f"{error}\n")
        except (ApiRefusedError, ApiUnknownError) as error:
            return web.Response(status=503, text=f"Nodes and Pods could not be read: {error}\n")

    async def answer_settings(_request: web.Request) -> web.StreamResponse:
        """Answer the settings that a snapshot holds."""
        return _json(dict(settings()))

    app.router.add_get("/explain/{namespace}/{pod}", explain)
    app.router.add_post("/simulate", simulate)
    app.router.add_post("/defragment", defragment)
    app.router.add_get("/settings", answer_settings)


def _json(found: Any) -> web.Response:
    return web.Response(body=orjson.dumps(found), content_type="application/json")


def _verb(
    verb: str,
    handle: Callable[[bytes], Awaitable[Outcome]],
    observe: Observe,
    failure: Callable[[str], bytes] | None = None,
    during: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    """
    Return the handler of *verb*. A failure becomes the body that *failure* makes, or a status code without it.

    A call is read and answered within *during*.
    """

    async def serve(request: web.Request) -> web.StreamResponse:
        """Answer one call and observe its outcome."""
        began, outcome = time.perf_counter(), "error"
        try:
            with during():
                body, outcome = await handle(await read_body(request))
            return web.Response(body=body, content_type="application/json")
        except web.HTTPRequestEntityTooLarge:
            text = f"the body is larger than {BODY_LIMIT_BYTES} bytes; set nodeCacheCapable: true"
            return _failed(413, text, failure)
        except web.HTTPError as error:
            return _failed(error.status, (error.text or error.reason).strip(), failure)
        except CallError as error:
            return _failed(400, str(error), failure)
        except NotReadyError as error:
            return _failed(503, str(error), failure)
        finally:
            observe(verb, time.perf_counter() - began, outcome)

    return serve


def _failed(status: int, text: str, failure: Callable[[str], bytes] | None) -> web.Response:
    if failure is None:
        return web.Response(status=status, text=f"{text}\n")
    return web.Response(body=failure(text), content_type="application/json")
