"""
The requests to the API server, from its audit log.

Owns reading the log while it grows, as one file. All times are the API server's.
Source: https://kubernetes.io/docs/reference/config-api/apiserver-audit.v1/
"""

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson


@dataclass(frozen=True, slots=True)
class Request:
    """One answered request."""

    agent: str
    """The program: the first part of its User-Agent."""
    verb: str
    """Verb and resource, such as `create pods/binding`."""
    name: str
    status: int
    received: float
    """Unix seconds."""
    answered: float


class AuditLog:
    """The log at *path*, from its present end or the last `mark`."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        self._file.seek(0, os.SEEK_END)
        self._rest = b""
        self.requests: list[Request] = []
        """The requests since the last mark, in the order of their answers."""

    def mark(self) -> None:
        """Forget all requests in the log so far."""
        self.read()
        self.requests = []

    def read(self) -> list[Request]:
        """Read the new entries, and return all requests since the mark."""
        *lines, self._rest = (self._rest + self._file.read()).split(b"\n")
        self.requests += [_request(found) for found in map(orjson.loads, lines) if found["stage"] == "ResponseComplete"]
        return self.requests


def per_pod(requests: Sequence[Request], pods: int) -> dict[str, float]:
    """Return the requests for each Pod by `agent verb`, without watches and without values below 0.05."""
    counts = Counter(f"{found.agent} {found.verb}" for found in requests if not found.verb.startswith("watch "))
    return {key: round(count / pods, 2) for key, count in sorted(counts.items()) if count / pods >= 0.05}


def _request(found: dict[str, Any]) -> Request:
    reference = found.get("objectRef") or {}
    resource = "/".join(filter(None, (reference.get("resource"), reference.get("subresource"))))
    return Request(
        found.get("userAgent", "").partition("/")[0],
        f"{found['verb']} {resource or found['requestURI'].partition('?')[0]}",
        reference.get("name", ""),
        (found.get("responseStatus") or {}).get("code", 0),
        datetime.fromisoformat(found["requestReceivedTimestamp"]).timestamp(),
        datetime.fromisoformat(found["stageTimestamp"]).timestamp(),
    )
