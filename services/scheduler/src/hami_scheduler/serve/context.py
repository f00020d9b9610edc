"""
What the verbs share: the cluster, the API server, the clock, the settings, and what is remembered between calls.

Owns no decision. Neighbours: `filter`, `bind`, `prioritize` and `preempt` are functions over a `Context`, `main` makes
it.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from hami_scheduler.decide.bind_plan import BindPlan
from hami_scheduler.decide.memo import Memo
from hami_scheduler.serve.errors import NotReadyError
from hami_scheduler.serve.events import EventBook
from hami_scheduler.serve.locking import NodeLocks
from hami_scheduler.serve.waits import Waits
from hami_scheduler.serve.wakeups import WakeApi, Wakeups
from hami_scheduler.state.cluster import Cluster
from hami_scheduler.state.reservation import Stage
from hami_scheduler.values.reasons import Reason
from hami_scheduler.values.request import PodRequest, Policies, read_request
from hamicommon.wire.errors import DecodeError
from hamicommon.wire.version import NEWEST, WireVersion

READY_SECONDS = 20.0
"""How long a call waits until decisions can be made; below kube-scheduler's 30 s, so that it gets an answer."""

Object = Mapping[str, Any]


class Api(WakeApi, Protocol):
    """What the verbs need of the API server."""

    async def read_pod(self, namespace: str, name: str) -> dict[str, Any] | None:
        """Return the Pod, None if it does not exist."""

    async def bind(self, plan: BindPlan) -> None:
        """Write the Binding of *plan*."""

    async def label_pod(self, namespace: str, name: str, key: str, value: str) -> None:
        """Set one label of a Pod."""

    async def living_uids(self, node: str) -> set[str]:
        """Return the UIDs of the Pods of *node* that have not ended."""

    def queue_event(self, pod: Object, reason: str, message: str, *, is_warning: bool) -> None:
        """Queue an Event about *pod*; never waits, never fails."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What an operator decides about filtering and binding."""

    policies: Policies = field(default_factory=Policies)
    names_all: bool = False
    """Whether a filter names every Node that fits and reserves nothing; kube-scheduler chooses."""
    lock_wait_seconds: float = 28.0
    wire_version: WireVersion = NEWEST


@dataclass(frozen=True, slots=True)
class Clock:
    """Where time comes from."""

    now: Callable[[], datetime]
    """Wall clock, with zone."""
    steady: Callable[[], float]
    """Seconds that never go back."""


@dataclass(slots=True)
class Context:
    """What one running scheduler knows and can reach."""

    cluster: Cluster
    api: Api
    locks: NodeLocks
    clock: Clock
    settings: Settings
    blocked: Callable[[], str | None]
    """Why no decision can be made now, None if it can."""
    count_refusal: Callable[[Reason], None] = lambda _: None
    """Called for each filter that found no Node, with the reason that most Nodes gave."""
    memo: Memo = field(default_factory=Memo)
    wakeups: Wakeups = field(default_factory=Wakeups)
    waits: Waits = field(default_factory=Waits)
    events: EventBook = field(default_factory=EventBook)
    sampled_filters: int = 0
    """Filters with exactly as many candidates as kube-scheduler samples."""

    def use(self, cluster: Cluster) -> None:
        """Decide on *cluster* from now on. It holds the existing reservations, and may accept Pods refused before."""
        self.cluster = cluster
        self.memo = Memo()
        self.wakeups.retry_all()

    async def wait_until_ready(self) -> str | None:
        """Wait until decisions can be made; return why they still cannot, None if they can."""
        deadline = self.clock.steady() + READY_SECONDS
        while (reason := self.blocked()) is not None:
            if self.clock.steady() >= deadline:
                return f"scheduler not ready: {reason}"
            await asyncio.sleep(0.1)
        return None

    async def read_when_ready(self, pod: Object) -> PodRequest:
        """
        Return what *pod* asks, once decisions can be made.

        Raises:
            NotReadyError: decisions cannot be made, or the Pod's scoring weights cannot be read.
        """
        reason = await self.wait_until_ready()
        if reason:
            raise NotReadyError(reason)
        try:
            return read_request(pod, self.cluster.vendors, self.settings.policies)
        except DecodeError as error:
            raise NotReadyError(f"Pod {pod_name(pod)}, hami.io/device-scoring-weights: {error}") from error

    def bind_in_progress(self, uid: str) -> str | None:
        """Return a sentence if the Binding of Pod *uid* is being written, else None; until then nothing is decided."""
        held = self.cluster.reservations.get(uid)
        if held is None or held.stage is not Stage.BINDING:
            return None
        return f"a bind of Pod {held.grant.namespace}/{held.grant.name} to node {held.grant.node} is in progress"

    async def wake_one(self) -> str | None:
        """Wake one refused Pod that fits now, and return its name, None if there is none."""
        return await self.wakeups.wake_one(self.cluster.view, self.memo, self.api)

    def give_up(self, uid: str) -> None:
        """Free the reservation of Pod *uid*, unless a Binding for it may still arrive."""
        self.cluster.give_up(uid, self.clock.steady())


def pod_name(pod: Object) -> str:
    """Return `namespace/name` of *pod*."""
    metadata = pod.get("metadata") or {}
    return f"{metadata.get('namespace') or 'default'}/{metadata.get('name') or ''}"


def node_name(node: Object) -> str:
    """Return the name of *node*."""
    return (node.get("metadata") or {}).get("name") or ""
