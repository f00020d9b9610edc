"""
What the API server was asked, from its audit log.

Owns the reading of the log while it grows, as one file. Every time in it is the API server's own.
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
    """One request that was answered."""

    agent: str
    """The program: what comes first in its User-Agent."""
    verb: str
    """With the resource, as `create pods/binding`."""
    name: str
    status: int
    received: float
    """Unix seconds."""
    answered: float


class AuditLog:
    """The log at *path*; read from its end as it is now, or from where `mark` was called last."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        self._file.seek(0, os.SEEK_END)
        self._rest = b""
        self.requests: list[Request] = []
        """Since the last mark, in the order they were answered."""

    def mark(self) -> None:
        """Forget what was read, and all that is in the log by now."""
        self.read()
        self.requests = []

    def read(self) -> list[Request]:
        """Take what was written since the last look, and return everything since the mark."""
        *lines, self._rest = (self._rest + self._file.read()).split(b"\n")
        self.requests += [_request(found) for found in map(orjson.loads, lines) if found["stage"] == "ResponseComplete"]
        return self.requests


def per_pod(requests: Sequence[Request], pods: int) -> dict[str, float]:
    """Return the requests a Pod by `agent verb`, without watches; fewer than one in twenty Pods are left out."""
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
