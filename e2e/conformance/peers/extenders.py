"""
Extenders that record their calls, a kube-scheduler that calls them, and Nodes without a kubelet.

Each extender manages another resource, so one scheduler serves all tests: the request of a Pod chooses the extender.
"""

import asyncio
import contextlib
import os
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import yaml
from aiohttp import web

from conformance.peers.clusters import Peer
from conformance.peers.objects import Api, a_node, a_pod, limits
from hamicommon.model import Object
from minicluster.client import ApiError
from testbed.waiting import eventually

SCHEDULER = "conformance"
NODES = ("s1", "s2", "s3")
"""Each has 4 cpus, and the label `stage=NAME OF THE SCHEDULER`."""
GPU, WHOLE, RANKED, WEAK, DEAD = (f"conformance.test/{name}" for name in ("gpu", "whole", "ranked", "weak", "dead"))
"""The extenders of these resources: one that binds, one without a Node cache, one that ranks, and two that are down, an
ignorable and a strict one."""
HEARTBEAT_SECONDS = 8.0


@dataclass
class Call:
    """One request to an extender."""

    verb: str
    body: Object
    headers: list[tuple[str, str]]
    connection: int
    at: float


@dataclass
class Extender:
    """The calls and the answers of one extender."""

    calls: list[Call] = field(default_factory=list)
    in_flight: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    most: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    """The largest number of simultaneous calls, by verb."""
    room: bool = True
    reason: Callable[[], str] = lambda: "no room"
    answers: dict[str, Any] = field(default_factory=dict)
    """Fixed answers by verb, instead of the computed ones. A number is an HTTP status without a body."""
    delays: dict[str, float] = field(default_factory=dict)
    """The seconds before an answer, by verb."""
    bind: Callable[[Object], Awaitable[None]] | None = None

    def of(self, verb: str) -> list[Call]:
        """Return the calls of one verb."""
        return [call for call in self.calls if call.verb == verb]

    def filtered(self) -> list[str]:
        """Return the name of each filter call's Pod."""
        return [call.body["Pod"]["metadata"]["name"] for call in self.of("filter")]

    async def asked(self, count: int, verb: str = "filter") -> int:
        """Wait for *count* calls and until no more follow for a moment, and return their number."""
        await eventually(lambda: len(self.of(verb)) >= count)
        before = -1
        while before != len(self.of(verb)):
            before = len(self.of(verb))
            await asyncio.sleep(0.3)
        return before

    async def handle(self, request: web.Request) -> web.Response:
        """Answer one call."""
        verb = request.match_info["verb"]
        body = orjson.loads(await request.read())
        headers = [(name, value) for name, value in request.headers.items()]
        self.calls.append(Call(verb, body, headers, id(request.transport), time.monotonic()))
        self.in_flight[verb] += 1
        self.most[verb] = max(self.most[verb], self.in_flight[verb])
        try:
            await asyncio.sleep(self.delays.get(verb, 0.0))
            answer = await self._answer(verb, body)
            return web.Response(status=answer) if isinstance(answer, int) else web.json_response(answer)
        finally:
            self.in_flight[verb] -= 1

    async def _answer(self, verb: str, body: Object) -> Any:
        if verb in self.answers:
            return self.answers[verb]
        if verb == "bind":
            assert self.bind is not None
            await self.bind(body)
            return {"Error": ""}
        names = body["NodeNames"] or [node["metadata"]["name"] for node in body["Nodes"]["items"]]
        if self.room:
            return {"NodeNames": names[:1]}
        return {"NodeNames": [], "FailedNodes": dict.fromkeys(names, self.reason())}


@dataclass
class Stage:
    """The Nodes, the extenders by resource, and helpers for the tests."""

    api: Api
    extenders: dict[str, Extender]

    @property
    def gpu(self) -> Extender:
        """The extender that filters and binds."""
        return self.extenders[GPU]

    async def create(self, name: str = "p", *, priority: str = "", cpu: str = "", **devices: int) -> Object:
        """Create a Pod for the stage's Nodes that requests *cpu*, and *devices* by the last part of their names."""
        amounts: Object = {f"conformance.test/{device}": amount for device, amount in devices.items()}
        if cpu:
            amounts["cpu"] = cpu
        return await self.make(name, containers=limits(**amounts), priorityClassName=priority or None)

    async def make(self, name: str, **spec: Any) -> Object:
        """Create a Pod for the stage's Nodes with *spec*."""
        spec = {"schedulerName": SCHEDULER, "nodeSelector": {"stage": SCHEDULER}, **spec}
        made: Object = await self.api.create(self.api.pods, a_pod(name, **spec))
        return made

    async def bound(self, name: str = "p", seconds: float = 20.0) -> Object:
        """Return the Pod once it has a Node."""

        async def found() -> Object | None:
            pod = await self.api.pod(name)
            return pod if pod["spec"].get("nodeName") else None

        pod: Object = await eventually(found, seconds=seconds)
        return pod

    async def decision(self, name: str = "p") -> Object | None:
        """Return the Pod's PodScheduled condition, with a message that all minors share, or None."""
        conditions = (await self.api.pod(name))["status"].get("conditions") or ()
        found = next((each for each in conditions if each["type"] == "PodScheduled"), None)
        return found and {**found, "message": _common(found.get("message", ""))}

    async def refused(self, name: str = "p") -> Object:
        """Return the Pod's PodScheduled condition once it is False."""

        async def found() -> Object | None:
            decision = await self.decision(name)
            return decision if decision and decision["status"] == "False" else None

        condition: Object = await eventually(found)
        return condition

    async def events(self, name: str = "p") -> list[tuple[str, str, str]]:
        """Return type, reason and message of the Pod's Events once there are some."""

        async def found() -> list[Object]:
            return (await self.api.list(f"{self.api.place}/events", fieldSelector=f"involvedObject.name={name}"))[0]

        return [(event["type"], event["reason"], _common(event["message"])) for event in await eventually(found)]

    async def refusal(self, preemption: str = "No preemption victims found for incoming pod", **reasons: int) -> str:
        """
        Return the text for a Pod that every Node rejects.

        *reasons* are those of the stage's Nodes, with underscores for blanks, and the number of Nodes for each. The Pod
        does not select other Nodes.
        """
        others = len(await self.api.names("/api/v1/nodes")) - len(NODES)
        head = f"0/{len(NODES) + others} nodes are available:"
        counted = Counter({reason.replace("_", " "): count for reason, count in reasons.items()})
        counted["node(s) didn't match Pod's node affinity/selector"] += others
        helpless = Counter({"Preemption is not helpful for scheduling": others})
        helpless[preemption] += len(NODES)
        texts = [
            ", ".join(sorted(f"{count} {reason}" for reason, count in found.items())) for found in (counted, helpless)
        ]
        return f"{head} {texts[0]}. preemption: {head} {texts[1]}."


