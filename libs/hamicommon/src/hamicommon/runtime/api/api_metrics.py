"""
Metrics of the requests to the API server: by verb, resource and outcome, and the time they waited.

There is a series for each kind of request, about ten for a service, and none for single objects.
Neighbours: `kube` reports each request.
"""

from functools import cache

from prometheus_client import CollectorRegistry, Counter, Histogram

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_OUTCOMES = {404: "not_found", 409: "conflict", 410: "gone", 429: "throttled"}
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


class ApiMetrics:
    """Requests to the API server."""

    def __init__(self, registry: CollectorRegistry, prefix: str) -> None:
        """Register in *registry* under names that begin with *prefix*, such as `hami_scheduler`."""
        requests = Counter(
            f"{prefix}_api_requests",
            "Requests to the API server.",
            ["verb", "resource", "outcome"],
            registry=registry,
        )
        seconds = Histogram(
            f"{prefix}_api_request_seconds",
            "Time until the API server answered, without watches.",
            ["verb"],
            buckets=_SECONDS,
            registry=registry,
        )
        self._requests_of, self._seconds_of = cache(requests.labels), cache(seconds.labels)
        self._throttled = Counter(
            f"{prefix}_api_throttled_seconds",
            "Time that requests waited for a connection, or that the API server asked them to wait.",
            registry=registry,
        )

    def answered(self, method: str, path: str, status: int, seconds: float, *, is_watch: bool) -> None:
        """Count one request by its HTTP *method*; *status* is 0 without an answer."""
        resource, is_object = resource_of(path)
        verb = _VERBS.get(method) or ("watch" if is_watch else "get" if is_object else "list")
        self._requests_of(verb, resource, outcome_of(status)).inc()
        if not is_watch:
            self._seconds_of(verb).observe(seconds)

    def waited(self, seconds: float) -> None:
        """Count time that a request waited."""
        self._throttled.inc(seconds)


def resource_of(path: str) -> tuple[str, bool]:
    """
    Return the resource at an API *path*, with its subresource, and whether the path is one object's.

    >>> resource_of("/api/v1/namespaces/default/pods/p/binding"), resource_of("/api/v1/nodes")
    (('pods/binding', True), ('nodes', False))
    >>> resource_of("/apis/coordination.k8s.io/v1/namespaces/a/leases"), resource_of("/version")
    (('leases', False), ('version', False))
    """
    parts = path.strip("/").split("/")
    parts = parts[2:] if parts[0] == "api" else parts[3:] if parts[0] == "apis" else parts
    if parts[:1] == ["namespaces"] and len(parts) > 2:
        parts = parts[2:]
    return "/".join((*parts[:1], *parts[2:3])), len(parts) > 1


def outcome_of(status: int) -> str:
    """
    Return the outcome of a request in one word.

    >>> [outcome_of(status) for status in (0, 201, 403, 409, 429, 503)]
    ['unreachable', 'ok', 'refused', 'conflict', 'throttled', 'server_error']
    """
    if status == 0:
        return "unreachable"
    if status < 400:
        return "ok"
    return _OUTCOMES.get(status) or ("refused" if status < 500 else "server_error")
