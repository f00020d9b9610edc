"""
Answer kube-scheduler: filter, bind, prioritize and preempt, in the order that keeps every promise kept.

Owns the sequence only. A filter decides and reserves without giving up control in between, so no two decisions see
the same room; what is bound is what was reserved. Neighbours: `cluster` is what is decided on, `filter`, `bind_plan`
and `preempt` decide, `bind_writer` carries binds out, `http` brings the questions.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Protocol

import structlog

from hami_scheduler.decide.bind_plan import BindPlan, plain_bind, plan_bind, promise
from hami_scheduler.decide.filter import FilterResult, filter_nodes
from hami_scheduler.decide.memo import Memo
from hami_scheduler.decide.place_pod import Placement, try_node
from hami_scheduler.decide.preempt import Victims, must_leave
from hami_scheduler.decide.prioritize import priorities
from hami_scheduler.explain import wording
from hami_scheduler.serve.bind_writer import BindApi, Binder
from hami_scheduler.serve.errors import ApiRefusedError, ApiUnknownError, BindError, NotReadyError
from hami_scheduler.serve.events import EventBook
from hami_scheduler.serve.locking import NodeLocks
from hami_scheduler.serve.sampling import looks_sampled
from hami_scheduler.serve.wakeups import Waiting
from hami_scheduler.state.cluster import Cluster
from hami_scheduler.state.ledger import Ledger, shortfall
from hami_scheduler.state.reservation import Stage
from hami_scheduler.state.view import ClusterView
from hami_scheduler.values.grant import Grant
from hami_scheduler.values.inventory import NodeInventory, read_inventory
from hami_scheduler.values.reasons import Misfit, Reason
from hami_scheduler.values.request import PodRequest, Policies, read_request
from hamicommon.wire.errors import DecodeError
from hamicommon.wire.version import NEWEST, WireVersion

READY_SECONDS = 20.0
"""How long a filter waits for the first lists; below kube-scheduler's 30 s so that it gets an answer."""
_NODES_READ = 8
"""At one preemption. Where more are in question so much happens that kube-scheduler soon asks again."""

logger = structlog.get_logger()

Object = Mapping[str, Any]


class Api(BindApi, Protocol):
    """What the extender needs of the API server."""

    async def wake_pod(self, uid: str, namespace: str, name: str) -> None:
        """Change the Pod *uid* so that kube-scheduler asks about it."""

    async def living_uids(self, node: str) -> set[str]:
        """Return the UIDs of the Pods of *node* that have not ended, as of now."""

    def tell(self, pod: Object, reason: str, message: str, *, is_warning: bool) -> None:
        """Queue an Event about *pod*; never waits, never fails."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What an operator decides about filtering and binding."""

    policies: Policies = field(default_factory=Policies)
    names_all: bool = False
    """Whether a filter names every Node that fits and kube-scheduler chooses; nothing is held before the bind then."""
    lock_wait_seconds: float = 28.0
    wire_version: WireVersion = NEWEST


@dataclass(frozen=True, slots=True)
class Clock:
    """Where time comes from."""

    now: Callable[[], datetime]
    """Wall clock, with zone."""
    steady: Callable[[], float]
    """Seconds that never go back."""


@dataclass(frozen=True, slots=True)
class FilterAnswer:
    """What `/filter` answers; a None stands for null on the wire."""

    node_names: Sequence[str] | None = None
    nodes: Sequence[Object] | None = None
    failed_nodes: Mapping[str, str] | None = None
    error: str = ""


