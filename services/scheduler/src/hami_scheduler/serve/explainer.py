"""
Compute reports for people, in pauses of the running scheduler.

A report is computed in small steps and all other work goes first, so that it does not delay kube-scheduler. It changes
nothing. It reads one Pod, and what kube-scheduler judges by: all Nodes and Pods, in small pages, which are kept for ten
times as long as reading them took. Neighbours: `report` and `defragmentation` have the steps, `http` calls this.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import quote

from hami_scheduler.errors import ApiRefusedError, ApiUnknownError
from hami_scheduler.explain.defragmentation import Task, defragment
from hami_scheduler.explain.gangs import MEMBERS_LIMIT, explain_member, members_of
from hami_scheduler.explain.kube_filters import KubeNode, KubeNodes, KubeView
from hami_scheduler.explain.movable import Budgets, Fixed, Holder, NewPod, Rules, judged, not_waiting, unread
from hami_scheduler.explain.move_plan import Plan
from hami_scheduler.explain.planning import simulate
from hami_scheduler.explain.remedies import Question, as_new
from hami_scheduler.explain.report import Report, listed
from hami_scheduler.state.cluster import Cluster
from hami_scheduler.state.view import ClusterView
from hami_scheduler.values.policies import Policies
from hamicommon.errors import HamiError
from hamicommon.model import Object
from hamicommon.pod.gang import Gang, gang_of
from hamicommon.wire.errors import DecodeError

_KEPT_SHARE = 10
"""What kube-scheduler judges by is read again after this many times the seconds that reading it took."""
_READ_SECONDS = 15.0
"""How long all Nodes and Pods are read before only devices are judged."""

HOLDERS_LIMIT = 30_000
"""Pods with devices of which a plan may be made; each takes some 3 KiB while it is."""
_SEARCH_SECONDS = 15.0
"""How long a plan of moves is searched for. The client waits 30 s, and all Nodes and Pods are read first."""

T = TypeVar("T")


class QuestionError(HamiError):
    """A question about Pods has no answer, because of what stands in one of them."""


@dataclass(frozen=True, slots=True)
class DefragmentQuestion:
    """What somebody wants to have planned."""

    pods: tuple[tuple[str, str], ...]
    """Namespace and name of each waiting Pod; without any, devices or Nodes are to become empty."""
    budgets: tuple[Object, ...]
    """The cluster's v1 PodDisruptionBudgets, which this scheduler has no right to read."""
    empties_nodes: bool
    moves: int
    """The most Pods to move."""


