"""
The Pods of a soak: drawn one after another, created, and deleted as their authors would.

The same seed gives the same Pods by name, with the same requests and fates. When each is placed is not drawn.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any

from hamicommon.model import Object
from harness.clusters.mixed import DRIVER, MIG
from harness.manifests import HOLD, SLEEP, a_container, a_pod
from harness.rest import name_of
from minicluster.client import ApiError, Client, Mirror
from soak.cluster import Site, SoakCluster, seeded
from soak.embedded import IDENTITY

PAUSE_SECONDS = (0.2, 2.0)
"""Between two Pods."""
LIFE_SECONDS = (5.0, 60.0)
RETRY_SECONDS = 0.5
NOT_FOUND, CONFLICT = 404, 409
MAY_FAIL = "soak/may-fail"
"""A label of Pods whose programs fail on purpose or that nobody scheduled."""
FREE, LIMITED = "soak", "soak-quota"
QUOTA_MIB = 12000
PRIORITIES = {"low": 10, "high": 1000}
FOREIGN = [node.name for node in IDENTITY[:3]]
"""The Nodes on which Pods run that somebody else placed."""
NODES = {"foreign": {*FOREIGN}, "mig": {MIG.name}, "driver": {DRIVER.name}}
"""What kinds of Pods need."""
REJECTED = {"UnexpectedAdmissionError", "OutOfnvidia.com/gpu"}
"""Reasons with which a kubelet rejects a Pod while its device plugin is away. They are final, and not the program's."""
LOST = ("Unknown", 255)
"""Reason and exit code of a container that containerd finds ended when it starts: its Node had lost its power."""


@dataclass(frozen=True)
class Plan:
    """One Pod, and what its author does with it."""

    pause_seconds: float
    """Before it is created."""
    kind: str
    manifest: Object
    namespace: str
    life_seconds: float
    """Until it is deleted."""
    grace_seconds: int
    """0 is a forced deletion."""
    then: Object | None = None
    """The Pod that is created under the same name right after it."""


def draw_plans(site: Site, seed: int) -> Iterator[Plan]:
    """Yield the Pods of *seed*, for ever."""
    draw = seeded(seed, "pods")
    kinds = [kind for kind in KINDS if NODES.get(kind, set()) <= {*site.names}]
    for number in count():
        kind = draw.choice(kinds)
        name = f"{kind}-{number}"
        manifest = KINDS[kind](name, draw)
        quick = draw.random() < 0.1
        life_seconds = draw.uniform(0.0, 1.5) if quick else draw.uniform(*LIFE_SECONDS)
        pause_seconds = 0.0 if draw.random() < 0.2 else draw.uniform(*PAUSE_SECONDS)
        then = _share(name, draw) if draw.random() < 0.1 else None
        namespace = LIMITED if kind == "quota" else FREE
        grace_seconds = 0 if draw.random() < 0.15 else 1
        yield Plan(pause_seconds, kind, manifest, namespace, life_seconds, grace_seconds, then)


def _memory(draw: random.Random) -> int:
    return draw.choice((500, 1000, 2000, 4000, 8000, 15000))


def _program(draw: random.Random) -> tuple[str, ...]:
    return draw.choice((HOLD, SLEEP, SLEEP))


def _share(name: str, draw: random.Random, **more: Any) -> Object:
    cores = draw.choice((0, 0, 10, 30))
    return a_pod(name, command=_program(draw), gpu=1, gpumem=_memory(draw), gpucores=cores, **more)


def _percent(name: str, draw: random.Random) -> Object:
    return a_pod(name, command=_program(draw), gpu=1, gpumem_percentage=draw.choice((5, 25, 50)))


def _several_devices(name: str, draw: random.Random) -> Object:
    return a_pod(name, command=_program(draw), gpu=draw.choice((2, 2, 4)), gpumem=_memory(draw))


def _whole(name: str, draw: random.Random) -> Object:
    return a_pod(name, command=_program(draw), gpu=1, gpumem_percentage=100, gpucores=100)


