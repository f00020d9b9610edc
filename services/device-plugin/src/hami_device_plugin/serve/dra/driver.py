"""
The kubelet's side of a Node with dynamic resource allocation: the driver's sockets, the slice, the devices' health.

Neighbours: `adapters.dra` serves the sockets, `service` starts this in the place of a device plugin.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hami_device_plugin.adapters.claim_records import ClaimRecords
from hami_device_plugin.adapters.dra import DeviceState, DraServer, Folders
from hami_device_plugin.adapters.nvml.descriptions import describe
from hami_device_plugin.config.settings import Config
from hami_device_plugin.decide.allocate.pods import Sharing
from hami_device_plugin.decide.dra.offer import offered_devices, offered_partitions
from hami_device_plugin.decide.dra.tokens import knows_replicas
from hami_device_plugin.decide.dra.users import sharing_by_claims
from hami_device_plugin.serve.allocate.preparation import Preparer
from hami_device_plugin.serve.context import Context
from hami_device_plugin.serve.dra.claims import Claims
from hami_device_plugin.serve.dra.slices import Slices
from hami_device_plugin.serve.dra.tokens import PrepareContainers, Tokens
from hami_device_plugin.serve.probe.devices import NodeDevices
from hamicommon.dra.partitions import Offered, Partition
from hamicommon.dra.slices import Description
from hamicommon.model import Device
from hamicommon.pod.reading import Pod

POLL_SECONDS = 0.5


class DraDriver:
    """One session's driver."""

    def __init__(
        self,
        context: Context,
        devices: NodeDevices,
        preparer: Callable[[], Preparer],
        prepare_containers: PrepareContainers,
        changed: Callable[[], None],
    ) -> None:
        """
        Serve *devices*; *preparer* returns what prepares the host by the present settings.

        *prepare_containers* prepares those of Pods with tokens.

        *changed* is called when the kubelet has registered the driver.
        """
        self._context = context
        self._found = devices
        self._changed = changed
        self._devices: Sequence[Device] = devices.by(context.config, context.conditions)
        self._descriptions: Mapping[str, Description] = {}
        folders, pod_uid = Folders(Path(context.config.kubelet_root)), context.config.pod_uid
        self._records = ClaimRecords.of_node(context.config.vgpu_directory)
        self._claims = Claims(
            context, self._records, preparer, self._offered, Tokens(context, prepare_containers), devices.mig
        )
        self._server = DraServer(folders, pod_uid, self._claims, self._states, self._registered)
        self._slices = Slices(context, self._slice_devices, self._token_count, self._server.is_youngest)
        self._config = context.config

    @property
    def is_registering(self) -> bool:
        """Whether the kubelet is to call."""
        return True

    async def start(self) -> None:
        """
        Read what the devices are, and let the kubelet find the driver.

        Raises:
            HamiError: the driver is gone, or a socket cannot be created.
        """
        self._descriptions = await describe(self._context.nvml, self._found.offered.found)
        await self._server.start()

    async def stop(self) -> None:
        """Finish the kubelet's calls, and take no more. The slice stays, as containers do: the next process has it."""
        await self._server.stop()

    def offer(self, devices: Sequence[Device], config: Config) -> None:
        """Offer *devices* in the slice, and tell the kubelet of their health."""
        self._devices, self._config = devices, config
        self._slices.wake()
        self._server.tell_health()

    def announced(self, devices: Sequence[Device]) -> tuple[Device, ...]:
        """
        Return *devices* as schedulers may use them.

        Those for claims are listed, so that what runs is explained, and closed.
        """
        return tuple(device if self._has_tokens(device) else replace(device, healthy=False) for device in devices)

    def sharing(self, pods: Iterable[Pod]) -> Iterator[Sharing]:
        """Yield each container of *pods* that uses a prepared claim."""
        return sharing_by_claims(pods, self._records.read().values())

    def problem(self) -> str | None:
        """Return why no claims come; None if they do."""
        if self._server.is_registered:
            return self._slices.problem or None
        return self._server.problem or "the kubelet has not registered the DRA driver"

    def loops(self) -> Iterator[Coroutine[Any, Any, None]]:
        """Yield what goes on while the kubelet is served; the last returns once a socket was removed."""
        yield self._context.dra.reflector.run()
        yield self._slices.run()
        yield self._claims.forget_gone()
        yield self._wait_removed()

    def _states(self) -> Sequence[DeviceState]:
        """Return the health of every device in the slice."""
        pool = self._context.config.node_name
        return [DeviceState(pool, one.name, ", ".join(one.faults)) for one in self._slice_devices()]

    async def _wait_removed(self) -> None:
        """Return once somebody has removed or replaced a socket."""
        while True:
            await asyncio.sleep(POLL_SECONDS)
            if not self._server.is_in_place():
                return

    def _registered(self) -> None:
        self._slices.wake()
        self._changed()

    def _slice_devices(self) -> tuple[Offered, ...]:
        """Return what the slices list: devices that are shared, or in mode `mig` the instances that there can be."""
        by_claims = [device for device in self._devices if not self._has_tokens(device)]
        devices = offered_devices(by_claims, self._descriptions, self._context.conditions)
        mig = self._found.mig
        return devices if mig is None else offered_partitions(devices, mig.offers, mig.occupied)

    def _has_tokens(self, device: Device) -> bool:
        """Return whether *device* serves Pods that ask by resources; instances of a Node in mode `mig` never do."""
        config = self._config
        return config.has_extended_resource and self._found.mig is None and not config.sharing.is_for_claims(device)

    def _token_count(self) -> int:
        if knows_replicas(self._context.view.node, self._config.resource):
            return 0
        return sum(device.count for device in self._devices if self._has_tokens(device))

    def _offered(self) -> Mapping[str, Device | Partition]:
        return {one.name: one if isinstance(one, Partition) else one.device for one in self._slice_devices()}
