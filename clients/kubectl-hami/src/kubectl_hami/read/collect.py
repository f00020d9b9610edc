"""
Read what a picture of a cluster or a diagnosis needs, and go on where something cannot be read. Also the Events about
one Pod.
"""

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime
from functools import partial
from itertools import islice
from typing import Any, Final
from urllib.parse import quote

from hamicommon.dra.names import API_VERSION, DRA, DRIVER, node_kind
from hamicommon.model import Object
from kubectl_hami.read.services import COMPONENT, METRICS, component_of, endpoint, pod_name, pods_of
from kubectl_hami.read.source import ReadError, Source, listing, objects, proxied
from kubectl_hami.read.together import together
from kubectl_hami.values.cluster import ClusterSnapshot
from kubectl_hami.values.diagnosis import COMPONENTS, MONITOR, Examined, Service

_LISTS: Final = 16
"""Collections that are read at a time."""
_WORKLOADS: Final = {"labelSelector": f"{COMPONENT} in ({','.join(COMPONENTS)})"}
_SILENT_NAMED: Final = 3
_NOT_FOUND: Final = 404
EVENT_LIMIT: Final = 200
"""Events that are read about one Pod."""
OURS: Final = {"fieldSelector": f"spec.driver={DRIVER}"}
REFUSALS: Final = {"fieldSelector": "reason=FilteringFailed"}


def collect_pods(source: Source, namespace: str = "") -> ClusterSnapshot:
    """
    Return the Pods and what the scheduler says of them, without Nodes and use.

    Raises:
        ReadError: the Pods cannot be read.
    """
    problems: list[str] = []
    refusals = _refusals(source, namespace, problems)
    pods, is_partial = _pods(source, namespace, problems)
    return ClusterSnapshot(
        source.name, source.now(), pods=pods, is_partial=is_partial, refusals=refusals, problems=tuple(problems)
    )


def collect(source: Source, namespace: str = "", *, with_quotas: bool = False) -> ClusterSnapshot:
    """
    Return the objects and metrics of a cluster; ResourceQuotas, and the ConfigMaps that name resources, *with_quotas*.

    Only if the caller may not list all Pods, those of *namespace* suffice.

    Raises:
        ReadError: not even the Pods can be read.
    """
    cluster = _objects(source, namespace, with_quotas=with_quotas)
    scrapes = _scrapes(source, pods_of(cluster.pods, MONITOR))
    if with_quotas:
        services = [pod for pod in cluster.pods if component_of(pod) in COMPONENTS]
        cluster = replace(cluster, config_maps=_config_maps(source, services, []))
    return _measured(cluster, list(pods_of(cluster.pods, MONITOR)), scrapes)


def _objects(source: Source, namespace: str = "", *, with_quotas: bool = False) -> ClusterSnapshot:
    """Return Nodes, Pods, refusals and, *with_quotas*, ResourceQuotas, read side by side."""
    problems: list[str] = []
    with ThreadPoolExecutor(_LISTS) as pool:
        quotas = pool.submit(_quotas, source, namespace, problems) if with_quotas else None
        nodes = pool.submit(everything, source, "/api/v1/nodes", problems)
        refusals = pool.submit(_refusals, source, namespace, problems)
        pods, is_partial = _pods(source, namespace, problems)
        is_dra = DRA in map(node_kind, nodes.result())
        claims = pool.submit(_resources, source, "resourceclaims", problems) if is_dra else None
        slices = pool.submit(_resources, source, "resourceslices", problems, **OURS) if is_dra else None
    return ClusterSnapshot(
        name=source.name,
        taken_at=source.now(),
        claims=claims.result() if claims else None,
        slices=slices.result() if slices else None,
        nodes=nodes.result(),
        pods=pods,
        is_partial=is_partial,
        refusals=refusals.result(),
        quotas=quotas.result() if quotas else (),
        problems=tuple(problems),
    )