def _two_containers(name: str, draw: random.Random) -> Object:
    return a_pod(name, [a_container(each, _program(draw), gpu=1, gpumem=_memory(draw)) for each in ("one", "two")])


def _init(name: str, draw: random.Random) -> Object:
    first = a_container("first", ("sleep", "1"), gpu=1, gpumem=_memory(draw))
    return a_pod(name, init_containers=[first], command=_program(draw), gpu=1, gpumem=_memory(draw))


def _sidecar(name: str, draw: random.Random) -> Object:
    side = {**a_container("side", _program(draw), gpu=1, gpumem=_memory(draw)), "restartPolicy": "Always"}
    return a_pod(name, init_containers=[side], command=_program(draw), gpu=1, gpumem=_memory(draw))


def _ranked(name: str, draw: random.Random) -> Object:
    return _share(name, draw, spec={"priorityClassName": draw.choice(list(PRIORITIES))})


def _job(name: str, draw: random.Random) -> Object:
    command = ("sleep", str(draw.randint(1, 10)))
    return a_pod(name, command=command, spec={"restartPolicy": "Never"}, gpu=1, gpumem=_memory(draw))


def _failing(name: str, draw: random.Random) -> Object:
    command = ("sh", "-c", "sleep 1; exit 3")
    made = a_pod(name, command=command, spec={"restartPolicy": draw.choice(("Never", "Always"))}, gpu=1, gpumem=500)
    return _labelled(made, **{MAY_FAIL: "program"})


def _foreign(name: str, draw: random.Random) -> Object:
    """Return a Pod that names its Node and holds replicas there. Our scheduler learns of it late."""
    node = draw.choice(FOREIGN)
    spec = {"nodeName": node, "schedulerName": "foreign"}
    made = a_pod(name, command=SLEEP, spec=spec, gpu=draw.choice((1, 3)), gpumem=100)
    return _labelled(made, **{"hami.io/webhook": "ignore", MAY_FAIL: "nobody-scheduled-it"})


def _mig(name: str, draw: random.Random) -> Object:
    annotations = {"nvidia.com/vgpu-mode": "mig"}
    return a_pod(name, annotations=annotations, command=SLEEP, gpu=1, gpumem=draw.choice((8000, 12000)))


def _driver_held(name: str, draw: random.Random) -> Object:
    spec = {"nodeSelector": {"kubernetes.io/hostname": DRIVER.name}}
    annotations = {"hami.io/enforcement": "driver"}
    return a_pod(name, annotations=annotations, command=SLEEP, spec=spec, gpu=1, gpumem=draw.choice((1000, 3000)))


def _labelled(pod: Object, **labels: str) -> Object:
    pod["metadata"]["labels"] = labels
    return pod


KINDS: dict[str, Callable[[str, random.Random], Object]] = {
    "share": _share,
    "percent": _percent,
    "devices": _several_devices,
    "whole": _whole,
    "containers": _two_containers,
    "init": _init,
    "sidecar": _sidecar,
    "ranked": _ranked,
    "job": _job,
    "failing": _failing,
    "foreign": _foreign,
    "quota": _share,
    "mig": _mig,
    "driver": _driver_held,
}
"""Each with the function that draws such a Pod."""


