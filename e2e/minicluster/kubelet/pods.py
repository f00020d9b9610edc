"""
Run one Pod on its Node: start its containers in order, restart them, end them, and report.

Owns the order of containers, restarts with back-off, and the Pod's status in the API. Must never touch another Pod.
Neighbours: `main` adds and removes Pods, `devices.manager` and `runtime.containers` execute, `status.podstatus`
computes the status.
"""

import asyncio
import contextlib
import random
import time
import traceback
from collections.abc import Coroutine, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from hamicommon.model import Object
from minicluster.client import ApiError, Client
from minicluster.kubelet import podspec
from minicluster.kubelet.devices.manager import DeviceManager
from minicluster.kubelet.devices.pluginclients import PluginError
from minicluster.kubelet.podspec import Container, ContainerError
from minicluster.kubelet.runtime.containers import RunningContainer, Runtime, Wanted
from minicluster.kubelet.runtime.volumes import volume_mounts
from minicluster.kubelet.status import podstatus
from minicluster.kubelet.status.events import Events
from minicluster.kubelet.status.podstatus import Attempt, ContainerState, PodState

FIRST_BACKOFF_SECONDS, LONGEST_BACKOFF_SECONDS = 10.0, 300.0
"""The first restart is immediate. The second follows after the first back-off, which doubles up to the longest."""
FORGIVEN_SECONDS = 600.0
"""A container that ran for this time restarts without back-off."""
CREATE_RETRY_SECONDS = 1.0
CREATE_RETRIES_SECONDS = (10.0, 15.0)
"""The creation of a container is retried after the first time, and then after a random time between the others."""
WRITE_RETRY_SECONDS = 0.5
DEFAULT_GRACE_SECONDS = 30
REJECTED_GRACE_SECONDS = 1.0
"""The grace period of containers that run when their Pod is rejected."""


@dataclass(frozen=True)
class Node:
    """The objects that all Pods of one Node share."""

    client: Client
    devices: DeviceManager
    runtime: Runtime
    events: Events
    allocatable: Mapping[str, str]
    backoff_scale: float


class PodContainer:
    """One container of a Pod, with all its attempts."""

    def __init__(self, spec: Container, waiting: str, is_sidecar: bool) -> None:
        self.spec = spec
        self.name: str = spec["name"]
        self.is_sidecar = is_sidecar
        self.waiting: tuple[str, str] | None = (waiting, "")
        self.current: RunningContainer | None = None
        self.previous: RunningContainer | None = None
        self.is_done = False
        self.has_started = asyncio.Event()
        self.starting: asyncio.Task[RunningContainer] | None = None
        self._backoff_seconds = 0.0

    def begin(self, container: RunningContainer) -> None:
        """Set *container* as its newest attempt."""
        self.previous, self.current, self.waiting = self.current, container, None
        self.has_started.set()

    def next_backoff(self) -> float:
        """Return the unscaled back-off before the next attempt, and double it."""
        assert self.current is not None
        assert self.current.exit is not None
        if self.current.exit.finished_at - self.current.started_at > FORGIVEN_SECONDS:
            self._backoff_seconds = 0.0
        seconds = self._backoff_seconds
        self._backoff_seconds = min(max(seconds * 2, FIRST_BACKOFF_SECONDS), LONGEST_BACKOFF_SECONDS)
        return seconds

    def state(self) -> ContainerState:
        """Return its present state."""
        current, previous = _attempt(self.current), _attempt(self.previous)
        return ContainerState(self.spec, self.waiting, current, previous, self.is_sidecar, self.is_done)


