"""
The device manager: known device ids, their owners, and what plugins add to containers.

Owns the allocation rules of kubelet 1.34, and the checkpoint. Must never know how a container runs, and never call the
API server. Neighbours: `pluginclients` calls the plugins, `checkpoint` is the file, `pods` admits and starts containers
with it, `podresources` shows the owners.
Source: https://github.com/kubernetes/kubernetes/blob/v1.34.4/pkg/kubelet/cm/devicemanager/manager.go
"""

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from hamicommon.model import Object
from hamicommon.runtime.kubelet_api._proto import deviceplugin_v1beta1_pb2 as api
from minicluster.kubelet.devices.checkpoint import (
    WITHOUT_TOPOLOGY,
    CheckpointError,
    Entry,
    read_checkpoint,
    write_checkpoint,
)
from minicluster.kubelet.devices.pluginclients import PluginClient, PluginError, RegistrationServer
from minicluster.kubelet.podspec import Container, is_sidecar
from minicluster.kubelet.runtime.cdi import ANNOTATION_PREFIX
from minicluster.kubelet.runtime.isolation import Mount

ENDPOINT_GRACE_SECONDS = 300.0
"""The time that the capacity of a resource outlives its plugin."""


@dataclass(frozen=True)
class DeviceOptions:
    """What the plugins add to a container with their devices."""

    environment: dict[str, str]
    mounts: tuple[Mount, ...]
    cdi_devices: tuple[str, ...]