class Load:
    """Creates and deletes the drawn Pods, and sees what becomes of all."""

    def __init__(self, cluster: SoakCluster, seed: int) -> None:
        self.created: Counter[str] = Counter()
        """How many Pods of each kind were created."""
        self.ran = 0
        """How many Pods were seen running."""
        self.excused: Counter[str] = Counter()
        """How many Pods failed neither by their program nor by a service, by the reason."""
        self.failures: list[str] = []
        """Pods that failed, and their programs had not."""
        self._cluster = cluster
        self._plans = draw_plans(cluster.site, seed)
        self._going = asyncio.Event()
        self._seen: set[tuple[str, str]] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def prepare(self) -> None:
        """Create the namespaces, the quota and the priorities."""
        api = self._cluster.api
        for name in (FREE, LIMITED):
            await api.create("/api/v1/namespaces", {"metadata": {"name": name}})
        hard = {"limits.nvidia.com/gpumem": str(QUOTA_MIB)}
        quota = {"metadata": {"name": "small"}, "spec": {"hard": hard}}
        await api.create(f"/api/v1/namespaces/{LIMITED}/resourcequotas", quota)
        for name, value in PRIORITIES.items():
            await api.create("/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": name}, "value": value})

    async def run(self) -> None:
        """Create Pod after Pod until cancelled, while the load is not paused."""
        async with Client.from_kubeconfig(self._cluster.kubeconfig, "load") as api:
            watching = asyncio.create_task(Mirror(api, "/api/v1/pods", self._see).run())
            try:
                for plan in self._plans:
                    await asyncio.sleep(plan.pause_seconds)
                    await self._going.wait()
                    task = asyncio.create_task(self._live(api, plan))
                    self._tasks.add(task)
                    task.add_done_callback(self._tasks.discard)
            finally:
                for each in (watching, *self._tasks):
                    each.cancel()
                await asyncio.gather(watching, *self._tasks, return_exceptions=True)

    def go_on(self) -> None:
        """Create and delete Pods from now on."""
        self._going.set()

    def pause(self) -> None:
        """Create and delete nothing from now on."""
        self._going.clear()

    async def _live(self, api: Client, plan: Plan) -> None:
        collection = f"/api/v1/namespaces/{plan.namespace}/pods"
        path = f"{collection}/{plan.manifest['metadata']['name']}"

        async def gone() -> None:
            if await api.exists(path):
                raise ApiError(CONFLICT, "AlreadyExists", path)

        for kind, manifest in ((plan.kind, plan.manifest), ("same name again", plan.then)):
            if manifest is not None:
                await self._insist(gone)
                await self._insist(partial(api.create, collection, manifest), CONFLICT)
                self.created[kind] += 1
                await asyncio.sleep(plan.life_seconds)
                await self._insist(partial(api.delete, path, plan.grace_seconds), NOT_FOUND)

    async def _insist(self, request: Callable[[], Awaitable[Any]], done: int = -1) -> None:
        """Send a request until it succeeds, or until the status *done* says that it has before."""
        while True:
            await self._going.wait()
            try:
                await request()
            except ApiError as error:
                if error.status == done:
                    return
                await asyncio.sleep(RETRY_SECONDS)
            else:
                return

    def _see(self, _: Object | None, pod: Object | None) -> None:
        if pod is None:
            return
        status = pod.get("status", {})
        key = pod["metadata"]["uid"], status.get("phase", "")
        if key in self._seen:
            return
        self._seen.add(key)
        self.ran += status.get("phase") == "Running"
        if status.get("phase") == "Failed" and "deletionTimestamp" not in pod["metadata"]:
            self._judge(pod, status)

    def _judge(self, pod: Object, status: Object) -> None:
        if reason := excuse(status):
            self.excused[reason] += 1
        elif MAY_FAIL not in (pod["metadata"].get("labels") or {}):
            states = [each.get("state") for each in status.get("containerStatuses", [])]
            why = f"{status.get('reason')}: {status.get('message')}, containers {states}"
            self.failures.append(f"failed: Pod {name_of(pod)} failed, and its program had not: {why}")


def excuse(status: Object) -> str:
    """Return why a Pod with *status* failed, if neither its program nor a service is to blame; else empty."""
    if status.get("reason") in REJECTED:
        return f"rejected by a kubelet: {status['reason']}"
    ended = [(each.get("state") or {}).get("terminated") or {} for each in status.get("containerStatuses") or ()]
    failed = [(each.get("reason"), each.get("exitCode")) for each in ended if each.get("exitCode") != 0]
    return "ended with its Node" if failed and all(each == LOST for each in failed) else ""
