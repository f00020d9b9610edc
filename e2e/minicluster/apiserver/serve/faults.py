"""
Faults that a test can inject into this API server.

Owns the paths under `/minicluster/`, which no real API server has:

- `POST /minicluster/faults` adds one fault or a list. `GET` lists the remaining ones, `DELETE` removes all.
  A fault selects requests:
    `method`         regular expression, default any
    `path`           regular expression searched in path and query, default any
    `agent`          regular expression searched in the user agent, default any
    `times`          number of requests, default 1; 0 means all
  and has any of these effects:
    `delay_seconds`  wait first
    `status`         answer with this error and the given `reason` and `message`, and do nothing
    `disconnect`     `"before"`: close the connection and do nothing; `"after"`: do it, then close without an answer
- `POST /minicluster/compact` forgets all changes: watches from earlier versions get 410.
- `POST /minicluster/watches/drop` ends running watches whose path matches `path`. `how` is `"close"` (the default),
  `"abort"` (connection reset) or `"gone"` (an ERROR event 410 first).
- `POST /minicluster/watches/lag` makes the events of watches whose path matches `path`, running and new, late by
  `seconds`, so that a client learns of one kind of object after another. `DELETE` makes all punctual again.
- `GET /minicluster/requests` returns the number of requests by verb, resource and user agent, since the start or since
  the last `DELETE` of the same path.

Faults never affect `/minicluster/`. Must never change an object.
"""

import asyncio
import re
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

from minicluster.apiserver.api import errors
from minicluster.apiserver.store.storage import Storage

PREFIX = "/minicluster/"

HOW = ("close", "abort", "gone")


@dataclass
class Fault:
    """One injected fault."""

    method: str = ""
    path: str = ""
    agent: str = ""
    times: int = 1
    delay_seconds: float = 0.0
    status: int = 0
    reason: str = ""
    message: str = "injected fault"
    disconnect: str = ""
    hits: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        if self.disconnect not in {"", "before", "after"}:
            raise ValueError(f"disconnect must be before or after, found {self.disconnect!r}")
        re.compile(self.method)
        re.compile(self.path)
        re.compile(self.agent)

    def matches(self, method: str, path: str, agent: str) -> bool:
        """Return whether this fault affects a request."""
        is_left = not self.times or self.hits < self.times
        is_meant = re.fullmatch(self.method or ".*", method) is not None and re.search(self.path, path) is not None
        return is_left and is_meant and re.search(self.agent, agent) is not None


class DisconnectError(Exception):
    """Close the client's connection without an answer."""


class Faults:
    """The present faults and counters."""

    def __init__(self, storage: Storage) -> None:
        self.requests: Counter[tuple[str, str, str]] = Counter()
        """By verb, resource (with subresource) and user agent."""
        self.watches: dict[Any, str] = {}
        """The running watches (objects with `end(how)`) and their paths."""
        self._lag_seconds: dict[str, float] = {}
        """By the regular expression of the paths."""
        self._storage = storage
        self._faults: list[Fault] = []

    async def before(self, method: str, path: str, agent: str) -> bool:
        """
        Apply the faults to a request before it is handled, and return whether to drop its answer.

        Raises: StatusError or DisconnectError, by the fault.
        """
        fault = next((fault for fault in self._faults if fault.matches(method, path, agent)), None)
        if fault is None:
            return False
        fault.hits += 1
        if fault.delay_seconds:
            await asyncio.sleep(fault.delay_seconds)
        if fault.disconnect == "before":
            raise DisconnectError
        if fault.status:
            raise errors.StatusError(fault.status, fault.reason, fault.message)
        return fault.disconnect == "after"

    async def hold(self, path: str) -> None:
        """Wait as long as the events of a watch are late."""
        late_seconds = max((each for found, each in self._lag_seconds.items() if re.search(found, path)), default=0.0)
        if late_seconds:
            await asyncio.sleep(late_seconds)

    def handle(self, method: str, path: str, body: Any) -> Any:
        """
        Answer a request to a path under `/minicluster/`.

        Raises: StatusError 404 for an unknown path, 400 for an invalid body.
        """
        knob = path.removeprefix(PREFIX)
        try:
            match method, knob:
                case "POST", "faults":
                    for fault in body if isinstance(body, list) else [body]:
                        self._faults.append(Fault(**fault))
                case "DELETE", "faults":
                    self._faults.clear()
                case "POST", "compact":
                    return {"compacted": self._storage.compact()}
                case "POST", "watches/drop":
                    return {"dropped": self._drop(**(body or {}))}
                case "POST", "watches/lag":
                    return self._make_late(**(body or {}))
                case "DELETE", "watches/lag":
                    self._lag_seconds.clear()
                    return {}
                case "GET", "requests":
                    return [
                        dict(zip(("verb", "resource", "user_agent", "count"), (*key, count), strict=True))
                        for key, count in sorted(self.requests.items())
                    ]
                case "DELETE", "requests":
                    self.requests.clear()
                case "GET", "faults":
                    pass
                case _:
                    raise errors.no_such_path()
        except (TypeError, ValueError, re.error) as error:
            raise errors.bad_request(str(error)) from error
        return [asdict(fault) for fault in self._faults if not fault.times or fault.hits < fault.times]

    def _drop(self, path: str = "", how: str = "close") -> int:
        if how not in HOW:
            raise ValueError(f"how must be one of {', '.join(HOW)}, found {how!r}")
        dropped = [watch for watch, found in self.watches.items() if re.search(path, found)]
        for watch in dropped:
            watch.end(how)
        return len(dropped)

    def _make_late(self, path: str = "", seconds: float = 0.0) -> dict[str, float]:
        re.compile(path)
        self._lag_seconds[path] = float(seconds)
        return self._lag_seconds
