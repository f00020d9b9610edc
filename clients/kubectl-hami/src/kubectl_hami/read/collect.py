"""
Read what a picture of a cluster or a diagnosis needs, and go on where something cannot be read. Also the Events about
one Pod.
"""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import islice
from typing import Any, Final
from urllib.parse import quote

from hamicommon.model import Object
from kubectl_hami.read.services import METRICS, component_of, endpoint, pods_of
from kubectl_hami.read.source import ReadError, Source, listing, objects, proxied
from kubectl_hami.values.cluster import ClusterSnapshot
from kubectl_hami.values.diagnosis import COMPONENTS, MONITOR, Examined, Service

THREADS: Final = 16
"""Requests at a time."""
_SILENT_NAMED: Final = 3
EVENT_LIMIT: Final = 200
"""Events that are read about one Pod."""
REFUSALS: Final = {"fieldSelector": "reason=FilteringFailed"}


def collect_pods(source: Source, namespace: str = "") -> ClusterSnapshot:
    """
    Return the Pods and what the scheduler says of them, without Nodes and use.

    Raises:
        ReadError: the Pods cannot be read.
    """
    problems: list[str] = []
    refusals = everything(source, "/api/v1/events", problems, **REFUSALS)
    pods = _pods(source, namespace, problems)
    return ClusterSnapshot(source.name, source.now(), pods=pods, refusals=refusals, problems=tuple(problems))


def collect(source: Source, namespace: str = "") -> ClusterSnapshot:
    """
    Return the objects and metrics of a cluster. Only if the caller may not list all Pods, those of *namespace* suffice.

    Raises:
        ReadError: not even the Pods can be read.
    """
    problems: list[str] = []
    with ThreadPoolExecutor(THREADS) as pool:
        nodes = pool.submit(everything, source, "/api/v1/nodes", problems)
        refusals = pool.submit(everything, source, "/api/v1/events", problems, **REFUSALS)
        pods = _pods(source, namespace, problems)
        monitors = _monitors(source, pods, pool, problems)
    return ClusterSnapshot(
        name=source.name,
        taken_at=source.now(),
        nodes=nodes.result(),
        pods=pods,
        refusals=refusals.result(),
        monitors=monitors,
        problems=tuple(problems),
    )


def events(source: Source, namespace: str, pod: str) -> list[Object]:
    """
    Return the Events about a Pod, at most EVENT_LIMIT.

    Raises:
        ReadError: they cannot be read.
    """
    fields = f"involvedObject.kind=Pod,involvedObject.name={pod}"
    path = f"/api/v1/namespaces/{quote(namespace, safe='')}/events"
    return list(islice(objects(source, path, fieldSelector=fields), EVENT_LIMIT))


def everything(source: Source, path: str, problems: list[str], **query: str) -> tuple[Object, ...]:
    """Return a collection, or nothing and a problem."""
    try:
        return tuple(objects(source, path, **query))
    except ReadError as error:
        problems.append(str(error))
        return ()


def _pods(source: Source, namespace: str, problems: list[str]) -> tuple[Object, ...]:
    try:
        return tuple(objects(source, "/api/v1/pods"))
    except ReadError as error:
        if not error.is_forbidden:
            raise
        if not namespace:
            raise ReadError(
                error.what, f"{error.why}; with -n NAMESPACE only its Pods are read", error.status
            ) from error
        problems.append(f"{error}; only the Pods of {namespace} count, and use is unknown")
        return tuple(objects(source, f"/api/v1/namespaces/{namespace}/pods"))


def _monitors(
    source: Source, pods: Iterable[Object], pool: ThreadPoolExecutor, problems: list[str]
) -> dict[str, bytes]:
    """Return the metrics of every monitor that answers, by Node."""
    found = {}
    places = [(str(pod["spec"].get("nodeName")), endpoint(pod, METRICS)) for pod in pods_of(pods, MONITOR)]
    asked = [(node, pool.submit(source.get, proxied(port, "/metrics"))) for node, port in places if port is not None]
    silent: list[tuple[str, ReadError]] = []
    for node, answer in asked:
        try:
            found[node] = answer.result()
        except ReadError as error:
            silent.append((node, error))
    if silent:
        names = ", ".join(node for node, _ in silent[:_SILENT_NAMED])
        more = f" and {len(silent) - _SILENT_NAMED} more" if len(silent) > _SILENT_NAMED else ""
        problems.append(f"use is unknown on {names}{more}: {silent[0][1]}")
    elif not asked:
        problems.append("no monitor is running, so use is unknown")
    return found


def examine(source: Source) -> Examined:
    """
    Return everything that the checks read.

    Raises:
        ReadError: not even the Pods can be read.
    """
    cluster = collect(source)
    problems: list[str] = []
    pods = [pod for pod in cluster.pods if component_of(pod) in COMPONENTS]
    with ThreadPoolExecutor(THREADS) as pool:
        services = tuple(pool.map(lambda pod: _service(source, pod), pods))
    namespaces = sorted({str(pod["metadata"].get("namespace")) for pod in pods})
    config_maps = [
        one for name in namespaces for one in everything(source, f"/api/v1/namespaces/{name}/configmaps", problems)
    ]
    return Examined(
        cluster=replace(cluster, problems=(*cluster.problems, *problems)),
        services=services,
        webhooks=everything(source, "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations", problems),
        config_maps=tuple(config_maps),
        node_leases=everything(source, "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases", problems),
        version=_version(source),
    )


def _service(source: Source, pod: Object) -> Service:
    """Return the service of *pod*, with its metrics if it answers."""
    component, port = component_of(pod), endpoint(pod, METRICS)
    if port is None:
        return Service(component, pod, why_silent=f"it has no port called {METRICS}")
    try:
        return Service(component, pod, source.get(proxied(port, "/metrics")))
    except ReadError as error:
        return Service(component, pod, why_silent=error.why)


def _version(source: Source) -> dict[str, Any]:
    try:
        return listing(source, "/version")
    except ReadError:
        return {}
