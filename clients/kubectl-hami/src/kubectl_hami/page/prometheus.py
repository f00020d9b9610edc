"""
The use of Pods and devices over time, from a Prometheus server that scrapes the monitors.

Owns the queries. Neighbours: `read.prometheus` asks them.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from kubectl_hami.page.history import Series, Use
from kubectl_hami.read.prometheus import asked

SHARE_MEMORY: Final = "hami_vgpu_memory_used_bytes"
SHARE_BUSY: Final = "hami_share_busy_ratio"
DEVICE_MEMORY: Final = "hami_host_gpu_memory_used_bytes"
DEVICE_BUSY: Final = "hami_host_gpu_utilization_ratio"
"""In percent, as HAMi has it."""
SPAN_SECONDS: Final = 6 * 3600
STEP_SECONDS: Final = 60
_MIB: Final = 1 << 20
_DEVICE: Final = "device_uuid"
LIMIT_BYTES: Final = 8 << 20
"""A Node of 128 devices has 46 000 values."""

Values = Mapping[float, float]
"""By time."""


@dataclass(frozen=True, slots=True)
class PrometheusPast:
    """What the Prometheus at the URL `server` knows of the last hours. Each method may raise PrometheusError."""

    server: str

    def pod(self, namespace: str, name: str, now: float) -> Series:
        """Return the use of a Pod, summed over its shares."""
        labels = {"namespace": namespace, "pod": name}
        memory, busy = (self._values(query(metric, **labels), now).get("", {}) for metric in (SHARE_MEMORY, SHARE_BUSY))
        return _series(memory, busy, percent=100)

    def devices(self, node: str, now: float) -> Mapping[str, Series]:
        """Return the use of each device of a Node, by UUID."""
        memory, busy = (
            self._values(query(metric, by=_DEVICE, node=node), now) for metric in (DEVICE_MEMORY, DEVICE_BUSY)
        )
        return {uuid: _series(memory.get(uuid, {}), busy.get(uuid, {}), percent=1) for uuid in memory | busy}

    def _values(self, promql: str, now: float) -> dict[str, Values]:
        """Return the answer to a query, by device; the one of a sum over all devices has the name ""."""
        return asked(
            self.server,
            "query_range",
            _read,
            limit_bytes=LIMIT_BYTES,
            query=promql,
            start=now - SPAN_SECONDS,
            end=now,
            step=STEP_SECONDS,
        )


def query(metric: str, by: str = "", **labels: str) -> str:
    """
    Return the PromQL for the sum of *metric* over what has *labels*, for each value of the label *by* if there is one.

    >>> query(SHARE_BUSY, namespace="team-a", pod="train")
    'sum(hami_share_busy_ratio{namespace="team-a",pod="train"})'
    """
    chosen = ",".join(f"{name}={_quoted(value)}" for name, value in labels.items())
    return f"sum{f' by ({by}) ' if by else ''}({metric}{{{chosen}}})"


def _read(found: Any) -> dict[str, Values]:
    return {
        str(one["metric"].get(_DEVICE, "")): {
            float(time): float(value) for time, value in one["values"] if math.isfinite(float(value))
        }
        for one in found
    }


def _series(memory: Values, busy: Values, *, percent: int) -> Series:
    """Return bytes and parts of *percent* as one series."""
    times = sorted(memory.keys() | busy.keys())
    uses = (Use(_scaled(memory.get(time), 1 / _MIB), _scaled(busy.get(time), percent)) for time in times)
    return Series(tuple(times), tuple(uses), "from Prometheus")


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else round(value * factor, 1)


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n") + '"'
