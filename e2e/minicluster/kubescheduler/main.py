"""
Schedule Pods, one at a time.

Owns the loop: take a Pod, find Nodes, call extenders, assume, bind. Binds run beside the loop, without a limit. Behaves
like kube-scheduler 1.34.4, as measured. Preemption, host ports, volumes, Pod affinity, topology spread and preferred
affinity are not supported. Neighbours: `queue` has the next Pod, `cache` the Nodes, `fit` filters, `extender` calls,
`reports` writes Events and conditions.
Source: k8s.io/kubernetes/pkg/scheduler/schedule_one.go.

    python -m minicluster kube-scheduler --kubeconfig FILE --config kubescheduler.yaml
"""

import argparse
import asyncio
import logging
import random
import time
from pathlib import Path

from hamicommon.model import Object
from minicluster.client import ApiError, Client, Mirror
from minicluster.kubescheduler.cache import Cache
from minicluster.kubescheduler.config import Config, load
from minicluster.kubescheduler.extender import Extender, ExtenderError
from minicluster.kubescheduler.fit import PLUGIN_EXTENDER, Misfit, NodeState, PodFacts, misfit, pod_facts, score
from minicluster.kubescheduler.lease import Lease
from minicluster.kubescheduler.queue import Event, Key, Queue, QueuedPod
from minicluster.kubescheduler.reports import NO_NODES, SCHEDULER_ERROR, UNSCHEDULABLE, Reports, refusal_text

MIN_NODES_TO_FIND = 100
MIN_PERCENTAGE = 5
POD_FIELDS = "status.phase!=Succeeded,status.phase!=Failed"

log = logging.getLogger("kube-scheduler")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("--kubeconfig", type=Path, required=True, help="kubeconfig of the API server")
    parser.add_argument("--config", type=Path, required=True, help="a KubeSchedulerConfiguration")


async def run(arguments: argparse.Namespace) -> None:
    """Schedule until cancelled."""
    config = load(arguments.config)
    async with Client.from_kubeconfig(arguments.kubeconfig, "kube-scheduler") as client:
        lease = Lease(client, config.leader_election)
        if config.leader_election.is_on:
            await lease.acquire()
        try:
            async with asyncio.TaskGroup() as tasks:
                if config.leader_election.is_on:
                    tasks.create_task(lease.renew())
                tasks.create_task(Scheduler(client, config).run())
        finally:
            if config.leader_election.is_on:
                await lease.release()


