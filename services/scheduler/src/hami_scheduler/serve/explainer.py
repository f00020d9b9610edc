"""
Compute reports for people, in pauses of the running scheduler.

A report is computed in small steps and all other work goes first, so that it does not delay kube-scheduler. It reads at
most one Pod and changes nothing. Neighbours: `report` has the steps, `http` calls this.
"""

import asyncio
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from hami_scheduler.explain.remedies import Question, as_new
from hami_scheduler.explain.report import Report, explain, simulate
from hami_scheduler.state.cluster import Cluster
from hami_scheduler.state.view import ClusterView
from hami_scheduler.values.policies import Policies
from hamicommon.model import Object

_NODES_NAMED = 5

T = TypeVar("T")


@dataclass(slots=True)
class Explainer:
    """Answers `explain` and `simulate` from the live cluster."""

    cluster: Callable[[], Cluster]
    read_pod: Callable[[str, str], Awaitable[dict[str, Any] | None]]
    candidates: Callable[[str], Sequence[str] | None]
    """The last candidates for a refused Pod, by its UID."""
    policies: Policies
    blocked: Callable[[], str | None]
    """Why no decision can be made now, None if it can."""
    left_out: Callable[[], Mapping[str, str]] = dict
    """Resources of vendors that are not placed, each with the flag that enables it."""
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while a report is computed: many questions must not take more of the scheduler's time than one."""

    async def explain(self, namespace: str, name: str) -> Report | None:
        """
        Return the report of a Pod, None if it does not exist.

        Raises:
            ApiRefusedError, ApiUnknownError: the Pod could not be read.
            DecodeError: its device-scoring weights cannot be read.
        """
        pod = await self.read_pod(namespace, name)
        if pod is None:
            return None
        async with self._turn:
            cluster = self.cluster()
            question = Question(pod, cluster.vendors, self.policies, self.left_out())
            return await _paused(explain(question, cluster.view, notes=self._notes(question, cluster.view)))

    async def simulate(self, pods: Sequence[Object]) -> tuple[Report, ...]:
        """
        Return the report of each of *pods* as if they were created now, one after the other.

        Raises:
            DecodeError: the device-scoring weights of a Pod cannot be read.
        """
        async with self._turn:
            cluster = self.cluster()
            questions = as_new(pods, cluster.vendors, self.policies, self.left_out())
            return await _paused(simulate(questions, cluster.view))

    def _notes(self, question: Question, view: ClusterView) -> tuple[str, ...]:
        """Return notes on what a decision about devices does not show."""
        found = []
        reason = self.blocked()
        if reason:
            found.append(f"this scheduler cannot decide now: {reason}")
        asked = self.candidates(question.request.uid)
        if asked is not None and not question.bound_to:
            known = set(asked)
            left_out = sorted(
                entry.inventory.name for entry in view.ledger.nodes() if entry.inventory.name not in known
            )
            if left_out:
                more = f" and {len(left_out) - _NODES_NAMED} more" if len(left_out) > _NODES_NAMED else ""
                found.append(
                    f"kube-scheduler last asked about {len(known)} nodes; its own filters (taints, selectors, CPU, "
                    f"memory) left out {', '.join(left_out[:_NODES_NAMED])}{more}"
                )
        return tuple(found)


async def _paused(steps: Generator[None, None, T]) -> T:
    """Return the result of *steps*, with other work first at each pause."""
    try:
        while True:
            next(steps)
            await asyncio.sleep(0)
    except StopIteration as end:
        found: T = end.value
        return found
