"""
One measured run: who scheduled, under which load, and what it cost.

Owns the arithmetic from records to figures. Neighbours: `rig` makes the records, `scale` prints the figures.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from bench.record.audit import Request, per_pod
from bench.record.usage import Usage

BINDING = "create pods/binding"


@dataclass(frozen=True, slots=True)
class Case:
    """Who schedules, and what each Pod asks for."""

    name: str
    extender: str
    """`hami`, `trivial`, or empty for kube-scheduler alone."""
    limits: Mapping[str, int]


class Load(Enum):
    """How Pods come."""

    CREATION = "creation"
    """They are created while they are scheduled; the clock runs from the first creation."""
    BACKLOG = "backlog"
    """All are there before kube-scheduler starts; the clock runs from the first binding."""


@dataclass(frozen=True, slots=True)
class Records:
    """What was seen while a load was placed."""

    requests: Sequence[Request]
    extender_seconds: Mapping[str, Sequence[float]]
    before: Usage
    after: Usage
    load_average: float
    """Of the machine, in the minute before."""
    yardstick_ms: float
    """What a piece of work took meanwhile: the processors' slowness."""


@dataclass(frozen=True, slots=True)
class Run:
    """What one load cost in one case."""

    case: str
    load: str
    pods: int
    pods_per_second: float
    """Until the last one was said to run."""
    bound_per_second: float
    """Until the last one was bound."""
    wait_seconds: Mapping[str, float]
    """From a Pod's creation to its binding, by percentile."""
    extender_ms: Mapping[str, Mapping[str, float]]
    """By verb and percentile, as kube-scheduler sees it."""
    requests_per_pod: Mapping[str, float]
    """To the API server, by program and verb."""
    cpu_ms_per_pod: Mapping[str, float]
    """By process; `others` is everything on the machine that is no part of the run."""
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
    """Return whether *request* gave a Pod its Node."""
    return request.verb == BINDING and request.status == 201


def is_running(request: Request) -> bool:
    """Return whether by *request* a Node said that a Pod runs; kwok says nothing else of a Pod, and that once."""
    return request.agent == "kwok" and request.verb == "patch pods/status" and request.status == 200


def percentiles(seconds: Sequence[float], scale: int) -> dict[str, float]:
    """Return p50, p95, p99 and the largest of *seconds*, times *scale*; empty for fewer than two."""
    if len(seconds) < 2:
        return {}
    cuts = statistics.quantiles(seconds, n=100, method="inclusive")
    named = {"p50": cuts[49], "p95": cuts[94], "p99": cuts[98], "max": max(seconds)}
    return {name: round(value * scale, 2) for name, value in named.items()}
