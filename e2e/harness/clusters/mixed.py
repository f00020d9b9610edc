"""
An embedded cluster whose Nodes have plugins of several kinds, and whose scheduler is elected.

Owns the settings of those kinds. Neighbour: `embedded` starts all parts.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from harness.cluster import Settings
from harness.clusters import embedded
from harness.clusters.embedded import EmbeddedCluster
from harness.clusters.service_pods import HAMI
from testbed import configmaps
from testbed.driver.hardware import CGROUPS, FIRST_DRIVER_WITH_LIMITS, FIRST_DRIVER_WITH_MPS, FakeNode
from testbed.driver.native_cdi import write_driver

T4 = "Tesla T4"
MIG = FakeNode.of("mig-a", "NVIDIA H100 80GB HBM3", 81920, 1)
"""The Node in mode `mig`."""
DRIVER = FakeNode("driver-a", FakeNode.of("driver-a", T4, 16384, 2).gpus, driver=FIRST_DRIVER_WITH_LIMITS)
"""The Node whose driver limits memory."""
MPS = FakeNode("mps-a", FakeNode.of("mps-a", T4, 16384, 2).gpus, driver=FIRST_DRIVER_WITH_MPS)
"""The Node whose compute MPS limits."""
LOCKED = tuple(FakeNode.of(name, T4, 16384, 2) for name in ("lock-a", "lock-b"))
"""Nodes whose plugins find owners by the node lock."""
DEVICE_CONFIG = embedded.DEVICE_CONFIG.read_text() + (
    "  migProfileAllowlist: [{models: [H100], profiles: [1g.10gb, 2g.20gb, 7g.80gb]}]\n"
)
CONFIG_FILE = "device-config.yaml"
ELECTION = {
    "leaderElect": True,
    "leaseDuration": "8s",
    "renewDeadline": "5s",
    "retryPeriod": "1s",
    "resourceName": "hami",
    "resourceNamespace": "kube-system",
}
"""Shorter times than usual, so that a test need not wait long for the next leader."""
PARTS = ("apiserver", "webhook", "scheduler", "kube-scheduler", "plugin", "monitor", "kubelet")


class MixedCluster(EmbeddedCluster):
    """The cluster. The replicas of its scheduler are named by the host on which they are, as it were."""

    start_seconds = 180.0  # on a busy machine too

    def __init__(
        self,
        folder: Path,
        nodes: tuple[FakeNode, ...],
        hosts: Sequence[str],
        limit_hook: Path = embedded.NATIVE / "hami-limit-hook",
        mps_root: Path | None = None,
    ) -> None:
        """Prepare it. *mps_root* is the driver's root of the Node MPS, if that is one of *nodes*."""
        self._hosts = hosts
        mounted, node_config, driver = folder / "mounted", folder / "config.json", folder / "driver"
        configmaps.mount(mounted, {CONFIG_FILE: DEVICE_CONFIG})
        modes = {MIG.name: "mig", MPS.name: "mps"}
        entries = [{"name": name, "operatingmode": mode} for name, mode in modes.items()]
        node_config.write_text(json.dumps({"nodeconfig": entries}))
        limits = (
            f"--limit-hook={limit_hook}",
            f"--cgroup-root={folder / DRIVER.name / 'hardware' / CGROUPS}",
            "--memory-enforcement=required",
        )
        mps = (
            *(f"--nvidia-driver-root={mps_root}", f"--driver-root-ctr-path={mps_root}"),
            *("--compute-enforcement=mps-required", f"--cgroup-root={folder / 'none'}"),
        )
        settings = Settings(
            device_config=mounted / CONFIG_FILE,
            node_config=node_config,
            node_flags={
                MPS.name: mps,
                DRIVER.name: (*write_driver(driver, embedded.FAKE_DRIVER), *limits),
                **dict.fromkeys((node.name for node in LOCKED), ("--allocation=lock",)),
            },
            status_seconds=1.0,
        )
        super().__init__(folder, nodes, settings, is_recorded=True)

    async def start(self, step: Callable[[str], None] = lambda _: None) -> None:
        """Start all parts, and replicas of the scheduler in place of the one."""
        await super().start(step)
        for part in ("kube-scheduler", "scheduler"):
            self.processes.pop(part).terminate()
        await self.api.delete(f"/api/v1/namespaces/{HAMI}/pods/hami-scheduler", 0)
        for host in self._hosts:
            step(f"scheduler and kube-scheduler on host {host}")
            await self.start_replica(host, ELECTION)

    async def metrics(self, part: str) -> str:
        """
        Return the metrics of a service; those of `scheduler` are the leading replica's.

        Raises: LookupError if nobody leads.
        """
        if part != "scheduler":
            return await super().metrics(part)
        for host in self._hosts:
            text = await super().metrics(f"scheduler-{host}")
            if "hami_scheduler_leader 1.0" in text:
                return text
        raise LookupError("no replica of the scheduler leads")

    def configure(self, text: str) -> None:
        """Replace the device config, as the kubelet does when its ConfigMap changes."""
        configmaps.mount(self.folder / "mounted", {CONFIG_FILE: text})


def part_of(process: str) -> str:
    """Return which part a process is, such as `plugin` for `plugin-lock-a`."""
    return next(part for part in PARTS if process.startswith(part))
