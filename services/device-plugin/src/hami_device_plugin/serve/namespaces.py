"""
Keep MPS's daemon and a namespace for each container that is limited by it, until cancelled.

The daemon outlives this process, and forgets all namespaces if it ends itself. So what it lists is compared with the
containers of the Node: what is missing is made, and what belongs to no container any more is deleted.
Neighbours: `decide.allocate.namespaces` says who has which namespace, `adapters.mps.control` tells the daemon.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence

import structlog

from hami_device_plugin.adapters.mps.control import MpsControl, MpsControlError, MpsDevice
from hami_device_plugin.adapters.nvml.compute import set_compute_mode
from hami_device_plugin.decide.allocate.container_limits import MpsError
from hami_device_plugin.decide.allocate.namespaces import is_ours, namespace_name, rounding, wanted_namespaces
from hami_device_plugin.decide.probe.enforcement import MpsServer
from hami_device_plugin.serve.context import Context
from hamicommon.model import ContainerShares
from hamicommon.pod.containers import ContainerState
from hamicommon.pod.reading import Container, Pod

LOOK_SECONDS = 5.0

logger = structlog.get_logger()

Percent = Callable[[Container, ContainerShares], int | None]
"""Return the percentage of a container's namespace, None if it has none. Raises MpsError: it cannot start here."""


class Namespaces:
    """The namespaces of one session, on a Node whose compute MPS limits."""

    def __init__(self, context: Context, server: MpsServer) -> None:
        """Keep those of *server*."""
        self._context = context
        self._server = server
        self._control = MpsControl(server, context.config.cgroup_root)
        self._one_at_a_time = asyncio.Lock()
        self._problem = ""
        self._devices: Mapping[str, MpsDevice] | None = None
        """By UUID; None until the server that runs was asked."""

    async def prepare(self, pod_uid: str, container: str, uuids: Sequence[str], percent: int | None) -> str:
        """
        Return the namespace of *container*, which serves *percent*; an empty name without *percent*.

        Raises:
            MpsControlError: it cannot be made, or another program holds a device, so the container would have no limit.
            NvmlError: the devices cannot be closed to other programs.
        """
        if self._server.is_required:
            await set_compute_mode(self._context.nvml, uuids, is_exclusive=percent is not None)
        if percent is None:
            return ""
        name = namespace_name(pod_uid, container)
        async with self._one_at_a_time:
            before = (await self._there()).get(name)
            devices = await self._find_devices()
            self._check_held(devices, uuids)
            await self._control.keep(name, percent, before)
        totals = {uuid: devices[uuid].multiprocessors for uuid in uuids if uuid in devices}
        text = "" if before is not None else rounding(container, percent, totals)
        if text and pod_uid in self._context.view.pods:
            self._context.view.report_pod(self._context.view.pods[pod_uid], "ComputeRounded", text, is_warning=False)
        return name

    async def _find_devices(self) -> Mapping[str, MpsDevice]:
        """
        Return the devices. The server takes those that it must have and has not, so that strangers are kept away.

        Where it must have none, nothing depends on them but a sentence, and they may be unknown.

        Raises:
            MpsControlError: the server must have them, and cannot be asked.
        """
        if self._devices is None or any(device.error for device in self._devices.values()):
            try:
                self._devices = await self._control.devices()
            except MpsControlError as error:
                if self._server.is_required:
                    raise
                logger.info("What MPS rounds is not known", error=str(error))
                self._devices = {}
        return self._devices

    @staticmethod
    def _check_held(devices: Mapping[str, MpsDevice], uuids: Iterable[str]) -> None:
        for uuid in uuids:
            if uuid in devices and devices[uuid].error:
                raise MpsControlError(
                    f"device {uuid} is not MPS's, CUDA error {devices[uuid].error}: a program holds it that is no "
                    "client, or was one of a server that ended: end its Pod"
                )

    async def run(self, percent: Percent) -> None:
        """Compare the daemon with the containers of the Node, by their *percent*, now and every 5 s."""
        await self._context.view.pod_reflector.synced.wait()
        while True:
            try:
                async with self._one_at_a_time:
                    await self._look(percent)
                self._problem = ""
            except MpsControlError as error:
                if str(error) != self._problem:
                    self._problem = str(error)
                    logger.warning("Namespaces of MPS cannot be kept", error=self._problem)
            await asyncio.sleep(LOOK_SECONDS)

    async def _look(self, percent: Percent) -> None:
        wanted, there = self._wanted(percent), await self._there()
        devices = await self._find_devices()
        for name in there:
            if is_ours(name) and name not in wanted:
                await self._control.delete(name)
        for name, (pod, container, part) in wanted.items():
            if there.get(name) != part and _has_started(pod, container):
                await self._control.keep(name, part, there.get(name))
                self._report(pod, container, part)
        await self._show(wanted)
        self._check_held(devices, devices)

    async def _there(self) -> Mapping[str, int]:
        """Return the percentage of each namespace. A daemon that does not answer is started first."""
        try:
            return await self._control.namespaces()
        except MpsControlError:
            self._devices = None
            await self._control.start()
            self._context.metrics.mps_restarts.inc()
            return await self._control.namespaces()

    def _wanted(self, percent: Percent) -> Mapping[str, tuple[Pod, str, int]]:
        def of(container: Container, shares: ContainerShares) -> int | None:
            try:
                return percent(container, shares)
            except MpsError:
                return None

        config, view = self._context.config, self._context.view
        return wanted_namespaces(view.pods.values(), config.node_name, self._context.vendor, of)

    async def _show(self, wanted: Mapping[str, tuple[Pod, str, int]]) -> None:
        """Show how many processes use each namespace."""
        counts = await self._control.clients()
        self._context.metrics.show_namespaces(
            {(pod.namespace, pod.name, of): (part, counts[name]) for name, (pod, of, part) in wanted.items()}
        )

    def _report(self, pod: Pod, container: str, percent: int) -> None:
        self._context.metrics.namespaces_restored.inc()
        text = (
            f"container {container}: MPS had lost its namespace and has it again, with {percent} %. Programs "
            "that started meanwhile may run without a limit, and later ones too, because the container has the earlier "
            "folder: end the Pod"
        )
        logger.warning("MPS had lost a namespace", pod=str(pod), container=container)
        self._context.view.report_pod(pod, "ComputeLimitRestored", text)


def _has_started(pod: Pod, name: str) -> bool:
    return any(one.name == name and one.state is ContainerState.RUNNING for one in pod.containers)