@dataclass(slots=True)
class Explainer:
    """Answers `explain`, `simulate` and `fits` from the live cluster."""

    cluster: Callable[[], Cluster]
    read_pod: Callable[[str, str], Awaitable[dict[str, Any] | None]]
    read_all: Callable[[str], AsyncIterator[list[Object]]]
    """Yields the `nodes`, or the `pods` that have not ended, page by page."""
    candidates: Callable[[str], Sequence[str] | None]
    """The last candidates for a refused Pod, by its UID."""
    policies: Policies
    blocked: Callable[[], str | None]
    """Why no decision can be made now, None if it can."""
    scheduler_name: str = ""
    """The schedulerName of the Pods that kube-scheduler asks about; empty if it is unknown."""
    left_out: Callable[[], Mapping[str, str]] = dict
    """Resources of vendors that are not placed, each with the flag that enables it."""
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while a report is computed: many questions must not take more of the scheduler's time than one."""
    _kube: KubeView | None = None
    """What kube-scheduler judges by, while it is fresh."""
    _gangs: dict[Gang, Sequence[Object]] = field(default_factory=dict)
    """The Pods of each gang, while they are fresh."""

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
            kube = await self._kube_view(question)
            gang = gang_of(pod)
            members = await self._members(gang) if gang else ()
            notes, was_asked = self._notes(question, cluster.view), self.candidates(question.request.uid) is not None
            steps = explain_member(question, members, cluster.view, kube, notes=notes, was_asked=was_asked)
            return await _paused(steps)

    async def simulate(
        self, pods: Sequence[Object], counts: Sequence[int] = (), additions: Sequence[str] = ()
    ) -> tuple[Report, ...]:
        """
        Return the report of each of *pods* as if they were created now, one after the other.

        *counts* has how many of each are created, one by default; *additions* are Nodes to imagine.

        Raises:
            AdditionError: one of *additions* cannot be read.
            DecodeError: the device-scoring weights of a Pod cannot be read.
        """
        async with self._turn:
            cluster = self.cluster()
            questions = as_new(pods, cluster.vendors, self.policies, self.left_out())
            kube = await self._kube_view(*questions)
            return await _paused(simulate(questions, cluster.view, kube, counts, additions))

    async def defragment(self, asked: DefragmentQuestion) -> Plan:
        """
        Return which Pods would have to move. All Nodes and Pods are read for it.

        Raises:
            ApiRefusedError, ApiUnknownError: they could not be read.
            QuestionError: a Pod does not exist or does not wait for devices, or too many Pods hold some.
        """
        async with self._turn:
            cluster = self.cluster()
            count = sum(1 for _ in cluster.ledger.grants())
            if count > HOLDERS_LIMIT:
                raise QuestionError(f"{count} Pods and claims hold devices: a plan is made for at most {HOLDERS_LIMIT}")
            waiting = [await self._waiting(namespace, name, cluster) for namespace, name in asked.pods]
            budgets = Budgets.of(asked.budgets)
            rules = Rules(cluster.vendors, self.policies, budgets, self.scheduler_name)
            found: dict[str, Holder | Fixed] = {}

            def judge(pod: Object) -> None:
                """Keep what is read of a Pod that holds devices."""
                grant = cluster.ledger.grant(str(pod["metadata"].get("uid") or ""))
                if grant is not None and grant.amounts and (pod.get("spec") or {}).get("nodeName"):
                    found[grant.uid] = judged(pod, grant, rules)

            kube = KubeView(await self._read_nodes(judge), "", self.scheduler_name)
            for grant in cluster.ledger.grants():
                if grant.amounts and grant.uid not in found:
                    found[grant.uid] = unread(grant)
            movable = [one for one in found.values() if isinstance(one, Holder)]
            fixed = [one for one in found.values() if isinstance(one, Fixed)]
            queue = tuple(pod for *_, pod in sorted(waiting, key=lambda one: one[:2]))
            task = Task(movable, fixed, budgets, queue, asked.empties_nodes, asked.moves)
            end = time.monotonic() + _SEARCH_SECONDS
            return await _paused(defragment(task, cluster.view, kube, lambda: time.monotonic() > end))

    async def _waiting(self, namespace: str, name: str, cluster: Cluster) -> tuple[int, str, NewPod]:
        """
        Return a Pod that waits for devices, behind what kube-scheduler sorts its queue by.

        Raises:
            QuestionError: it does not exist, or does not wait for devices.
        """
        pod = await self.read_pod(namespace, name)
        if pod is None:
            raise QuestionError(f"there is no Pod {namespace}/{name}")
        try:
            question = Question(pod, cluster.vendors, self.policies, self.left_out())
        except DecodeError as error:
            raise QuestionError(f"Pod {namespace}/{name}, hami.io/device-scoring-weights: {error}") from error
        why = not_waiting(question, self.scheduler_name)
        if why:
            raise QuestionError(f"Pod {namespace}/{name} {why}: name a Pod that waits for devices")
        spec, metadata = pod.get("spec") or {}, pod["metadata"]
        new = NewPod(question.request, question.kube_pod)
        return -(spec.get("priority") or 0), str(metadata.get("creationTimestamp") or ""), new

    async def _kube_view(self, *questions: Question) -> KubeView:
        """Return what kube-scheduler judges by; nothing is read if none of *questions* needs it."""
        if not any(question.request.asks_for_devices and not question.bound_to for question in questions):
            return KubeView()
        if self._kube is not None:
            return self._kube
        began = time.monotonic()
        try:
            async with asyncio.timeout(_READ_SECONDS):
                self._kube = KubeView(await self._read_nodes(), "", self.scheduler_name)
        except (ApiRefusedError, ApiUnknownError, TimeoutError) as error:
            why = str(error) or f"it took longer than {_READ_SECONDS:.0f} s"
            return KubeView({}, f"Nodes and Pods could not be read: {why}", self.scheduler_name)
        kept_seconds = _KEPT_SHARE * (time.monotonic() - began)
        asyncio.get_running_loop().call_later(kept_seconds, self._forget_kube_view)
        return self._kube

    async def _read_nodes(self, judge: Callable[[Object], None] = lambda _: None) -> Mapping[str, KubeNode | None]:
        """Return what kube-scheduler judges by of each Node with devices; *judge* is called with each Pod."""
        ledger = self.cluster().ledger
        nodes = KubeNodes(lambda name: name in ledger.names or name in ledger.silent)
        async for page in self.read_all("nodes"):
            for node in page:
                nodes.add_node(node)
        async for page in self.read_all("pods"):
            for pod in page:
                nodes.add_pod(pod)
                judge(pod)
        return nodes.nodes

    async def _members(self, gang: Gang) -> Sequence[Object] | None:
        """Return the Pods of *gang* that have not ended, None if they cannot be read."""
        if gang in self._gangs:
            return self._gangs[gang]
        began = time.monotonic()
        found: list[Object] = []
        try:
            async with asyncio.timeout(_READ_SECONDS):
                async for page in self.read_all(f"namespaces/{quote(gang.namespace, safe='')}/pods"):
                    found += members_of(gang, page)[: MEMBERS_LIMIT - len(found)]
        except (ApiRefusedError, ApiUnknownError, TimeoutError):
            return None
        self._gangs[gang] = found
        kept_seconds = _KEPT_SHARE * (time.monotonic() - began)
        asyncio.get_running_loop().call_later(kept_seconds, self._gangs.pop, gang)
        return found

    def _forget_kube_view(self) -> None:
        self._kube = None

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
                found.append(
                    f"kube-scheduler last asked about {len(known)} nodes; its own filters left out {listed(left_out)}"
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
