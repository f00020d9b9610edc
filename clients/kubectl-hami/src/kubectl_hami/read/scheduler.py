"""
Ask the scheduler, which listens for people on the loopback of its Pod.

Any replica knows the whole cluster; the leader is asked first, because it alone knows its reservations.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, Final
from urllib.parse import quote, urlencode

import orjson

from hamicommon.model import Object
from hamicommon.pod.shape import COUNT
from kubectl_hami.read.queues import with_queue
from kubectl_hami.read.services import COMPONENT, EXPLAIN, endpoint, leader_first, pods_of
from kubectl_hami.read.source import Endpoint, ReadError, Source, listing, objects
from kubectl_hami.values.diagnosis import SCHEDULER

_WHAT: Final = "the scheduler"
_SILENCE_SECONDS: Final = 3.0
"""After this time without an answer, another replica is asked as well."""
_BUDGETS: Final = "/apis/policy/v1/poddisruptionbudgets"
_NOT_FOUND: Final = 404
_BAD_QUESTION: Final = {400, _NOT_FOUND}
"""What the scheduler answers to a question that is wrong, whichever replica is asked."""


def explanation(source: Source, namespace: str, pod: str) -> dict[str, Any]:
    """
    Return the scheduler's report about a Pod, with `queue` if a queue holds the Pod back.

    Raises:
        ReadError: no scheduler answers, or it knows no such Pod.
    """
    found: dict[str, Any] = _asked(source, f"/explain/{quote(namespace)}/{quote(pod)}")
    return with_queue(source, found, namespace, pod)


def simulation(source: Source, pods: Sequence[Object], add: Sequence[str] = ()) -> list[dict[str, Any]]:
    """
    Return the scheduler's report about each of *pods*, as if they were created now, one after the other.

    *add* are Nodes to imagine, such as `2x8 NVIDIA-L40S:49140`.

    Raises:
        ReadError: no scheduler answers, or it refuses the Pods or *add*, or it is too old for the question.
    """
    query = f"?{urlencode([('add', text) for text in add])}" if add else ""
    found: list[dict[str, Any]] = _asked(source, f"/simulate{query}", orjson.dumps(pods))
    if (add or any(COUNT in pod for pod in pods)) and any(COUNT not in report for report in found):
        raise ReadError(_WHAT, "is of an older version, which counts each object once and adds no Nodes")
    return found


def move_plan(source: Source, question: Mapping[str, Any]) -> dict[str, Any]:
    """
    Return the scheduler's plan of moves for *question*, with the PodDisruptionBudgets that the caller may list.

    Raises:
        ReadError: they cannot be read, no scheduler answers, or it refuses the question, or it is too old for it.
    """
    budgets = [_pruned(budget) for budget in objects(source, _BUDGETS)]
    try:
        found: dict[str, Any] = _asked(source, "/defragment", orjson.dumps({**question, "budgets": budgets}))
    except ReadError as error:
        if error.status == _NOT_FOUND:
            raise ReadError(_WHAT, "is of an older version, which plans no moves", error.status) from error
        raise
    return found


def _pruned(budget: Object) -> Object:
    """Return the parts of a PodDisruptionBudget that a plan reads."""
    metadata, spec, status = budget.get("metadata") or {}, budget.get("spec") or {}, budget.get("status") or {}
    return {
        "metadata": {key: metadata.get(key) for key in ("namespace", "name", "generation")},
        "spec": {"selector": spec.get("selector")},
        "status": {key: status.get(key) for key in ("observedGeneration", "disruptionsAllowed")},
    }


def settings(source: Source) -> dict[str, str]:
    """
    Return the scheduler's device config and policies, by the names that a snapshot gives them.

    Raises:
        ReadError: no scheduler answers.
    """
    found: dict[str, str] = _asked(source, "/settings")
    return found


def schedulers(source: Source) -> list[Endpoint]:
    """
    Return where the schedulers answer people, the leader first.

    Raises:
        ReadError: none is running, none has a port for that, or the caller may not list the Pods of all namespaces.
    """
    selector = {"labelSelector": f"{COMPONENT}={SCHEDULER}"}
    try:
        pods = list(pods_of(objects(source, "/api/v1/pods", **selector), SCHEDULER))
    except ReadError as error:
        if not error.is_forbidden:
            raise
        why = (
            "its answers show Pods of all namespaces, which you may not list; the chart's role hami-operator allows it"
        )
        raise ReadError(_WHAT, why, error.status) from error
    if not pods:
        raise ReadError(_WHAT, f"no Pod with the label {COMPONENT}={SCHEDULER} is running")
    ports = [port for pod in leader_first(pods, _holder(source, pods)) if (port := endpoint(pod, EXPLAIN))]
    if not ports:
        raise ReadError(_WHAT, f"its Pods have no port called {EXPLAIN}: they are HAMi's or of an older chart")
    return ports


def _holder(source: Source, pods: list[Object]) -> str:
    """Return who leads, empty if that cannot be read."""
    namespace = pods[0]["metadata"]["namespace"]
    try:
        leases = listing(source, f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases").get("items") or ()
    except ReadError:
        return ""
    holders = [str((lease.get("spec") or {}).get("holderIdentity") or "") for lease in leases]
    own = [str(pod["metadata"]["name"]) for pod in pods]
    return next((holder for holder in holders if any(holder.startswith(name) for name in own)), "")


def _asked(source: Source, path: str, body: bytes | None = None) -> Any:
    """
    Return the first answer of a scheduler. The next one is asked, too, once the one before has failed or is silent.

    Raises: ReadError of the last one that failed, or of the first to which the question is wrong.
    """
    answers: SimpleQueue[Any] = SimpleQueue()

    def ask(port: Endpoint) -> None:
        try:
            answers.put(orjson.loads(source.ask(port, path, body)))
        except orjson.JSONDecodeError as error:
            answers.put(ReadError(_WHAT, f"the answer of Pod {port.namespace}/{port.pod} is not JSON: {error}"))
        except Exception as error:  # any: whoever waits for the answer raises it
            answers.put(error)

    waiting, running = deque(schedulers(source)), 0
    while True:
        if waiting:
            Thread(target=ask, args=(waiting.popleft(),), daemon=True).start()
            running += 1
        try:
            found = answers.get(timeout=_SILENCE_SECONDS if waiting else None)
        except Empty:
            continue
        running -= 1
        if not isinstance(found, Exception):
            return found
        if not isinstance(found, ReadError):
            raise found
        if found.status in _BAD_QUESTION:
            raise ReadError(_WHAT, found.why, found.status) from found
        if not waiting and not running:
            raise found
