"""
The cluster of a soak: Nodes of mixed kinds, two replicas of the scheduler, and a keeper.

The keeper starts again what has ended, as a kubelet and a service manager do. Neighbour: `faults` ends it.
"""

import asyncio
import json
import random
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from hamicommon.model import Object
from harness.cluster import Settings
from harness.clusters import embedded
from harness.clusters.embedded import EmbeddedCluster
from harness.clusters.service_pods import HAMI
from testbed import configmaps
from testbed.hardware import CGROUPS, FIRST_DRIVER_WITH_LIMITS, FakeDriver, FakeNode
from testbed.native_cdi import write_driver
from testbed.waiting import NotInTimeError

A100, T4, A10, H100 = "NVIDIA A100-SXM4-40GB", "Tesla T4", "NVIDIA A10", "NVIDIA H100 80GB HBM3"
MIG_NODE, DRIVER_NODE = "mig-a", "driver-a"
LOCKED = ("lock-a", "lock-b")
NODES = (
    FakeNode.of("identity-a", A100, 40960, 2),
    FakeNode.of("identity-b", A10, 24576, 4),
    FakeNode.of("identity-c", T4, 16384, 2),
    FakeNode.of("identity-d", A100, 40960, 2),
    *(FakeNode.of(name, T4, 16384, 2) for name in LOCKED),
    FakeNode.of(MIG_NODE, H100, 81920, 1),
    FakeNode(DRIVER_NODE, FakeNode.of(DRIVER_NODE, T4, 16384, 2).gpus, driver=FIRST_DRIVER_WITH_LIMITS),
)
SHARING = tuple(node.name for node in NODES if node.name not in {MIG_NODE, DRIVER_NODE})
"""The Nodes whose plugin may allocate in another way tomorrow."""
ALLOWLIST = "  migProfileAllowlist: [{models: [H100], profiles: [1g.10gb, 2g.20gb, 7g.80gb]}]\n"
DEVICE_CONFIG = embedded.DEVICE_CONFIG.read_text() + ALLOWLIST
CONFIG_FILE = "device-config.yaml"
PARTS = ("apiserver", "webhook", "scheduler", "kube-scheduler", "plugin", "monitor", "kubelet")
HOSTS = ("a", "b")
"""Where the replicas of the scheduler run, each beside a kube-scheduler."""
ELECTION = {
    "leaderElect": True,
    "leaseDuration": "8s",
    "renewDeadline": "5s",
    "retryPeriod": "1s",
    "resourceName": "hami",
    "resourceNamespace": "kube-system",
}
"""Shorter times than usual: a stopped leader is replaced within a round of faults."""
KEEPER_SECONDS = 0.2
BACKOFF_SECONDS = (0.5, 8.0)
"""Before a part that ended is started again: the first and the longest, doubled while it lives a short time."""
LIVES_SECONDS = 20.0