class PodWorker:
    """One Pod. `start`, `terminate` and `abandon` are called at most once each, in this order."""

    def __init__(self, node: Node, pod: Object, adopted: Mapping[str, list[RunningContainer]]) -> None:
        self.node = node
        self.pod = pod
        self.uid: str = pod["metadata"]["uid"]
        self.is_finished = False
        """Whether nothing of it runs or will run again. Its devices are free then."""
        self.is_terminating = False
        self.has_arrived = False
        """Whether its admission has begun. Before, the Node does not count it."""
        spec = pod["spec"]
        inits = spec.get("initContainers", ())
        waiting = "PodInitializing" if inits else "ContainerCreating"
        self._inits = [PodContainer(container, "PodInitializing", podspec.is_sidecar(container)) for container in inits]
        self._apps = [PodContainer(container, waiting, False) for container in spec["containers"]]
        for member in self._members:
            for container in adopted.get(member.name, ())[-2:]:
                member.begin(container)
        started_at = pod.get("status", {}).get("startTime")
        self._started_at = podstatus.of_time(started_at) if started_at else time.time()
        self._verdict: tuple[str, str] | None = None
        self._is_ending = False
        self._dirty = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._run_task: asyncio.Task[None] | None = None
        self._writing: asyncio.Task[None] | None = None
        self._written: Object | None = None

    @property
    def _members(self) -> list[PodContainer]:
        return [*self._inits, *self._apps]

    @property
    def path(self) -> str:
        """The path of the Pod at the API server."""
        metadata = self.pod["metadata"]
        return f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"

    @property
    def running(self) -> list[str]:
        """The running containers. Before admission, these are adopted ones, which have their devices."""
        return [member.name for member in self._members if member.current is not None and member.current.is_running]

    def update(self, pod: Object) -> None:
        """Set a newer version of the Pod's object."""
        self.pod = pod

    async def reject(self, reason: str, message: str) -> None:
        """Fail the Pod without starting it, and end the containers that an earlier kubelet started."""
        self.node.events.warn(self.pod, reason, message)
        if self.running:
            self._is_ending = True
            self._report()
        await _stop(self._members, REJECTED_GRACE_SECONDS)
        self._is_ending = False
        self._verdict = (reason, f"Pod was rejected: {message}")
        self.is_finished = True
        self._report()

    def start(self) -> None:
        """Start its containers, or continue with those that run."""
        self._run_task = asyncio.create_task(self._run())
        self._run_task.add_done_callback(_show_defect)

    async def terminate(self, grace_seconds: float) -> None:
        """End all containers, sidecars last, report it, and remove the Pod from the API server."""
        self.is_terminating = True
        deadline = time.monotonic() + grace_seconds
        await self._end_tasks()
        for members in (self._apps, [member for member in self._inits if not member.is_sidecar], self._sidecars):
            await _stop(members, max(deadline - time.monotonic(), 0.0))
        self._finish()
        if self._writing is not None:
            await self._writing
        while True:
            try:
                await self.node.client.delete(self.path, grace_seconds=0, uid=self.uid)
            except ApiError as error:
                if error.status not in {404, 409}:
                    await asyncio.sleep(WRITE_RETRY_SECONDS)
                    continue
            return

    async def abandon(self, grace_seconds: float = 0.0) -> None:
        """End the containers of a Pod without reporting to the API server."""
        await self._end_tasks()
        await _stop(self._members, grace_seconds)
        self.is_finished = True
        if self._writing is not None:
            self._writing.cancel()

    async def _run(self) -> None:
        """Run init containers in order, then the others, until none runs or will run again."""
        policy = self.pod["spec"].get("restartPolicy", "Always")
        self._report()
        has_begun = any(member.current is not None for member in self._apps)
        for member in self._inits:
            if member.is_sidecar:
                self._spawn(self._keep(member, "Always"))
                await member.has_started.wait()
            elif has_begun:
                member.is_done = True
            else:
                await self._keep(member, "Never" if policy == "Never" else "OnFailure")
                if not member.state().has_succeeded:
                    break
        else:
            await asyncio.gather(*(self._keep(member, policy) for member in self._apps))
        await self._end_tasks(but=asyncio.current_task())
        await _stop(self._sidecars, self.pod["spec"].get("terminationGracePeriodSeconds", DEFAULT_GRACE_SECONDS))
        self._finish()

    async def _keep(self, member: PodContainer, policy: str) -> None:
        """Start *member*, and restart it by *policy*, until it is done."""
        if member.current is None:
            await self._begin(member)
        while True:
            assert member.current is not None
            ended = await member.current.wait()
            if policy == "Never" or (policy == "OnFailure" and ended.code == 0):
                member.is_done = True
                self._report()
                return
            seconds = member.next_backoff()
            if seconds:
                self._back_off(member, seconds)
                await asyncio.sleep(seconds * self.node.backoff_scale)
            await self._begin(member)

    def _back_off(self, member: PodContainer, seconds: float) -> None:
        metadata = self.pod["metadata"]
        what = f"restarting failed container={member.name} pod={metadata['name']}_{metadata['namespace']}({self.uid})"
        member.waiting = ("CrashLoopBackOff", f"back-off {_go_duration(seconds)} {what}")
        self.node.events.warn(self.pod, "BackOff", f"Back-off {what}", self._field_path(member))
        self._report()

    async def _begin(self, member: PodContainer) -> None:
        """Create and start the next attempt, and retry until it can be created."""
        seconds = CREATE_RETRY_SECONDS
        while True:
            try:
                await self._create(member)
            except ContainerError as error:
                member.waiting = (error.reason, error.message)
                self.node.events.warn(self.pod, "Failed", f"Error: {error.message}", self._field_path(member))
                self._report()
                await asyncio.sleep(seconds * self.node.backoff_scale)
                seconds = random.uniform(*CREATE_RETRIES_SECONDS)
            else:
                self._report()
                return

    async def _create(self, member: PodContainer) -> None:
        wanted = await self._wanted(member)
        # Shielded, so that a starting container is known even if this task is cancelled.
        member.starting = asyncio.create_task(self.node.runtime.start(wanted))
        container = await asyncio.shield(member.starting)
        member.starting = None
        member.begin(container)

    async def _wanted(self, member: PodContainer) -> Wanted:
        """Prepare the devices of *member*, and return its next attempt."""
        contents = await self._contents()
        try:
            options = await self.node.devices.prepare(self.pod, member.spec)
        except PluginError as error:
            raise ContainerError("CreateContainerConfigError", str(error)) from error
        runtime, metadata = self.node.runtime, self.pod["metadata"]
        given = runtime.image_environment(metadata["name"]) | options.environment
        variables = podspec.environment(self.pod, member.spec, contents, given, self.node.allocatable)
        directory = runtime.pod_directory(self.uid)
        volumes = volume_mounts(self.pod, member.spec, directory, contents, self.node.allocatable)
        return Wanted(
            pod_uid=self.uid,
            name=member.name,
            attempt=0 if member.current is None else member.current.attempt + 1,
            argv=podspec.arguments(member.spec, variables),
            environment=variables,
            cwd=member.spec.get("workingDir") or "/",
            mounts=[*options.mounts, *volumes],
            cdi_devices=options.cdi_devices,
            user=podspec.user(self.pod, member.spec),
        )

    async def _contents(self) -> dict[podspec.Reference, dict[str, bytes] | None]:
        """Read the ConfigMaps and Secrets that the Pod refers to."""
        found: dict[podspec.Reference, dict[str, bytes] | None] = {}
        for kind, name in podspec.references(self.pod):
            path = f"/api/v1/namespaces/{self.pod['metadata']['namespace']}/{kind}/{name}"
            try:
                found[kind, name] = podspec.contents_of(await self.node.client.get(path))
            except ApiError as error:
                if error.status != 404:
                    raise ContainerError("CreateContainerConfigError", f"{kind} {name}: {error}") from error
                found[kind, name] = None
        return found

    def _field_path(self, member: PodContainer) -> str:
        group = "initContainers" if member in self._inits else "containers"
        return f"spec.{group}{{{member.name}}}"

    @property
    def _sidecars(self) -> list[PodContainer]:
        """The sidecars in the order in which they stop: the last started first."""
        return [member for member in reversed(self._inits) if member.is_sidecar]

    def _finish(self) -> None:
        for member in self._members:
            member.is_done = member.current is not None
        self.is_finished = True
        self._report()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(_show_defect)

    async def _end_tasks(self, but: asyncio.Task[Any] | None = None) -> None:
        tasks = [task for task in (*self._tasks, self._run_task) if task is not None and task is not but]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _report(self) -> None:
        """Write the status. One write runs at a time, and the next one has all changes made meanwhile."""
        self._dirty.set()
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write())

    async def _write(self) -> None:
        while self._dirty.is_set():
            self._dirty.clear()
            inits, apps = ([member.state() for member in members] for members in (self._inits, self._apps))
            state = PodState(inits, apps, self._started_at, self.is_finished, self._verdict, self._is_ending)
            status = podstatus.pod_status(self.pod, self.uid, state, time.time())
            if status == self._written:
                continue
            try:
                await self.node.client.patch(f"{self.path}/status", {"metadata": {"uid": self.uid}, "status": status})
                self._written = status
            except ApiError as error:
                if error.status in {404, 422}:
                    return  # the Pod is gone, or a new one has its name
                self._dirty.set()
                await asyncio.sleep(WRITE_RETRY_SECONDS)


async def _stop(members: Iterable[PodContainer], grace_seconds: float) -> None:
    """End all *members* together, including those that are being started."""
    containers = []
    for member in members:
        if member.starting is not None:
            with contextlib.suppress(ContainerError):
                member.begin(await member.starting)
            member.starting = None
        if member.current is not None:
            containers.append(member.current)
    await asyncio.gather(*(container.stop(grace_seconds) for container in containers))


def _show_defect(task: asyncio.Task[None]) -> None:
    """Print an unexpected error. This Pod stops then, and the others continue."""
    if not task.cancelled() and (error := task.exception()) is not None:
        traceback.print_exception(error)


def _attempt(container: RunningContainer | None) -> Attempt | None:
    if container is None:
        return None
    if container.exit is None:
        return Attempt(container.attempt, container.started_at)
    ended = container.exit
    return Attempt(container.attempt, container.started_at, ended.finished_at, ended.code, ended.reason, ended.message)


def _go_duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"
