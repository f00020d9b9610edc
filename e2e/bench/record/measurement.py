"""
The figures of one run.

Owns the arithmetic from records to figures. Neighbours: `load.rig` makes the records, `scale` prints the figures.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from bench.record.audit import Request, per_pod
from bench.record.usage import Usage

BINDING = "create pods/binding"


class By(Enum):
    """How a Pod asks for its share."""

    LIMITS = "limits"
    """As users write it."""
    MOVED_LIMITS = "moved limits"
    """As our webhook leaves it for Nodes with tokens."""
    CLAIM = "claim"
    """By a ResourceClaim, which kube-controller-manager makes from a template."""


@dataclass(frozen=True, slots=True)
class Case:
    """The scheduler, and the limits of each Pod."""

    name: str
    extender: str
    """`hami`, `trivial`, or empty for kube-scheduler alone."""
    limits: Mapping[str, int]
    nodes: str = ""
    """The value of the label `kind` of the Nodes that its Pods accept; empty for all."""
    by: By = By.LIMITS


class Load(Enum):
    """The kind of load."""

    CREATION = "creation"
    """Pods are created while they are scheduled. Time counts from the first creation."""
    BACKLOG = "backlog"
    """All Pods exist before kube-scheduler starts. Time counts from the first binding."""


@dataclass(frozen=True, slots=True)
class Records:
    """The records of a run."""

    requests: Sequence[Request]
    extender_seconds: Mapping[str, Sequence[float]]
    before: Usage
    after: Usage
    load_average: float
    """Of this machine, in the minute before."""
    yardstick_ms: float
    """The duration of a fixed piece of work, which shows the speed of the processors."""


@dataclass(frozen=True, slots=True)
class Run:
    """The figures of one load in one case."""

    case: str
    load: str
    pods: int
    pods_per_second: float
    """Until the last Pod runs."""
    bound_per_second: float
    """Until the last Pod is bound."""
    wait_seconds: Mapping[str, float]
    """From the creation of a Pod to its binding, by percentile."""
    extender_ms: Mapping[str, Mapping[str, float]]
    """The latency for kube-scheduler, by verb and percentile."""
    requests_per_pod: Mapping[str, float]
    """Requests to the API server, by program and verb."""
    cpu_ms_per_pod: Mapping[str, float]
    """By process. `others` are all processes outside the run."""
    memory_mib: Mapping[str, int]
    load_average: float
    yardstick_ms: float


def run_of(case: Case, load: Load, pods: int, records: Records) -> Run:
    """Return the figures of *records*."""
    created = {found.name: found for found in records.requests if found.verb == "create pods"}
    bound = {found.name: found for found in records.requests if is_binding(found)}
    began = min(found.received for found in (created if load is Load.CREATION else bound).values())
    last_bound = max(found.answered for found in bound.values())
    last_running = max(found.answered for found in records.requests if is_running(found))
    waits = [found.answered - created[name].received for name, found in bound.items() if name in created]
    used = records.after.since(records.before)
    return Run(
        case.name,
        load.value,
        pods,
        round(pods / (last_running - began), 1),
        round(pods / (last_bound - began), 1),
        percentiles(waits, 1),
        {verb: percentiles(found, 1000) for verb, found in records.extender_seconds.items()},
        per_pod(records.requests, pods),
        {name: round(cpu * 1000 / pods, 2) for name, cpu in used.items()},
        records.after.memory_mib,
        records.load_average,
        round(records.yardstick_ms, 3),
    )


def is_binding(request: Request) -> bool:
    """Return whether *request* bound a Pod."""
    return request.verb == BINDING and request.status == 201


def is_running(request: Request) -> bool:
    """Return whether *request* set a Pod Running, which is the only status that kwok writes."""
    return request.agent == "kwok" and request.verb == "patch pods/status" and request.status == 200


def percentiles(seconds: Sequence[float], scale: int) -> dict[str, float]:
    """Return p50, p95, p99 and maximum of *seconds*, times *scale*, or nothing for fewer than two values."""
    if len(seconds) < 2:
        return {}
    cuts = statistics.quantiles(seconds, n=100, method="inclusive")
    named = {"p50": cuts[49], "p95": cuts[94], "p99": cuts[98], "max": max(seconds)}
    return {name: round(value * scale, 2) for name, value in named.items()}