class Extender:
    """The verbs."""

    def __init__(
        self,
        cluster: Cluster,
        api: Api,
        locks: NodeLocks,
        clock: Clock,
        settings: Settings,
        blocked: Callable[[], str | None],
        count_refusal: Callable[[Reason], None] = lambda _: None,
    ) -> None:
        """
        Serve from *cluster*; *blocked* returns why decisions must wait, None when they may be made.

        *count_refusal* hears of each filter that found no Node, and of the reason most Nodes gave.
        """
        self._cluster = cluster
        self._api = api
        self._clock = clock
        self._settings = settings
        self._blocked = blocked
        self._count_refusal = count_refusal
        self._binder = Binder(lambda: self._cluster, api, locks, blocked, clock.steady, settings.lock_wait_seconds)
        self.sampled_filters = 0
        """Filters that were shown just as many Nodes as kube-scheduler takes for a sample."""
        self._book = EventBook()
        self._memo = Memo()
        self._waiting = Waiting()

    def use(self, cluster: Cluster) -> None:
        """Serve from *cluster* from now on; it has taken over what was reserved, and may like whom the last refused."""
        self._cluster = cluster
        self._memo = Memo()
        self._waiting.doubt()

    # Filter

    async def filter(
        self, pod: Object, node_names: Sequence[str] | None, nodes: Sequence[Object] | None
    ) -> FilterAnswer:
        """Return the Node for *pod* among the candidates, given by name or as objects, and hold it for the Pod."""
        try:
            request = read_request(pod, self._cluster.vendors, self._settings.policies)
        except DecodeError as error:
            text = f"Pod {_name(pod)}, hami.io/device-scoring-weights: {error}"
            self._refuse(pod, "scoring-weights", lambda: text)
            return FilterAnswer(error=text)
        if not request.asks_for_devices:
            return FilterAnswer(node_names=node_names, nodes=nodes)
        reason = await self._wait_until_ready() or await self._settle_uncertain(request)
        if reason:
            return FilterAnswer(error=reason)
        if nodes is None:
            return self._choose(pod, request, node_names or ())
        if nodes and all(map(self._cluster.knows, nodes)):
            return _with_objects(self._choose(pod, request, [_node_name(node) for node in nodes]), nodes)
        return self._simulate(request, nodes)

    def _choose(self, pod: Object, request: PodRequest, candidates: Sequence[str]) -> FilterAnswer:
        """Decide and reserve; no await in between."""
        busy = self._bind_in_progress(request.uid)
        if busy:
            return FilterAnswer(error=busy)
        now = self._clock.steady()
        self._cluster.expire(now)
        again = self._same_again(request, candidates)
        if again is not None:
            return FilterAnswer(node_names=[again])
        self._cluster.give_up(request.uid, now)
        self.sampled_filters += looks_sampled(len(candidates), self._cluster.node_count)
        view, names_all = self._cluster.view, self._settings.names_all
        result = self._memo.filter_nodes(request, candidates, view, explain_all=names_all)
        if result.node is None or result.placement is None:
            self._refuse(pod, result.refusal.kind, lambda: self._told_refusal(request, result.misfits))
            self._waiting.refused(request, candidates, view)
            self._count_refusal(result.refusal.leading_cause)
            return FilterAnswer(failed_nodes=result.failed_nodes)
        self._book.forget(request.uid)
        self._waiting.forget(request.uid)
        if names_all:
            fit = [name for name in candidates if name not in result.misfits]
            return FilterAnswer(node_names=fit, failed_nodes=result.failed_nodes)
        self._cluster.reserve(self._promise(request, result.node, result.placement), now)
        # kube-scheduler waits for the answer, nobody for what follows.
        asyncio.get_running_loop().call_soon(self._after_choice, request, result)
        return FilterAnswer(node_names=[result.node])

    def _after_choice(self, request: PodRequest, result: FilterResult) -> None:
        """Log *result*, and look ahead: replicas come one after another."""
        logger.info("Node chosen", decision=wording.choice(request, result))
        self._memo.look_ahead(request, self._cluster.view)

    async def wake_overlooked(self) -> str | None:
        """
        Wake one refused Pod for which room has appeared since and nobody asked; return its name, None if there is none.

        Once a refusal: where kube-scheduler has reasons of its own not to ask, waking it again would change nothing.
        """
        request = self._waiting.overlooked(self._cluster.view, self._memo)
        if request is None:
            return None
        pod = f"{request.namespace}/{request.name}"
        try:
            await self._api.wake_pod(request.uid, request.namespace, request.name)
        except ApiRefusedError as error:
            self._waiting.forget(request.uid)
            logger.info("A waiting Pod is gone", pod=pod, error=str(error))
            return None
        except ApiUnknownError as error:
            self._waiting.look_again(request.uid)
            logger.warning("A Pod that fits now was not woken", pod=pod, error=str(error))
            return None
        self._waiting.forget(request.uid)
        logger.info("Woke a Pod that fits now and was not asked about", pod=pod)
        return pod

    def asked_about(self, uid: str) -> Sequence[str] | None:
        """Return the Nodes the Pod *uid* was refused on last, None where that is not remembered."""
        return self._waiting.asked_about(uid)

    def _promise(self, request: PodRequest, node: str, placement: Placement) -> Grant:
        """Return what *placement* grants, as of now."""
        entry = self._cluster.ledger.node(node)
        inventory = entry.inventory if entry else NodeInventory(node)
        return promise(request, inventory, placement, int(self._clock.now().timestamp() * 10**9))

    def _same_again(self, request: PodRequest, candidates: Sequence[str]) -> str | None:
        """
        Return the Node of an earlier bind that may still arrive, held for one more try.

        The second Binding then says what the first said, whichever of them arrives.
        """
        held = self._cluster.reservations.get(request.uid)
        if held is None or held.is_certain or held.grant.node not in candidates:
            return None
        if shortfall(self._cluster.ledger, held.grant, self._cluster.vendors):
            return None
        logger.info("Node chosen again", pod=f"{request.namespace}/{request.name}", node=held.grant.node)
        return held.grant.node

    def _simulate(self, request: PodRequest, nodes: Sequence[Object]) -> FilterAnswer:
        """
        Answer for Nodes that do not exist as if they were idle, reserving nothing: how autoscalers ask.

        Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/scheduler/scheduler.go (`Filter`)
        """
        ledger = Ledger()
        for node in nodes:
            inventory, _ = read_inventory(node, self._cluster.vendors)
            ledger.put_node(inventory)
        names = [_node_name(node) for node in nodes]
        result: FilterResult = filter_nodes(request, names, ClusterView(ledger, self._cluster.quotas), explain_all=True)
        chosen = [node for node, name in zip(nodes, names, strict=True) if name == result.node]
        return FilterAnswer(nodes=chosen[:1], failed_nodes=result.failed_nodes)

    async def _wait_until_ready(self) -> str | None:
        """Return why no decision can be made, after waiting for the reason to pass."""
        deadline = self._clock.steady() + READY_SECONDS
        while (reason := self._blocked()) is not None:
            if self._clock.steady() >= deadline:
                return f"scheduler not ready: {reason}"
            await asyncio.sleep(0.1)
        return None

    async def _settle_uncertain(self, request: PodRequest) -> str | None:
        """Return why *request* must not be decided now: it is bound, or may be."""
        held = self._cluster.reservations.get(request.uid)
        if held is None:
            bound = self._cluster.ledger.grant(request.uid)
            return f"Pod {request.namespace}/{request.name} is bound to node {bound.node} already" if bound else None
        if held.stage is not Stage.WRITTEN:
            return None
        try:
            pod = await self._api.read_pod(request.namespace, request.name)
        except (ApiRefusedError, ApiUnknownError) as error:
            return f"whether Pod {request.namespace}/{request.name} is bound cannot be found out: {error}"
        if pod is not None and pod["metadata"].get("uid") == request.uid and pod["spec"].get("nodeName"):
            self._cluster.put_pod(pod)
            return f"Pod {request.namespace}/{request.name} is bound to node {pod['spec']['nodeName']} already"
        return None

    def _bind_in_progress(self, uid: str) -> str | None:
        """Return that the Binding of Pod *uid* is being written, None where not; until then nothing is decided."""
        held = self._cluster.reservations.get(uid)
        if held is None or held.stage is not Stage.BINDING:
            return None
        return f"a bind of Pod {held.grant.namespace}/{held.grant.name} to node {held.grant.node} is in progress"

    def _refuse(self, pod: Object, key: str, explain: Callable[[], str]) -> None:
        """Tell why *pod* gets no Node, once per kind of reason."""
        uid = (pod.get("metadata") or {}).get("uid") or ""
        if self._book.is_news(uid, key, self._clock.steady()):
            sentence = explain()
            logger.info("No node chosen", pod=_name(pod), decision=sentence)
            self._api.tell(pod, "FilteringFailed", sentence, is_warning=True)

    def _told_refusal(self, request: PodRequest, misfits: Mapping[str, Misfit]) -> str:
        view = self._cluster.view
        return wording.refusal(request, misfits, view.ledger, view.allowances(request))

    # Prioritize and preempt

    async def prioritize(
        self, pod: Object, node_names: Sequence[str] | None, nodes: Sequence[Object] | None
    ) -> Mapping[str, int]:
        """
        Return 0 to 10 for each candidate, as the policy for *pod* likes them.

        Raises:
            NotReadyError: nothing can be decided now.
        """
        names = [_node_name(node) for node in nodes or ()] if node_names is None else node_names
        request = await self._read_ready(pod)
        return priorities(request, names, self._cluster.view)

    async def preempt(self, pod: Object, victims: Mapping[str, Victims]) -> Mapping[str, Victims]:
        """
        Return, of the Nodes of *victims*, those where *pod* gets its devices once the Pods named there have left.

        Others of lower priority may have to leave as well and are added.

        Raises:
            NotReadyError: nothing can be decided now.
        """
        request = await self._read_ready(pod)
        if not request.asks_for_devices:
            return victims
        priority = (pod.get("spec") or {}).get("priority") or 0
        found = self._of_use(request, priority, victims)
        doubtful = [node for node, named in victims.items() if found.get(node) != named]
        if await self._forget_ended(doubtful[:_NODES_READ]):
            found = self._of_use(request, priority, victims)
        count = sum(len(named.uids) for named in found.values())
        logger.info("Preemption judged", pod=_name(pod), nodes=len(victims), of_use=len(found), victims=count)
        return found

    def _of_use(self, request: PodRequest, priority: int, victims: Mapping[str, Victims]) -> dict[str, Victims]:
        """Return the Nodes of *victims* where evictions help, with all who must leave there."""
        view = self._cluster.view
        unbound = {held.grant.uid for held in self._cluster.reservations.all()}
        found = {}
        for node, named in victims.items():
            uids = must_leave(request, priority, node, named.uids, view, unbound)
            if uids is not None:
                found[node] = replace(named, uids=uids)
        return found

    async def _forget_ended(self, nodes: Sequence[str]) -> int:
        """
        Forget the Pods of *nodes* that have ended, ahead of our watch, and return how many they were.

        The end of a Pod makes kube-scheduler ask, maybe before our watch has brought it, and a Pod that waits for
        something other than devices cannot be woken: its next chance is when another Pod ends, or minutes later.
        """
        return sum(await asyncio.gather(*map(self._forget_ended_on, nodes)))

    async def _forget_ended_on(self, node: str) -> int:
        held = [
            grant.uid for grant in self._cluster.ledger.grants_on(node) if grant.uid not in self._cluster.reservations
        ]
        try:
            living = await self._api.living_uids(node) if held else set()
        except (ApiRefusedError, ApiUnknownError) as error:
            logger.warning("Preemption is judged by the watch alone", node=node, error=str(error))
            return 0
        ended = [uid for uid in held if uid not in living]
        for uid in ended:
            self._cluster.drop_pod({"metadata": {"uid": uid}})
        return len(ended)

    async def _read_ready(self, pod: Object) -> PodRequest:
        """Return what *pod* asks, once decisions can be made."""
        reason = await self._wait_until_ready()
        if reason:
            raise NotReadyError(reason)
        try:
            return read_request(pod, self._cluster.vendors, self._settings.policies)
        except DecodeError as error:
            raise NotReadyError(f"Pod {_name(pod)}, hami.io/device-scoring-weights: {error}") from error

    # Bind

    async def bind(self, uid: str, namespace: str, name: str, node: str) -> None:
        """
        Bind a Pod to *node* with what was reserved for it there.

        Raises:
            BindError: it is not bound; kube-scheduler will ask for a Node again.
        """
        reference = {"metadata": {"uid": uid, "namespace": namespace, "name": name}}
        if self._is_bound_to(uid, node):
            return
        try:
            plan, grant = await self._prepare(uid, namespace, name, node)
            await self._binder.carry_out(plan, grant)
        except (BindError, ApiRefusedError, ApiUnknownError) as error:
            self._api.tell(reference, "BindingFailed", str(error), is_warning=True)
            logger.warning("Bind failed", pod=f"{namespace}/{name}", node=node, error=str(error))
            raise BindError(str(error)) from error
        text = f"Successfully binding node [{node}] to {namespace}/{name}"
        self._api.tell(reference, "BindingSucceed", text, is_warning=False)
        logger.debug("Pod bound", pod=f"{namespace}/{name}", node=node)

    def _is_bound_to(self, uid: str, node: str) -> bool:
        """Return whether the Pod *uid* holds its devices on *node* by a Binding, which the watch may not have told."""
        held = self._cluster.reservations.get(uid)
        if held is not None and not (held.stage is Stage.WRITTEN and held.is_certain):
            return False
        bound = self._cluster.ledger.grant(uid)
        return bound is not None and bound.node == node

    async def _prepare(self, uid: str, namespace: str, name: str, node: str) -> tuple[BindPlan, Grant | None]:
        """Return the Binding to write; where it grants devices, its reservation is now kept until the end is known."""
        reason = await self._wait_until_ready()
        if reason:
            raise BindError(reason)
        busy = self._bind_in_progress(uid)
        if busy:
            raise BindError(busy)
        held = self._cluster.reservations.get(uid)
        grant = held.grant if held is not None and held.grant.node == node else None
        if grant is None:
            grant = await self._decide_again(uid, namespace, name, node)
        if grant is None:
            return plain_bind(uid, namespace, name, node), None
        seconds = int(self._clock.now().timestamp())
        plan = plan_bind(grant, self._cluster.vendors, seconds, self._settings.wire_version)
        self._cluster.begin_bind(uid, plan.annotations)
        return plan, grant

    async def _decide_again(self, uid: str, namespace: str, name: str, node: str) -> Grant | None:
        """
        Choose devices on exactly *node* for a Pod whose reservation is gone, None where it asks for none.

        A restart between filter and bind comes here; so does a Pod that no filter of ours was asked about.
        """
        pod = await self._api.read_pod(namespace, name)
        busy = self._bind_in_progress(uid)
        if busy:
            raise BindError(busy)
        if pod is None or (uid and pod["metadata"].get("uid") != uid):
            self._give_up(uid)
            raise BindError(f"Pod {namespace}/{name} with uid {uid} does not exist")
        bound_to = (pod.get("spec") or {}).get("nodeName")
        if bound_to:
            self._cluster.put_pod(pod)
            raise BindError(f"Pod {namespace}/{name} is already bound to node {bound_to}")
        try:
            request = read_request(pod, self._cluster.vendors, self._settings.policies)
        except DecodeError as error:
            raise BindError(f"Pod {namespace}/{name}, hami.io/device-scoring-weights: {error}") from error
        if not request.asks_for_devices:
            return None
        self._give_up(request.uid)
        view = self._cluster.view
        found = try_node(request, node, view.ledger, view.allowances(request))
        if isinstance(found, Misfit):
            raise BindError(self._told_refusal(request, {node: found}))
        grant = self._promise(request, node, found)
        self._cluster.reserve(grant, self._clock.steady())
        return grant

    def _give_up(self, uid: str) -> None:
        self._cluster.give_up(uid, self._clock.steady())


def _name(pod: Object) -> str:
    metadata = pod.get("metadata") or {}
    return f"{metadata.get('namespace') or 'default'}/{metadata.get('name') or ''}"


def _with_objects(answer: FilterAnswer, nodes: Sequence[Object]) -> FilterAnswer:
    """Return *answer* with those of *nodes* that it names in place of the names."""
    if answer.node_names is None:
        return answer
    named = set(answer.node_names)
    return replace(answer, node_names=None, nodes=[node for node in nodes if _node_name(node) in named])


def _node_name(node: Object) -> str:
    return (node.get("metadata") or {}).get("name") or ""
