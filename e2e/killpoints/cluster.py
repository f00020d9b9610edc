"""
The cluster of the kill points: one Node of each kind, and services that die where an order says.

Neighbour: `testbed.launch.killed_when_told` reads the orders.
"""

import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from hamicommon.model import Object
from harness.clusters.embedded import FAKE_DRIVER, NATIVE
from harness.clusters.mixed import DRIVER, LOCKED, MIG, MPS, MixedCluster, part_of
from harness.manifests import a_pod
from killpoints.load import SECRETS, TLS_SECRET
from killpoints.planted import Defect
from killpoints.points import POINTS, SHARED, Point
from testbed.driver.hardware import FakeNode
from testbed.driver.mps import BINARIES, CONTROL, MpsControl, driver_root
from testbed.folders import short_folder
from testbed.launch.killed_when_told import MET, order
from testbed.processes import Process, Supervisor

HOST = "a"
"""Where the only replica of the scheduler runs."""
NODES = (FakeNode.of(SHARED, "NVIDIA A100-SXM4-40GB", 40960, 2), LOCKED[0], MIG, DRIVER, MPS)
HOOK, LIBRARY = "limit hook", "library"
"""The parts that are no processes of the cluster's: each start of a container has a new one."""
OWN_CERTIFICATE = (
    f"--tls-secret=kube-system/{TLS_SECRET}",
    "--tls-names=127.0.0.1",
    "--webhook-configuration=hami-webhook",
)
FLAGS = {"monitor": ("--feedback-interval=1s",)}
VARIABLES = {"monitor": {"HAMI_RESYNC_INTERVAL": "2s"}}
"""Services that wait shorter than usual. The variable is for how long the directory of a Pod that is gone stays."""
HOOK_SCRIPT = """#!/bin/sh
if [ ! -e '{order}' ]; then exec '{hook}' "$@"; fi
FAKE_DRIVER_FAULTS="$(cat '{order}')" '{hook}' "$@" || {{ mv '{order}' '{order}{met}'; exit 1; }}
"""
KILLED_ONCE = """
if [ -e '{order}' ]; then
    FAKE_DRIVER_FAULTS="$(cat '{order}')" gpu-hold --mib {mib} --seconds 1
    [ $? = 137 ] && mv '{order}' '{order}{met}'
fi
exec gpu-hold --mib {mib} --exit-on-refusal
"""
"""A program that is killed, and the next one in the same container, for which the limit has room only alone."""
LIMIT_MIB, HELD_MIB = 1000, 600


class KillCluster(MixedCluster):
    """The cluster. Each part that has points has an order, by the name of its process."""

    def __init__(self, folder: Path, nodes: tuple[FakeNode, ...] = NODES, defects: Sequence[Defect] = ()) -> None:
        self.orders = folder / "orders"
        self.orders.mkdir(parents=True)
        hook = folder / HOOK.replace(" ", "-")
        hook.write_text(HOOK_SCRIPT.format(order=self.order_of(HOOK), met=MET, hook=NATIVE / "hami-limit-hook"))
        hook.chmod(0o755)
        self._apart = short_folder()
        self._mounts = ExitStack()
        super().__init__(folder, nodes, (HOST,), hook, self._apart / "driver-root")
        self._supervisor = _Supervisor(folder, self.order_of, defects)

    async def start(self, step: Callable[[str], None] = lambda _: None) -> None:
        """Start all parts, and let the webhook make its certificate."""
        if MPS in self.nodes:
            self._mounts.enter_context(driver_root(self._apart, FAKE_DRIVER, self.folder / MPS.name / "hardware"))
        await super().start(step)
        secret = {"metadata": {"name": TLS_SECRET}, "type": "kubernetes.io/tls", "data": {}}
        await self.api.create(SECRETS, secret)
        webhook = self.processes["webhook"]
        webhook.argv = (*(each for each in webhook.argv if not _is_file_flag(each)), *OWN_CERTIFICATE)
        webhook.kill()
        await self.restart("webhook")

    async def stop(self) -> None:
        """End every process, including those that the device plugins keep, and unmount what they had."""
        await super().stop()
        self.end_kept(f"plugin-{MPS.name}")
        self._mounts.close()
        for path in (*self._apart.iterdir(), self._apart):  # never with what is mounted there, if something is
            path.rmdir()

    @property
    def mps(self) -> MpsControl:
        """The daemon that the plugin of the Node MPS keeps."""
        root = self._apart / "driver-root"
        return MpsControl(root / BINARIES / CONTROL, root / "run/hami", pipe_name="mps")

    def end_kept(self, victim: str) -> None:
        """Kill the daemon that *victim* keeps, as where it has no control group that outlives *victim*."""
        if victim == f"plugin-{MPS.name}":
            with suppress(OSError):
                os.kill(self.mps.pid, signal.SIGKILL)

    def order_of(self, victim: str) -> Path:
        """Return the file of the orders for *victim*."""
        return self.orders / victim.replace(" ", "-")

    def give(self, victim: str, point: Point, number: int) -> None:
        """Order *victim* to die at the call *number* of *point*."""
        if victim in {HOOK, LIBRARY}:
            self.order_of(victim).write_text(point.place)
        else:
            order(self.order_of(victim), point.place, number)

    def has_died(self, victim: str) -> bool:
        """Return whether *victim* has carried out its order."""
        return self.order_of(victim).with_name(self.order_of(victim).name + MET).exists()

    def take_back(self, victim: str) -> None:
        """Forget the order for *victim*, whether it was carried out or not."""
        for path in (self.order_of(victim), self.order_of(victim).with_name(self.order_of(victim).name + MET)):
            path.unlink(missing_ok=True)

    @staticmethod
    def victim(part: str, point: Point) -> str:
        """Return who dies at *point* of *part*."""
        if part in {HOOK, LIBRARY}:
            return part
        return {"webhook": part, "scheduler": f"scheduler-{HOST}"}.get(part, f"{part}-{point.node}")

    def doomed_pod(self, name: str) -> Object:
        """Return a Pod whose first program obeys the order for `library`, and whose second needs its memory."""
        script = KILLED_ONCE.format(order=self.order_of(LIBRARY), met=MET, mib=HELD_MIB)
        spec = {"nodeSelector": {"kubernetes.io/hostname": SHARED}}
        return a_pod(name, command=("sh", "-c", script), spec=spec, gpu=1, gpumem=LIMIT_MIB)


class _Supervisor(Supervisor):
    """The processes; services die where their order says, and have the *defects*."""

    def __init__(self, folder: Path, order_of: Callable[[str], Path], defects: Sequence[Defect]) -> None:
        super().__init__(folder)
        self._order_of = order_of
        self._defects = defects

    def start(self, name: str, argv: Sequence[str], environment: Mapping[str, str] | None = None) -> Process:
        """Start a process under *name*."""
        part = part_of(name)
        places = ",".join(sorted({point.place for point in POINTS.get(part, ())}))
        if places:
            command = argv[1:] if argv[0] == sys.executable else argv
            for defect in self._defects:
                if defect.part == part:
                    command = ("-m", "testbed.launch.changed", defect.function, defect.change, *command)
            told = ("testbed.launch.killed_when_told", str(self._order_of(name)), places)
            argv = (sys.executable, "-m", *told, *command, *FLAGS.get(part, ()))
            environment = {**(environment or {}), **VARIABLES.get(part, {})}
        return super().start(name, argv, environment)


def _is_file_flag(argument: str) -> bool:
    return argument in {"--cert_file", "--key_file"} or argument.endswith(("/tls.crt", "/tls.key"))