def events(source: Source, namespace: str, pod: str) -> list[Object]:
    """
    Return the Events about a Pod, at most EVENT_LIMIT; about the last one of this name if there is none now.

    Raises:
        ReadError: they cannot be read.
    """
    place = f"/api/v1/namespaces/{quote(namespace, safe='')}"
    fields = f"involvedObject.kind=Pod,involvedObject.name={pod}"
    found = list(islice(objects(source, f"{place}/events", fieldSelector=fields), EVENT_LIMIT))
    pods = everything(source, f"{place}/pods", [], fieldSelector=f"metadata.name={pod}")
    uids = [str(one["metadata"].get("uid")) for one in pods if one["metadata"].get("name") == pod]
    if not uids:
        uids = [_uid_about(event) for event in sorted(found, key=_seen_at)[-1:]]
    return [event for event in found if _uid_about(event) in uids]


def _uid_about(event: Object) -> str:
    """Return the UID of the object that *event* is about."""
    return str((event.get("involvedObject") or {}).get("uid") or "")


def _seen_at(event: Object) -> str:
    times = (event.get("lastTimestamp"), event.get("eventTime"), (event.get("metadata") or {}).get("creationTimestamp"))
    return next((str(time) for time in times if time), "")


def labelled(source: Source, namespace: str, selector: str) -> frozenset[tuple[str, str]]:
    """
    Return namespace and name of the Pods that *selector* matches, of *namespace* unless that is empty.

    Raises:
        ReadError: they cannot be read, or the selector is wrong.
    """
    place = f"/api/v1/namespaces/{quote(namespace, safe='')}/pods" if namespace else "/api/v1/pods"
    found = (pod["metadata"] for pod in objects(source, place, labelSelector=selector))
    return frozenset((str(metadata["namespace"]), str(metadata["name"])) for metadata in found)


def everything(source: Source, path: str, problems: list[str], **query: str) -> tuple[Object, ...]:
    """Return a collection, or nothing and a problem."""
    try:
        return tuple(objects(source, path, **query))
    except ReadError as error:
        problems.append(str(error))
        return ()


def _pods(source: Source, namespace: str, problems: list[str]) -> tuple[tuple[Object, ...], bool]:
    """Return the Pods, and whether they are only those of *namespace* because the caller may not list all."""
    try:
        return tuple(objects(source, "/api/v1/pods")), False
    except ReadError as error:
        if not error.is_forbidden:
            raise
        if not namespace:
            raise ReadError(
                error.what, f"{error.why}; with -n NAMESPACE only its Pods are read", error.status
            ) from error
        problems.append(f"{error}; only the Pods of {namespace} count, and use is unknown")
        return tuple(objects(source, f"/api/v1/namespaces/{namespace}/pods")), True


def _refusals(source: Source, namespace: str, problems: list[str]) -> tuple[Object, ...]:
    """Return the Events in which the scheduler says why, only those of *namespace* if the caller may not list all."""
    try:
        return tuple(objects(source, "/api/v1/events", **REFUSALS))
    except ReadError as error:
        if error.is_forbidden and namespace:
            return everything(source, f"/api/v1/namespaces/{namespace}/events", problems, **REFUSALS)
        problems.append(str(error))
        return ()


def _quotas(source: Source, namespace: str, problems: list[str]) -> tuple[Object, ...]:
    """Return the ResourceQuotas, only those of *namespace* if the caller may not list all."""
    try:
        return tuple(objects(source, "/api/v1/resourcequotas"))
    except ReadError as error:
        if error.is_forbidden and namespace:
            return everything(source, f"/api/v1/namespaces/{namespace}/resourcequotas", problems)
        problems.append(f"{error}; quotas are unknown")
        return ()


def _resources(source: Source, kind: str, problems: list[str], **query: str) -> tuple[Object, ...] | None:
    """Return a collection of dynamic resource allocation; None and a problem if it cannot be read."""
    try:
        return tuple(objects(source, f"/apis/{API_VERSION}/{kind}", **query))
    except ReadError as error:
        if error.status == _NOT_FOUND:
            return ()
        problems.append(f"{error}; shares by ResourceClaims are not shown")
        return None


