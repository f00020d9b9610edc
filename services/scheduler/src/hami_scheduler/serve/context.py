"""
What the verbs share: the cluster, the API server, the clock, the settings, and what is remembered between calls.

Owns no decision. Neighbours: `filter`, `bind` and `preempt` are functions over a `Context`, `main` makes it.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Hashable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from hami_scheduler.bind.fences import FenceApi, Marks
from hami_scheduler.bind.locking import NodeLocks, need_not_lead
from hami_scheduler.bind.plan import BindPlan
from hami_scheduler.errors import NotReadyError
from hami_scheduler.search.cache import Memo
from hami_scheduler.serve.gangs import Gangs
from hami_scheduler.serve.waits import Waits
from hami_scheduler.serve.wakeups import WakeApi, Wakeups
from hami_scheduler.state.cluster import Cluster
from hami_scheduler.state.reservation import Basis, Stage
from hami_scheduler.values.policies import Policies
from hami_scheduler.values.reasons import Reason
from hami_scheduler.values.request import PodRequest, read_request
from hamicommon.model import Object
from hamicommon.wire.errors import DecodeError
from hamicommon.wire.version import NEWEST, WireVersion

READY_SECONDS = 20.0
"""How long a call waits until decisions can be made; below kube-scheduler's 30 s, so that it gets an answer."""
REPEAT_SECONDS = 300.0
"""How often an unchanged refusal is reported again; kube-scheduler asks at least this often."""
_PODS_REMEMBERED = 10_000


class Api(WakeApi, FenceApi, Protocol):
    """What the verbs need of the API server."""

    async def bind(self, plan: BindPlan, version: str) -> None:
        """Write the Binding of *plan* if the Pod is still at *version*."""

    async def label_pod(self, uid: str, namespace: str, name: str, label: tuple[str, str]) -> None:
        """Set one *label*, key and value, of the Pod *uid*."""

    async def read_claim(self, namespace: str, name: str) -> Object | None:
        """Return the ResourceClaim, None if it does not exist."""

    async def living_uids(self, node: str) -> set[str]:
        """Return the UIDs of the Pods of *node* that have not ended."""

    def queue_event(self, regarding: Object, reason: str, message: str, *, is_warning: bool) -> None:
        """Queue an Event about *regarding*, a Pod unless it says another kind; never waits, never fails."""


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
class EventBook:
    """The last Event about each Pod, and when it was written."""

    _reported: OrderedDict[str, tuple[str, float]] = field(default_factory=OrderedDict)

    def is_news(self, uid: str, key: str, now: float) -> bool:
        """Return whether *key*, a kind of refusal of Pod *uid*, is worth an Event at *now*; if so, remember it."""
        last = self._reported.get(uid)
        if last is not None and last[0] == key and now - last[1] < REPEAT_SECONDS:
            return False
        self._reported[uid] = (key, now)
        self._reported.move_to_end(uid)
        if len(self._reported) > _PODS_REMEMBERED:
            self._reported.popitem(last=False)
        return True

    def forget(self, uid: str) -> None:
        """Forget what was reported about Pod *uid*."""
        self._reported.pop(uid, None)


@dataclass(slots=True)
class Context:
    """What one running scheduler knows and can reach."""

    cluster: Cluster
    api: Api
    locks: NodeLocks
    clock: Clock
    settings: Settings
    blocked: Callable[[], str | None]
    """Why nothing can be decided now, None if something can."""
    blocked_for: Callable[[Collection[str]], str | None] = lambda _: None
    """Why no device of these vendors, keys, can be granted now, None if it can."""
    confirm: Callable[[], Awaitable[str | None]] = need_not_lead
    """Finds out, by a read that begins after the call, why this replica may not write, None if it may."""
    term: Callable[[], Hashable] = lambda: None
    """The term in which decisions are made."""
    marks: Marks = field(default_factory=Marks)
    count_refusal: Callable[[Reason], None] = lambda _: None
    """Called for each filter that found no Node, with the reason that most Nodes gave."""
    memo: Memo = field(default_factory=Memo)
    wakeups: Wakeups = field(default_factory=Wakeups)
    waits: Waits = field(default_factory=Waits)
    gangs: Gangs = field(default_factory=Gangs)
    events: EventBook = field(default_factory=EventBook)
    sampled_filters: int = 0
    """Filters with exactly as many candidates as kube-scheduler samples."""

    def use(self, cluster: Cluster) -> None:
        """Decide on *cluster* from now on. It holds the existing reservations, and may accept Pods refused before."""
        self.cluster = cluster
        self.memo = Memo()
        self.wakeups.retry_all()

    async def wait_until_ready(self, vendors: Collection[str] = ()) -> str | None:
        """
        Wait until decisions can be made, about devices of *vendors* if it names some.

        Return why they still cannot, None if they can.
        """
        deadline = self.clock.steady() + READY_SECONDS
        while (reason := self.blocked() or self.blocked_for(vendors)) is not None:
            if self.clock.steady() >= deadline:
                return f"scheduler not ready: {reason}"
            await asyncio.sleep(0.1)
        return None

    def basis(self, pod: Object, request: PodRequest) -> Basis:
        """Return the basis of a choice that is made now for *pod*, which asks *request*."""
        return Basis(pod_version(pod), request, self.term())

    def is_unchanged(self, basis: Basis, pod: Object) -> bool:
        """Return whether *pod* still asks for what the choice of *basis* was made for."""
        try:
            return basis.request == read_request(pod, self.cluster.vendors, self.settings.policies)
        except DecodeError:
            return False

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
        """Return a sentence if a Binding of Pod *uid* is on its way, or may be; until then nothing is decided."""
        reserved = self.cluster.reservations.get(uid)
        if reserved is None or reserved.stage is Stage.CHOSEN or reserved.is_bound:
            return None
        bind = f"a bind of Pod {reserved.grant.namespace}/{reserved.grant.name} to node {reserved.grant.node}"
        if reserved.stage is Stage.BINDING:
            return f"{bind} is in progress"
        return f"{bind} was not answered and may still take effect; the scheduler is finding out"

    async def wake_one(self) -> str | None:
        """Wake one refused Pod that fits now, and return its name, None if there is none."""

        def may_wake(uid: str) -> bool:
            return self.gangs.may_wake(uid, self.cluster, self.clock.steady())

        return await self.wakeups.wake_one(self.cluster.view, self.memo, self.api, may_wake)


def pod_name(pod: Object) -> str:
    """Return `namespace/name` of *pod*."""
    metadata = pod.get("metadata") or {}
    return f"{metadata.get('namespace') or 'default'}/{metadata.get('name') or ''}"


def pod_version(pod: Object) -> str:
    """Return the resourceVersion of *pod*, empty if it has none."""
    return str((pod.get("metadata") or {}).get("resourceVersion") or "")


def node_name(node: Object) -> str:
    """Return the name of *node*."""
    return (node.get("metadata") or {}).get("name") or ""
