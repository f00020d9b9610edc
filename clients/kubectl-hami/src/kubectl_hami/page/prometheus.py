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
from kubectl_hami.page.history import Series

METRIC: Final = "hami_vgpu_memory_used_bytes"
SPAN_SECONDS: Final = 6 * 3600
STEP_SECONDS: Final = 60
TIMEOUT_SECONDS: Final = 5.0
BYTES_LIMIT: Final = 1 << 20
_MIB: Final = 1 << 20


class PrometheusError(HamiError):
    """Prometheus gave no history; the message says why."""


def query(namespace: str, pod: str) -> str:
    """
    Return the PromQL for the memory that a Pod uses, in bytes.

    >>> query("team-a", "train")
    'sum(hami_vgpu_memory_used_bytes{namespace="team-a",pod="train"})'
    """
    return f"sum({METRIC}{{namespace={_quoted(namespace)},pod={_quoted(pod)}}})"


def series(server: str, namespace: str, pod: str, now: float) -> Series:
    """
    Return the use of a Pod in the last hours before *now*, from the Prometheus at the URL *server*.

    Raises: PrometheusError.
    """
    asked = {"query": query(namespace, pod), "start": now - SPAN_SECONDS, "end": now, "step": STEP_SECONDS}
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


def _read(answer: Any) -> Series:
    found = answer["data"]["result"]
    values = [(float(time), float(value) / _MIB) for time, value in (found[0]["values"] if found else ())]
    return Series(tuple(time for time, _ in values), tuple(round(mib, 1) for _, mib in values), "from Prometheus")


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n") + '"'
