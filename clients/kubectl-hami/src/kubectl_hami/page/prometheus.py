"""
The use of a Pod over time, from a Prometheus server that scrapes the monitors.

Owns the query. Its answer is bounded in time and size.
"""

import json
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, Final

from hamicommon.errors import HamiError
from kubectl_hami.page.history import Series, Use

MEMORY: Final = "hami_vgpu_memory_used_bytes"
BUSY: Final = "hami_share_busy_ratio"
SPAN_SECONDS: Final = 6 * 3600
STEP_SECONDS: Final = 60
TIMEOUT_SECONDS: Final = 5.0
BYTES_LIMIT: Final = 1 << 20
_MIB: Final = 1 << 20


class PrometheusError(HamiError):
    """Prometheus gave no history; the message says why."""


def query(metric: str, namespace: str, pod: str) -> str:
    """
    Return the PromQL for the sum of *metric* over the shares of a Pod.

    >>> query(BUSY, "team-a", "train")
    'sum(hami_share_busy_ratio{namespace="team-a",pod="train"})'
    """
    return f"sum({metric}{{namespace={_quoted(namespace)},pod={_quoted(pod)}}})"


def series(server: str, namespace: str, pod: str, now: float) -> Series:
    """
    Return the use of a Pod in the last hours before *now*, from the Prometheus at the URL *server*.

    Raises: PrometheusError.
    """
    memory = _values(server, query(MEMORY, namespace, pod), now)
    busy = _values(server, query(BUSY, namespace, pod), now)
    times = sorted(memory.keys() | busy.keys())
    uses = (Use(_scaled(memory.get(time), 1 / _MIB), _scaled(busy.get(time), 100)) for time in times)
    return Series(tuple(times), tuple(uses), "from Prometheus")


def _values(server: str, promql: str, now: float) -> dict[float, float]:
    """Return the answer to a query, by time."""
    asked = {"query": promql, "start": now - SPAN_SECONDS, "end": now, "step": STEP_SECONDS}
    url = f"{server.rstrip('/')}/api/v1/query_range?{urllib.parse.urlencode(asked)}"
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS) as answer:
            text = answer.read(BYTES_LIMIT + 1)
    except (OSError, ValueError) as error:
        raise PrometheusError(f"Prometheus at {server} does not answer: {error}") from error
    if len(text) > BYTES_LIMIT:
        raise PrometheusError(f"Prometheus at {server} answers with more than {BYTES_LIMIT} bytes")
    try:
        return _read(json.loads(text))
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise PrometheusError(f"Prometheus at {server} does not answer as Prometheus does: {error!r}") from error


def _read(answer: Any) -> dict[float, float]:
    found = answer["data"]["result"]
    return {float(time): float(value) for time, value in (found[0]["values"] if found else ())}


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else round(value * factor, 1)


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n") + '"'