def nodes_to_find(nodes: int, percentage: int) -> int:
    """Return how many feasible Nodes are enough. The default is all of a few Nodes, and 50 - nodes/125 % of many."""
    if nodes <= MIN_NODES_TO_FIND or percentage >= 100:
        return nodes
    if percentage == 0:
        percentage = max(50 - nodes // 125, MIN_PERCENTAGE)
    return max(nodes * percentage // 100, MIN_NODES_TO_FIND)


class Scheduler:
    """The scheduler."""

    def __init__(self, client: Client, config: Config) -> None:
        self._client = client
        self._config = config
        self._cache = Cache(config.ignored_resources)
        self._queue = Queue(config.initial_backoff_seconds, config.max_backoff_seconds, time.monotonic())
        self._extenders = [Extender(extender) for extender in config.extenders]
        self._reports = Reports(client)
        self._wake = asyncio.Event()
        self._next_start = 0
        """The index of the Node at which the search for the next Pod starts."""

    async def run(self) -> None:
        """Follow Nodes and Pods, and schedule, until cancelled."""
        nodes = Mirror(self._client, "/api/v1/nodes", self._node_changed)
        pods = Mirror(self._client, "/api/v1/pods", self._pod_changed, fieldSelector=POD_FIELDS)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(nodes.run())
                await nodes.synced.wait()
                tasks.create_task(pods.run())
                await pods.synced.wait()
                tasks.create_task(self._loop(tasks))
        finally:
            for extender in self._extenders:
                extender.close()

    async def _loop(self, tasks: asyncio.TaskGroup) -> None:
        while True:
            self._wake.clear()
            queued = self._queue.pop(time.monotonic())
            if queued is not None:
                await self._schedule(queued, tasks)
                # An attempt without extenders never waits, so other tasks run here.
                await asyncio.sleep(0)
                continue
            try:
                async with asyncio.timeout(self._queue.next_due(time.monotonic())):
                    await self._wake.wait()
            except TimeoutError:
                continue

    def _node_changed(self, old: Object | None, new: Object | None) -> None:
        for event in self._cache.node_changed(old, new):
            self._happened(event)

    def _pod_changed(self, old: Object | None, new: Object | None) -> None:
        found = new or old
        assert found is not None
        key = (found["metadata"]["namespace"], found["metadata"]["name"])
        was_assigned = old is not None and bool(old["spec"].get("nodeName"))
        is_assigned = new is not None and bool(new["spec"].get("nodeName"))
        self._cache.pod_changed(key, new)
        if is_assigned:
            self._queue.remove(key)
            self._happened(Event.ASSIGNED_POD_UPDATED if was_assigned else Event.ASSIGNED_POD_ADDED)
        elif was_assigned:
            self._happened(Event.ASSIGNED_POD_DELETED)
        if new is None:
            self._queue.remove(key)
            self._reports.forget(found["metadata"]["uid"])
        elif not is_assigned:
            self._unassigned_changed(key, new)

    def _unassigned_changed(self, key: Key, pod: Object) -> None:
        spec, metadata = pod["spec"], pod["metadata"]
        is_ours = spec["schedulerName"] in self._config.percentages
        if not is_ours or spec.get("schedulingGates") or metadata.get("deletionTimestamp"):
            self._queue.remove(key)
            return
        queued = self._queue.pods.get(key)
        if queued is not None and queued.uid == metadata["uid"]:
            self._queue.update(key, pod, time.monotonic())
        else:
            self._queue.remove(key)
            self._queue.add(key, pod, time.monotonic())
        self._wake.set()

    def _happened(self, event: Event) -> None:
        self._queue.happened(event, time.monotonic())
        self._wake.set()

    async def _schedule(self, queued: QueuedPod, tasks: asyncio.TaskGroup) -> None:
        """Try one Pod: reject it, fail, or assume it on a Node and start its binding."""
        pod = queued.pod
        try:
            facts = pod_facts(pod, self._config.ignored_resources)
            found, misfits, plugins = await self._find(pod, facts)
            if not found:
                await self._refuse(queued, pod, misfits, plugins)
                return
            node = await self._best(pod, facts, found)
        except (ExtenderError, ValueError) as error:
            await self._fail(queued, pod, SCHEDULER_ERROR, str(error))
            return
        if self._queue.pods.get(queued.key) is queued:
            self._cache.assume(queued.key, pod, node)
            tasks.create_task(self._bind(queued, pod, node))

    async def _find(self, pod: Object, facts: PodFacts) -> tuple[list[NodeState], dict[str, Misfit], frozenset[str]]:
        """Return the feasible Nodes, the misfits of the others, and the plugins that rejected them."""
        found, misfits = self._filtered(pod, facts)
        refusers = {why.plugin for why in misfits.values()}
        for extender in self._extenders:
            if not found:
                break
            if not extender.config.filter_verb or not extender.is_interested(pod):
                continue
            try:
                answer = await extender.filter(pod, [state.node for state in found])
            except ExtenderError as error:
                if not extender.config.is_ignorable:
                    raise
                log.warning("skipping extender %s: %s", extender.config.url_prefix, error)
                continue
            for failed, is_resolvable in ((answer.failed, True), (answer.failed_for_good, False)):
                misfits |= {name: Misfit(PLUGIN_EXTENDER, (why,), is_resolvable) for name, why in failed.items()}
            known = {state.name: state for state in found}
            found = [known[name] for name in answer.names]
            if not found:
                refusers.add(PLUGIN_EXTENDER)
        return found, misfits, frozenset(refusers)

    def _filtered(self, pod: Object, facts: PodFacts) -> tuple[list[NodeState], dict[str, Misfit]]:
        """Filter Nodes, starting where the last search ended, until enough are feasible."""
        states = list(self._cache.nodes.values())
        if facts.names is not None:
            states = [state for state in states if state.name in facts.names]
        enough = nodes_to_find(len(states), self._config.percentages[pod["spec"]["schedulerName"]])
        start = self._next_start % len(states) if states else 0
        found: list[NodeState] = []
        misfits: dict[str, Misfit] = {}
        for state in states[start:] + states[:start]:
            why = misfit(facts, state)
            if why is not None:
                misfits[state.name] = why
                continue
            found.append(state)
            if len(found) >= enough:
                break
        if states:
            self._next_start = (start + len(found) + len(misfits)) % len(states)
        return found, misfits

    async def _best(self, pod: Object, facts: PodFacts, found: list[NodeState]) -> str:
        """Return a Node with the highest score. A single Node needs no score."""
        if len(found) == 1:
            return found[0].name
        scores = {state.name: score(facts, state) for state in found}
        for extender in self._extenders:
            if not extender.config.prioritize_verb or not extender.is_interested(pod):
                continue
            try:
                added = await extender.prioritize(pod, [state.node for state in found])
            except (ExtenderError, ValueError, KeyError, TypeError) as error:
                # Like in the real one, a failing prioritize is ignored.
                log.warning("prioritize of %s failed: %s", extender.config.url_prefix, error)
                continue
            for name, points in added.items():
                if name in scores:
                    scores[name] += points
        highest = max(scores.values())
        return random.choice([name for name, points in scores.items() if points == highest])

    async def _refuse(
        self, queued: QueuedPod, pod: Object, misfits: dict[str, Misfit], plugins: frozenset[str]
    ) -> None:
        nodes = len(self._cache.nodes)
        if not nodes:
            # Without a plugin that rejected, no event can help, so the Pod is retried after its back-off.
            await self._fail(queued, pod, UNSCHEDULABLE, NO_NODES)
            return
        self._queue.refused(queued, plugins, time.monotonic())
        await self._reports.failed(pod, UNSCHEDULABLE, refusal_text(nodes, misfits))

    async def _fail(self, queued: QueuedPod, pod: Object, reason: str, text: str) -> None:
        self._queue.failed(queued, time.monotonic())
        self._wake.set()
        await self._reports.failed(pod, reason, text)

    async def _bind(self, queued: QueuedPod, pod: Object, node: str) -> None:
        try:
            binder = next((e for e in self._extenders if e.config.bind_verb and e.is_interested(pod)), None)
            if binder is not None:
                await binder.bind(pod, node)
            else:
                await self._post_binding(pod, node)
        except (ExtenderError, ApiError) as error:
            # The resources are free again, which is an event for every rejected Pod.
            self._cache.forget(queued.key, queued.uid)
            self._happened(Event.ASSIGNED_POD_DELETED)
            await self._fail(queued, pod, SCHEDULER_ERROR, str(error))
            return
        await self._reports.scheduled(pod, node)

    async def _post_binding(self, pod: Object, node: str) -> None:
        metadata = pod["metadata"]
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": metadata["name"], "namespace": metadata["namespace"], "uid": metadata["uid"]},
            "target": {"kind": "Node", "name": node},
        }
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}/binding"
        await self._client.create(path, binding)