def _common(message: str) -> str:
    """Remove the words that only kube-scheduler 1.34 and newer write."""
    return message.replace("no new claims to deallocate, ", "")


def _configuration(port: int, kubeconfig: Path) -> Object:
    def extender(resource: str, **fields: Any) -> Object:
        managed = [{"name": resource, "ignoredByScheduler": True}]
        prefix = f"http://127.0.0.1:{port}/{resource.rpartition('/')[2]}"
        common = {"urlPrefix": prefix, "filterVerb": "filter", "nodeCacheCapable": True, "managedResources": managed}
        return {**common, **fields}

    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "percentageOfNodesToScore": 100,
        "leaderElection": {"leaderElect": False},
        "clientConnection": {"kubeconfig": str(kubeconfig), "qps": 1000, "burst": 2000},
        "profiles": [{"schedulerName": SCHEDULER}],
        "extenders": [
            extender(GPU, bindVerb="bind", weight=1),
            extender(WHOLE, nodeCacheCapable=False, weight=1),
            extender(RANKED, prioritizeVerb="prioritize", weight=10),
            extender(WEAK, urlPrefix="http://127.0.0.1:1", ignorable=True, weight=1),
            extender(DEAD, urlPrefix="http://127.0.0.1:1", weight=1),
        ],
    }


@contextlib.asynccontextmanager
async def _served(extenders: dict[str, Extender]) -> AsyncIterator[int]:
    """Serve each extender at the last part of its resource's name. Yields the port."""
    application = web.Application()
    for resource, extender in extenders.items():
        application.router.add_post(f"/{resource.rpartition('/')[2]}/{{verb}}", extender.handle)
    runner = web.AppRunner(application, keepalive_timeout=120.0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield int(runner.addresses[0][1])
    await runner.cleanup()


@contextlib.contextmanager
def _scheduler(peer: Peer, config: Path) -> Iterator[None]:
    """Run one more kube-scheduler during a block."""
    command = [*peer.scheduler, f"--kubeconfig={peer.kubeconfig}", f"--config={config}"]
    with config.with_suffix(".log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=os.environ)
    try:
        yield
    finally:
        process.terminate()
        process.wait(10)


async def _beat(api: Api) -> None:
    """Renew the Leases of the Nodes, as their kubelets would for the node controller."""
    leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
    for name in NODES:
        await api.create(leases, {"metadata": {"name": name}, "spec": {"holderIdentity": name}})
    while True:
        for name in NODES:
            now = time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime())
            await api.patch(f"{leases}/{name}", {"spec": {"renewTime": now, "leaseDurationSeconds": 40}})
        await asyncio.sleep(HEARTBEAT_SECONDS)


async def schedulable(api: Api, *names: str) -> None:
    """Wait until the Nodes have only the taints of the test, and no controller writes to them."""

    async def quiet() -> bool:
        found = [await api.get(f"/api/v1/nodes/{name}") for name in names]
        taints = [taint["key"] for node in found for taint in node["spec"].get("taints") or ()]
        versions = [node["metadata"]["resourceVersion"] for node in found]
        was, quiet.versions = getattr(quiet, "versions", None), versions  # type: ignore[attr-defined]
        await asyncio.sleep(0.2)
        return was == versions and "node.kubernetes.io/not-ready" not in taints

    await eventually(quiet)


@contextlib.asynccontextmanager
async def stage(peer: Peer, folder: Path) -> AsyncIterator[Stage]:
    """Yield the stage. *folder* holds the scheduler's configuration and log."""
    extenders = {resource: Extender() for resource in (GPU, WHOLE, RANKED)}
    async with Api.from_kubeconfig(peer.kubeconfig, "conformance") as api, _served(extenders) as port:
        config = folder / "kube-scheduler.yaml"
        config.write_text(yaml.safe_dump(_configuration(port, peer.kubeconfig)))
        for name in NODES:
            await api.create("/api/v1/nodes", a_node(name, labels={"stage": SCHEDULER}))
        beating = asyncio.create_task(_beat(api))
        try:
            with _scheduler(peer, config):
                await schedulable(api, *NODES)
                await api.enter_new_namespace()
                found = Stage(api, extenders)
                await found.make("first")
                await found.bound("first", 30)
                await api.remove_namespace()
                yield found
        finally:
            beating.cancel()
            for name in NODES:
                with contextlib.suppress(ApiError):
                    await api.delete(f"/api/v1/nodes/{name}")
                    await api.delete(f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{name}")