class DeviceManager:
    """
    The devices of one Node.

    `active_pods` returns the UIDs of unfinished Pods. Devices of other Pods are free.
    """

    def __init__(
        self,
        directory: Path,
        active_pods: Callable[[], Collection[str]],
        grace_seconds: float = ENDPOINT_GRACE_SECONDS,
    ) -> None:
        self.directory = directory
        self.is_settled = False
        """False until all Pods of an earlier kubelet are known. Until then no devices are freed."""
        self._active_pods = active_pods
        self._grace_seconds = grace_seconds
        self._server = RegistrationServer(directory, self)
        self._clients: dict[str, PluginClient] = {}
        self._devices: dict[str, dict[str, api.Device]] = {}
        self._healthy: dict[str, set[str]] = {}
        self._unhealthy: dict[str, set[str]] = {}
        self._entries: dict[tuple[str, str, str], Entry] = {}
        """By Pod UID, container and resource. Ids that containers reuse are in the entries of both containers."""

    async def start(self) -> None:
        """Read the checkpoint of an earlier kubelet, and let plugins register."""
        self.directory.mkdir(parents=True, exist_ok=True)
        try:
            checkpoint = read_checkpoint(self.directory)
        except CheckpointError as error:
            print(f"kubelet: device allocations may not be up to date: {error}", flush=True)
            checkpoint = None
        if checkpoint is not None:
            self._entries = {(entry.pod_uid, entry.container, entry.resource): entry for entry in checkpoint.entries}
            for resource in checkpoint.registered:
                # Known without devices, so that allocatable is 0 until the plugin registers again.
                self._healthy[resource], self._unhealthy[resource] = set(), set()
                self._clients[resource] = PluginClient(resource, None)
        await self._server.start()

    async def close(self) -> None:
        """Stop serving plugins. Nothing is freed."""
        await self._server.close()

    def plugin_connected(self, client: PluginClient) -> None:
        """Set *client* as the only one for its resource."""
        self._clients[client.resource] = client

    def plugin_disconnected(self, resource: str) -> None:
        """Mark all devices of *resource* unhealthy, and its newest plugin stopped, whichever stream ended."""
        client = self._clients.get(resource)
        if client is None:
            return
        self._unhealthy.setdefault(resource, set()).update(self._healthy.get(resource, set()))
        self._healthy[resource] = set()
        client.stopped_at = time.monotonic()
        print(f"kubelet: Endpoint became unhealthy resourceName={resource}", flush=True)

    def devices_reported(self, resource: str, devices: Sequence[api.Device]) -> None:
        """Set *devices* as all devices of *resource*."""
        self._devices[resource] = {device.ID: device for device in devices}
        self._healthy[resource] = {device.ID for device in devices if device.health == "Healthy"}
        self._unhealthy[resource] = set(self._devices[resource]) - self._healthy[resource]
        self._write()

    def resources(self) -> tuple[dict[str, int], dict[str, int]]:
        """Return capacity and allocatable by resource. Resources without a plugin for too long are forgotten."""
        expired = [
            resource
            for resource, client in self._clients.items()
            if client.stopped_at is not None and time.monotonic() - client.stopped_at > self._grace_seconds
        ]
        for resource in expired:
            for table in (self._clients, self._healthy, self._unhealthy, self._devices):
                table.pop(resource, None)
        if expired:
            self._write()
        allocatable = {resource: len(ids) for resource, ids in self._healthy.items()}
        capacity = {name: count + len(self._unhealthy.get(name, ())) for name, count in allocatable.items()}
        return capacity, allocatable

    def healthy_devices(self) -> dict[str, list[str]]:
        """Return the healthy ids by resource."""
        return {resource: sorted(ids) for resource, ids in self._healthy.items()}

    def devices_of(self, pod_uid: str, container: str) -> dict[str, list[str]]:
        """Return the ids that *container* owns, by resource."""
        return {
            entry.resource: sorted(entry.ids)
            for entry in self._entries.values()
            if (entry.pod_uid, entry.container) == (pod_uid, container)
        }

    def allocated(self, pod_uid: str) -> dict[str, int]:
        """Return per resource how many ids all Pods own, nothing for a Pod without any."""
        if not any(entry.pod_uid == pod_uid for entry in self._entries.values()):
            return {}
        return {resource: len(self._in_use(resource)) for resource in {e.resource for e in self._entries.values()}}

    def free_finished(self) -> None:
        """Free the devices of Pods that are no longer active."""
        if not self.is_settled:
            return
        active = self._active_pods()
        self._entries = {key: entry for key, entry in self._entries.items() if entry.pod_uid in active}

    async def allocate(self, pod: Object, running: Collection[str] = ()) -> None:
        """
        Allocate devices for every container of *pod*, init containers first.

        Containers reuse the ids of ordinary init containers before them, but not those of sidecars. Containers in
        *running* have their devices already.
        Raises: PluginError with the kubelet's text. Allocated devices are freed once the Pod is not active.
        """
        reusable: dict[str, set[str]] = {}
        spec = pod["spec"]
        for container in [*spec.get("initContainers", ()), *spec["containers"]]:
            if container["name"] not in running:
                await self._allocate_container(pod, container, reusable)
            for resource, ids in self.devices_of(pod["metadata"]["uid"], container["name"]).items():
                if container in spec.get("initContainers", ()) and not is_sidecar(container):
                    reusable.setdefault(resource, set()).update(ids)
                else:
                    reusable.get(resource, set()).difference_update(ids)

    async def prepare(self, pod: Object, container: Container) -> DeviceOptions:
        """
        Call PreStartContainer if a plugin requires it, and return what the devices add to the container.

        Raises: PluginError with the kubelet's text.
        """
        pod_uid, name = pod["metadata"]["uid"], container["name"]
        for resource, count in _limits(container).items():
            client = self._clients.get(resource)
            if count == 0 or not self._is_known(resource):
                continue
            if client is None:
                raise PluginError(f"endpoint not found in cache for a registered resource: {resource}")
            entry = self._entries.get((pod_uid, name, resource))
            if client.options is None or not client.options.pre_start_required:
                if entry is None:
                    await self._allocate_container(pod, container, {})
                continue
            if entry is None:
                raise PluginError(
                    f"no devices found allocated in local cache for pod {pod_uid}, "
                    f"container {name}, resource {resource}"
                )
            await client.pre_start(sorted(entry.ids))
        return self._options(pod_uid, name)

    async def _allocate_container(self, pod: Object, container: Container, reusable: dict[str, set[str]]) -> None:
        pod_uid, name = pod["metadata"]["uid"], container["name"]
        for resource, count in _limits(container).items():
            if not self._is_known(resource):
                continue
            self.free_finished()
            ids = await self._choose(pod_uid, name, resource, count, reusable.get(resource, set()))
            if not ids:
                continue
            client = self._clients.get(resource)
            if client is None:
                raise PluginError(f"unknown Device Plugin {resource}")
            response = await client.allocate(sorted(ids))
            self._entries[pod_uid, name, resource] = Entry(
                pod_uid, name, resource, self._by_numa_node(resource, ids), response.SerializeToString()
            )
            self._write()

    async def _choose(self, pod_uid: str, name: str, resource: str, count: int, reusable: set[str]) -> set[str]:
        """Return the ids to allocate, or none if the container has all its ids."""
        entry = self._entries.get((pod_uid, name, resource))
        owned = entry.ids if entry else frozenset()
        if entry and len(owned) != count:
            raise PluginError(
                f'pod "{pod_uid}" container "{name}" changed request for resource "{resource}" '
                f"from {len(owned)} to {count}"
            )
        healthy = self._healthy.get(resource)
        if healthy is None:
            raise PluginError(f"cannot allocate unregistered device {resource}")
        if not healthy:
            raise PluginError(f"no healthy devices present; cannot allocate unhealthy devices {resource}")
        if not healthy >= owned:
            raise PluginError(
                f"previously allocated devices are no longer healthy; cannot allocate unhealthy devices {resource}"
            )
        if entry or count == 0:
            return set()
        chosen = set(sorted(reusable)[:count])
        needed = count - len(chosen)
        available = healthy - self._in_use(resource)
        if len(available) < needed:
            raise PluginError(
                f"requested number of devices unavailable for {resource}. "
                f"Requested: {needed}, Available: {len(available)}"
            )
        if needed:
            preferred = [id_ for id_ in await self._prefer(resource, available, chosen, count) if id_ in available]
            rest = sorted(available.difference(preferred))
            chosen.update([*preferred, *rest][:needed])
        return chosen

    async def _prefer(self, resource: str, available: set[str], chosen: set[str], count: int) -> list[str]:
        client = self._clients[resource]
        if client.options is None or not client.options.get_preferred_allocation_available:
            return []
        return await client.prefer(sorted(available | chosen), sorted(chosen), count)

    def _options(self, pod_uid: str, name: str) -> DeviceOptions:
        environment: dict[str, str] = {}
        mounts: dict[str, Mount] = {}
        devices: dict[str, None] = {}
        for entry in self._entries.values():
            if (entry.pod_uid, entry.container) != (pod_uid, name):
                continue
            response = api.ContainerAllocateResponse.FromString(entry.response)
            for variable, value in response.envs.items():
                environment.setdefault(variable, value)
            for mount in response.mounts:
                mounts.setdefault(mount.container_path, (mount.container_path, mount.host_path, mount.read_only))
            devices.update((device.name, None) for device in response.cdi_devices)
            for key, value in response.annotations.items():
                if key.startswith(ANNOTATION_PREFIX):
                    devices.update((device, None) for device in value.split(","))
        return DeviceOptions(environment, tuple(mounts.values()), tuple(devices))

    def _by_numa_node(self, resource: str, ids: set[str]) -> dict[int, tuple[str, ...]]:
        found: dict[int, tuple[str, ...]] = {}
        for id_ in sorted(ids):
            device = self._devices.get(resource, {}).get(id_)
            nodes = [node.ID for node in device.topology.nodes] if device is not None else []
            for node in nodes or [WITHOUT_TOPOLOGY]:
                found[node] = (*found.get(node, ()), id_)
        return found

    def _in_use(self, resource: str) -> set[str]:
        return {id_ for entry in self._entries.values() if entry.resource == resource for id_ in entry.ids}

    def _is_known(self, resource: str) -> bool:
        return resource in self._healthy or any(entry.resource == resource for entry in self._entries.values())

    def _write(self) -> None:
        write_checkpoint(self.directory, self._entries.values(), self.healthy_devices())


def _limits(container: Container) -> dict[str, int]:
    """Return the whole-number limits. A device cannot be overcommitted, so its request equals its limit."""
    limits = container.get("resources", {}).get("limits", {})
    return {name: int(value) for name, value in limits.items() if "/" in name and str(value).isdigit()}