class SoakCluster(EmbeddedCluster):
    """The cluster, whose ended parts are started again. `faults` and `load` work on it."""

    start_seconds = 180.0  # on a busy machine too

    def __init__(self, folder: Path, nodes: tuple[FakeNode, ...] = NODES) -> None:
        mounted, node_config, driver = folder / "mounted", folder / "config.json", folder / "driver"
        configmaps.mount(mounted, {CONFIG_FILE: DEVICE_CONFIG})
        node_config.write_text(json.dumps({"nodeconfig": [{"name": MIG_NODE, "operatingmode": "mig"}]}))
        limits = (
            f"--limit-hook={embedded.NATIVE / 'hami-limit-hook'}",
            f"--cgroup-root={folder / DRIVER_NODE / 'hardware' / CGROUPS}",
            "--memory-enforcement=required",
        )
        settings = Settings(
            device_config=mounted / CONFIG_FILE,
            node_config=node_config,
            node_flags={
                DRIVER_NODE: (*write_driver(driver, embedded.FAKE_DRIVER), *limits),
                **dict.fromkeys(LOCKED, ("--allocation=lock",)),
            },
            status_seconds=1.0,
        )
        super().__init__(folder, nodes, settings, is_recorded=True)
        self.exits: Counter[str] = Counter()
        """How often each part ended although nobody ended it, by its name and how it ended."""
        self.held: set[str] = set()
        """Parts that the keeper does not start again now."""
        self._ended: set[int] = set()
        """The pids of the processes that a fault ended."""

    async def start(self, step: Callable[[str], None] = lambda _: None) -> None:
        """Start all parts, and two replicas of the scheduler in place of the one."""
        await super().start(step)
        for part in ("kube-scheduler", "scheduler"):
            self.processes.pop(part).terminate()
        await self.api.delete(f"/api/v1/namespaces/{HAMI}/pods/hami-scheduler", 0)
        for host in HOSTS:
            step(f"scheduler and kube-scheduler on host {host}")
            await self.start_replica(host, ELECTION)

    async def metrics(self, part: str) -> str:
        """
        Return the metrics of a service; those of `scheduler` are the leading replica's.

        Raises: LookupError if nobody leads.
        """
        if part != "scheduler":
            return await super().metrics(part)
        for host in HOSTS:
            text = await super().metrics(f"scheduler-{host}")
            if "hami_scheduler_leader 1.0" in text:
                return text
        raise LookupError("no replica of the scheduler leads")

    def driver(self, node: str) -> FakeDriver:
        """Return the driver of a Node."""
        return FakeDriver(self.driver_folder(node))

    def configure(self, text: str) -> None:
        """Replace the device config, as the kubelet does when its ConfigMap changes."""
        configmaps.mount(self.folder / "mounted", {CONFIG_FILE: text})

    def end(self, part: str, how: signal.Signals) -> None:
        """Send *how*, which ends it, to a part, and do not wait."""
        process = self.processes[part]
        if process.popen is not None and process.is_running:
            self._ended.add(process.pid)
            process.popen.send_signal(how)

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """During a block, start again each part that has ended."""
        keeper = asyncio.create_task(self._keep())
        try:
            yield
        finally:
            keeper.cancel()
            await asyncio.gather(keeper, return_exceptions=True)

    async def _keep(self) -> None:
        first, longest = BACKOFF_SECONDS
        backoff = dict.fromkeys(self.processes, first)
        due: dict[str, float] = {}
        started = dict.fromkeys(self.processes, 0.0)
        while True:
            now = time.monotonic()
            for name, process in self.processes.items():
                if process.is_running or name in self.held:
                    due.pop(name, None)
                elif name not in due:
                    self._count_exit(name)
                    backoff[name] = first if now - started[name] > LIVES_SECONDS else min(2 * backoff[name], longest)
                    due[name] = now + backoff[name]
                elif now >= due[name]:
                    started[name] = now
                    self._supervisor.restart(name)
            await asyncio.sleep(KEEPER_SECONDS)

    def _count_exit(self, name: str) -> None:
        popen = self.processes[name].popen
        if popen is not None and popen.pid not in self._ended:
            self.exits[f"{part_of(name)} ({popen.returncode})"] += 1

    async def all_ready(self) -> None:
        """
        Wait until every part runs and serves.

        Raises: NotInTimeError with the name of the part.
        """
        services = [name for name in self.processes if name.startswith(("webhook", "scheduler", "monitor", "plugin"))]
        await asyncio.gather(*map(self._ready_again, services))
        await asyncio.gather(*(self.node_ready(node.name) for node in self.nodes))

    async def _ready_again(self, name: str) -> None:
        """Wait until a service is ready that may not run yet."""
        until = time.monotonic() + self.start_seconds
        while True:
            try:
                await self.ready(name, until - time.monotonic())
            except NotInTimeError:
                if time.monotonic() > until:
                    raise
                await asyncio.sleep(KEEPER_SECONDS)
            else:
                return


def part_of(process: str) -> str:
    """Return which part a process is, such as `plugin` for `plugin-lock-a`."""
    return next(part for part in PARTS if process.startswith(part))


def seeded(seed: int, what: str) -> random.Random:
    """Return the numbers that *what* draws from *seed*, whatever others draw."""
    return random.Random(f"{seed}/{what}")


def name_of(pod: Object) -> str:
    """Return `namespace/name`."""
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
