"""
Read what a diagnosis needs, and go on where something cannot be read.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from hamicommon.model import Object
from kubectl_hami.read.collect import THREADS, collect, everything
from kubectl_hami.read.services import METRICS, component_of, endpoint
from kubectl_hami.read.source import ReadError, Source, listing, proxied
from kubectl_hami.values.diagnosis import COMPONENTS, Examined, Service


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
