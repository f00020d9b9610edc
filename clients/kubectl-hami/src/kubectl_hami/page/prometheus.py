"""
The use of a Pod over time, from a Prometheus server that scrapes the monitors.

Owns the query. Neighbours: `read.prometheus` asks it.
"""

from typing import Any, Final

from kubectl_hami.page.history import Series, Use
from kubectl_hami.read.prometheus import asked

MEMORY: Final = "hami_vgpu_memory_used_bytes"
BUSY: Final = "hami_share_busy_ratio"
SPAN_SECONDS: Final = 6 * 3600
STEP_SECONDS: Final = 60
_MIB: Final = 1 << 20


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
    return asked(server, "query_range", _read, query=promql, start=now - SPAN_SECONDS, end=now, step=STEP_SECONDS)


def _read(found: Any) -> dict[float, float]:
    return {float(time): float(value) for time, value in (found[0]["values"] if found else ())}


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else round(value * factor, 1)


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n") + '"'
