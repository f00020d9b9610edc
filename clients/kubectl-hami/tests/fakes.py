"""
A cluster of recorded answers.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import orjson

from kubectl_hami.read.source import Endpoint, ReadError

from .builders import NOW


class FakeSource:
    """A cluster of recorded answers: of the API server by path without query, of services by Pod and path."""

    name = "fake"
    namespace = "default"
    patience_seconds = 5.0

    def __init__(self, answers: Mapping[str, Any], services: Mapping[tuple[str, str], Any] | None = None) -> None:
        self.answers = answers
        self.services = services or {}

    def now(self) -> datetime:
        """Return a fixed moment."""
        return NOW

    def get(self, path: str) -> bytes:
        """Return the answer of the API server."""
        return _given(self.answers.get(path.partition("?")[0], ReadError(path, "there is no such thing", 404)))

    def ask(self, endpoint: Endpoint, path: str, body: bytes | None = None) -> bytes:
        """Return the answer of a service."""
        return _given(self.services.get((endpoint.pod, path), ReadError(endpoint.pod, "does not answer")))


def _given(found: Any) -> bytes:
    """Return an answer; an error is raised."""
    if isinstance(found, ReadError):
        raise found
    return found if isinstance(found, bytes) else orjson.dumps(found)


def a_service(component: str, name: str, node: str = "n1", **ports: int) -> dict[str, Any]:
    """Return the running Pod of a service, with ports by name."""
    return {
        "metadata": {
            "namespace": "hami",
            "name": name,
            "labels": {"app.kubernetes.io/component": f"hami-{component}"},
        },
        "spec": {
            "nodeName": node,
            "containers": [
                {
                    "name": component,
                    "ports": [{"name": port, "containerPort": number} for port, number in ports.items()],
                }
            ],
        },
        "status": {"phase": "Running"},
    }