def _measured(
    cluster: ClusterSnapshot, monitors: Sequence[Object], scrapes: Mapping[str, bytes | ReadError]
) -> ClusterSnapshot:
    """Return *cluster* with what its *monitors* answered, by Node, and a problem if some did not."""
    problems = list(cluster.problems)
    answers = [(str(pod["spec"].get("nodeName")), scrapes[pod_name(pod)]) for pod in monitors]
    silent = [(node, answer) for node, answer in answers if isinstance(answer, ReadError)]
    if silent:
        names = ", ".join(node for node, _ in silent[:_SILENT_NAMED])
        more = f" and {len(silent) - _SILENT_NAMED} more" if len(silent) > _SILENT_NAMED else ""
        problems.append(f"use is unknown on {names}{more}: {silent[0][1]}")
    elif not answers and not cluster.is_partial:
        problems.append("no monitor is running, so use is unknown")
    measured = {node: answer for node, answer in answers if not isinstance(answer, ReadError)}
    return replace(cluster, monitors=measured, problems=tuple(problems))


def _scrapes(source: Source, pods: Iterable[Object]) -> dict[str, bytes | ReadError]:
    """Return the metrics of each of *pods*, or why there are none, by the Pod's name."""
    return together({pod_name(pod): partial(_scrape, source, pod) for pod in pods}, source.patience_seconds)


def _scrape(source: Source, pod: Object) -> bytes:
    port = endpoint(pod, METRICS)
    if port is None:
        raise ReadError(pod_name(pod), f"it has no port called {METRICS}")
    return source.get(proxied(port, "/metrics"))


def examine(source: Source) -> Examined:
    """
    Return everything that the checks read.

    Raises:
        ReadError: not even the Pods can be read.
    """
    problems: list[str] = []
    with ThreadPoolExecutor(_LISTS) as pool:
        leases = pool.submit(_leases, source, problems)
        version = pool.submit(_version, source)
        registrations = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
        webhooks = pool.submit(everything, source, registrations, problems)
        workloads = [pool.submit(_workloads, source, kind, problems) for kind in ("deployments", "daemonsets")]
        cluster = _objects(source)
        pods = [pod for pod in cluster.pods if component_of(pod) in COMPONENTS and not _is_leaving(pod)]
        config_maps = pool.submit(_config_maps, source, pods, problems)
        scrapes = _scrapes(source, pods)
    cluster = _measured(cluster, list(pods_of(pods, MONITOR)), scrapes)
    node_leases, leases_read_at = leases.result()
    return Examined(
        cluster=replace(cluster, problems=(*cluster.problems, *problems)),
        services=tuple(_service(pod, scrapes[pod_name(pod)]) for pod in pods),
        workloads=tuple(one for found in workloads for one in found.result()),
        webhooks=webhooks.result(),
        config_maps=config_maps.result(),
        node_leases=node_leases,
        leases_read_at=leases_read_at,
        version=version.result(),
    )


def _is_leaving(pod: Object) -> bool:
    """Return whether *pod* has ended, or is deleted; another one takes its place."""
    phase = (pod.get("status") or {}).get("phase")
    return phase in {"Failed", "Succeeded"} or bool((pod.get("metadata") or {}).get("deletionTimestamp"))


def _config_maps(source: Source, services: Iterable[Object], problems: list[str]) -> tuple[Object, ...]:
    """Return the ConfigMaps in the namespaces of *services*."""
    namespaces = sorted({str(pod["metadata"].get("namespace")) for pod in services})
    paths = [f"/api/v1/namespaces/{name}/configmaps" for name in namespaces]
    return tuple(one for path in paths for one in everything(source, path, problems))


def _service(pod: Object, answer: bytes | ReadError) -> Service:
    if isinstance(answer, ReadError):
        return Service(component_of(pod), pod, None, answer.why, answer.is_forbidden)
    return Service(component_of(pod), pod, answer)


def _workloads(source: Source, kind: str, problems: list[str]) -> tuple[Object, ...]:
    """Return the workloads of the services, of one kind. Services may run without any."""
    try:
        return tuple(objects(source, f"/apis/apps/v1/{kind}", **_WORKLOADS))
    except ReadError as error:
        if error.status != _NOT_FOUND:
            problems.append(str(error))
        return ()


def _leases(source: Source, problems: list[str]) -> tuple[tuple[Object, ...], datetime]:
    """Return the Leases of the kubelets, and when they were read: each is a few seconds old."""
    path = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
    return everything(source, path, problems), source.now()


def _version(source: Source) -> dict[str, Any]:
    try:
        return listing(source, "/version")
    except ReadError:
        return {}
