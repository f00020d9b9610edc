"""
The embedded cluster of a soak: eight Nodes of mixed kinds, two replicas of the scheduler, and a keeper.
"""

import asyncio
import json
import shutil
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from harness.cluster import Settings
from harness.clusters import embedded
from harness.clusters.embedded import EmbeddedCluster
from minicluster.kubelet.runtime.containers import kill_all
from soak.cluster import Site, SoakCluster, part_of
from testbed import configmaps
from testbed.folders import short_folder
from testbed.hardware import CGROUPS, FIRST_DRIVER_WITH_LIMITS, FakeNode
from testbed.native_cdi import write_driver
from testbed.waiting import NotInTimeError

A100, T4, A10, H100 = "NVIDIA A100-SXM4-40GB", "Tesla T4", "NVIDIA A10", "NVIDIA H100 80GB HBM3"
MIG_NODE, DRIVER_NODE = "mig-a", "driver-a"
LOCKED = ("lock-a", "lock-b")
IDENTITY = (
    FakeNode.of("identity-a", A100, 40960, 2),
    FakeNode.of("identity-b", A10, 24576, 4),
    FakeNode.of("identity-c", T4, 16384, 2),
    FakeNode.of("identity-d", A100, 40960, 2),
)
NODES = (
    *IDENTITY,
    *(FakeNode.of(name, T4, 16384, 2) for name in LOCKED),
    FakeNode.of(MIG_NODE, H100, 81920, 1),
    FakeNode(DRIVER_NODE, FakeNode.of(DRIVER_NODE, T4, 16384, 2).gpus, driver=FIRST_DRIVER_WITH_LIMITS),
)
SHARING = tuple(node.name for node in NODES if node.name not in {MIG_NODE, DRIVER_NODE})
"""The Nodes whose plugin may allocate in another way tomorrow."""
ALLOWLIST = "  migProfileAllowlist: [{models: [H100], profiles: [1g.10gb, 2g.20gb, 7g.80gb]}]\n"
DEVICE_CONFIG = embedded.DEVICE_CONFIG.read_text() + ALLOWLIST
CONFIG_FILE = "device-config.yaml"
SITE = Site(NODES, ("a", "b"))
ELECTION = {
    "leaderElect": True,
    "leaseDuration": "8s",
    "renewDeadline": "5s",
    "retryPeriod": "1s",
    "resourceName": "hami",
    "resourceNamespace": "kube-system",
}
"""Shorter times than usual: a stopped leader is replaced within a round of faults."""
START_SECONDS = 180.0
"""How long a part may take to start, on a busy machine too."""
KEEPER_SECONDS = 0.2
BACKOFF_SECONDS = (0.5, 8.0)
"""Before a part that ended is started again: the first and the longest, doubled while it lives a short time."""
LIVES_SECONDS = 20.0


class EmbeddedSoakCluster(EmbeddedCluster, SoakCluster):
    """The cluster, below one folder."""

    site = SITE

    def __init__(self, folder: Path) -> None:
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
        super().__init__(folder, NODES, settings, is_recorded=True)
        self.exits = Counter()
        self.held, self.ended = set(), set()

    async def start(self, step: Callable[[str], None] = lambda _: None) -> None:
        """Start all parts, and two replicas of the scheduler in place of the one."""
        await super().start(step)
        for part in ("kube-scheduler", "scheduler"):
            self.processes.pop(part).terminate()
        for host in SITE.hosts:
            step(f"scheduler and kube-scheduler on host {host}")
            await self.start_replica(host, ELECTION)

    async def ready(self, name: str, timeout_seconds: float = START_SECONDS) -> None:
        """Wait until the service *name* is ready."""
        await super().ready(name, timeout_seconds)

    async def node_ready(self, node: str, timeout_seconds: float = START_SECONDS) -> None:
        """Wait until *node* offers devices."""
        await super().node_ready(node, timeout_seconds)

    async def metrics(self, part: str) -> str:
        """
        Return the metrics of a service; those of `scheduler` are the leading replica's.

        Raises: LookupError if nobody leads.
        """
        if part != "scheduler":
            return await super().metrics(part)
        for host in SITE.hosts:
            text = await super().metrics(f"scheduler-{host}")
            if "hami_scheduler_leader 1.0" in text:
                return text
        raise LookupError("no replica of the scheduler leads")

    def configure(self, text: str) -> None:
        """Replace the device config, as the kubelet does when its ConfigMap changes."""
        configmaps.mount(self.folder / "mounted", {CONFIG_FILE: text})

    async def pids(self, part: str) -> list[int]:
        """Return that of its only process."""
        process = self.processes[part]
        return [process.pid] if process.popen is not None and process.is_running else []

    async def upgrade(self, part: str) -> None:
        """Ask all processes of a part to end at once, as an upgrade does at worst. The keeper starts them again."""
        for name in self.processes:
            if part_of(name) == part:
                await self.end(name, signal.SIGTERM)

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
        if popen is not None and popen.pid not in self.ended:
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
        until = time.monotonic() + START_SECONDS
        while True:
            try:
                await self.ready(name, until - time.monotonic())
            except NotInTimeError:
                if time.monotonic() > until:
                    raise
                await asyncio.sleep(KEEPER_SECONDS)
            else:
                return


@asynccontextmanager
async def running(step: Callable[[str], None]) -> AsyncIterator[EmbeddedSoakCluster]:
    """Run the cluster during a block, in a folder that is removed afterwards."""
    folder = short_folder()
    cluster = EmbeddedSoakCluster(folder)
    try:
        await cluster.start(step)
        yield cluster
    finally:
        await cluster.stop()
        for node in cluster.nodes:
            kill_all(folder / node.name)
        shutil.rmtree(folder, ignore_errors=True)
