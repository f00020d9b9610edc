"""
Allocate by identity: ask the kubelet which container owns the granted replicas.

Allocate cannot know the container, so it answers with a CDI device name made for this answer. When the kubelet calls
PreStartContainer, its checkpoint says which container got that answer. Only then are the container's shares read from
its Pod and written into the CDI spec that the runtime is about to read. The kubelet's checkpoint is the only record
between the two calls, so this process may restart in between.
Must never give a container the shares of another: if anything is unclear, the call fails and the kubelet retries.
Neighbours: `owner` and `pods` decide, `preparation` writes, `calls` makes this.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hami_device_plugin.adapters.kube import NodeKube
from hami_device_plugin.decide.allocate.allocation import Container, Grant, check_count
from hami_device_plugin.decide.allocate.cdi import spec as cdi
from hami_device_plugin.decide.allocate.owner import Allocated, contradiction, named, owner
from hami_device_plugin.decide.allocate.pods import check_unprivileged, granted_shares
from hami_device_plugin.serve.allocate.batch import Batch
from hami_device_plugin.serve.allocate.kubelet_records import KubeletRecords
from hami_device_plugin.serve.allocate.last_line import LastLine
from hami_device_plugin.serve.allocate.preparation import NOTICE_SECONDS, Prepared, Preparer, Recipient
from hami_device_plugin.serve.allocate.served_node import ServedNode
from hami_device_plugin.serve.mig.instances import Realize
from hami_device_plugin.serve.probe.driver_cdi import DriverCdi
from hamicommon.errors import HamiError
from hamicommon.model import ContainerShares
from hamicommon.pod.reading import Pod


@dataclass(frozen=True, slots=True)
class Wanted:
    """A container that is to be prepared."""

    container: str
    devices: tuple[str, ...]
    """Its CDI devices. Each of them carries all of its shares."""
    replicas: frozenset[str]
    """What the kubelet, or kube-scheduler, gave it: as many as it was granted shares."""
    is_of_claim: bool = False
    """Whether it is prepared once for all of its runs, and not before each start."""


class IdentityError(HamiError):
    """A container cannot get its shares now."""


class IdentityAllocator:
    """Answers Allocate and PreStartContainer for one resource on one Node."""

    def __init__(
        self,
        served: ServedNode,
        preparer: Preparer,
        *,
        kubelet: KubeletRecords,
        pods: NodeKube,
        last_line: LastLine,
        driver: DriverCdi,
        instances: Realize | None,
    ) -> None:
        """Answer by *served*; *instances* are None unless shares are MIG instances."""
        self._served = served
        self._preparer = preparer
        self._kubelet = kubelet
        self._pods = pods
        self._last_line = last_line
        self._driver = driver
        self._instances = instances
        self._write = Batch(self._prepare)

    async def allocate(self, requests: Sequence[Sequence[str]]) -> tuple[Grant, ...]:
        """
        Return a grant for each container, with a new CDI device name and no device.

        A runtime that ignores CDI therefore gives the container none.

        Raises:
            SeveralReplicasError: the policy allows a container one replica, and one asks for several.
        """
        for replicas in requests:
            check_count(replicas, self._served.policy)
        return tuple(cdi.answer(cdi.new_device(), self._served.policy) for _ in requests)

    async def pre_start(self, replicas: frozenset[str]) -> Pod | None:
        """
        Prepare the container that has *replicas* and return its Pod; None if it was not allocated by identity.

        Raises:
            HamiError: it cannot be prepared now; the message names the Pod, the container and what is missing.
        """
        entries = await self._kubelet.entries()
        found = owner(replicas, self._served.resource, entries)
        devices = [(entry.container, entry.device) for entry in found if entry.device]
        if not devices:
            return None
        pod = await self._pods.wait_pod(found[0].pod_uid)
        problem = contradiction(replicas, pod.namespace, pod.name, await self._kubelet.listed())
        if problem:
            raise IdentityError(problem)
        await self.prepare(pod, entries, [Wanted(container, (device,), replicas) for container, device in devices])
        return pod

    async def prepare(self, pod: Pod, entries: Sequence[Allocated], wanted: Sequence[Wanted]) -> None:
        """
        Prepare the *wanted* containers of *pod*; *entries* are the kubelet's checkpoint.

        Raises:
            HamiError: one cannot be prepared now; the message names the Pod, the container and what is missing.
        """
        shares = granted_shares(pod, self._served.name, self._served.vendor)
        self._last_line.check(pod, entries, self._served.devices)
        prepared = [await self._decided(pod, each, shares) for each in wanted]
        if await self._write(prepared):
            await asyncio.sleep(NOTICE_SECONDS)
        for each in prepared:
            if each.is_checked:
                self._driver.expect(pod, each.container.name, self._preparer.region_file(each))

    async def _decided(self, pod: Pod, wanted: Wanted, shares: Mapping[str, ContainerShares]) -> Prepared:
        """Return what a container gets under its CDI devices."""
        container = wanted.container
        granted = self._checked(pod, container, shares, wanted.replicas)
        recipient = _recipient(pod, wanted)
        try:
            instances = await self._instances(pod, container, granted) if self._instances else ()
            return await self._preparer.decide(recipient, granted, instances)
        except HamiError as error:
            raise IdentityError(f"{recipient.shown}: {error}") from error

    def _checked(
        self, pod: Pod, container: str, shares: Mapping[str, ContainerShares], replicas: frozenset[str]
    ) -> ContainerShares:
        """Return the shares of *container*, as many as *replicas* and all of offered devices."""
        check_unprivileged(pod, container)
        granted = shares.get(container, ())
        if len(granted) != len(replicas):
            raise IdentityError(
                f"Pod {pod}, container {container}: annotation {self._served.vendor.allocated_key} grants "
                f"{len(granted)} devices, the kubelet granted {len(replicas)} ({named(replicas)})"
            )
        unknown = [share.uuid for share in granted if share.uuid not in self._served.devices]
        if unknown:
            raise IdentityError(
                f"Pod {pod}, container {container}: granted device {unknown[0]} is not one of Node {self._served.name}"
            )
        return granted

    def _prepare(self, prepared: Sequence[Prepared]) -> bool:
        """Write what each container of a Pod needs on the host, and return whether a spec changed."""
        changes = [self._preparer.write(each) for each in prepared]
        return any(changes)


def _recipient(pod: Pod, wanted: Wanted) -> Recipient:
    name = wanted.container
    found = tuple(one for one in pod.containers if one.name == name)
    container = Container(pod.uid, name)
    for one in found:
        container = Container(pod.uid, name, is_control_disabled=one.is_control_disabled, choices=one.choices)
    shown = f"Pod {pod}, container {name}"
    return Recipient(
        container, shown, wanted.devices, found, pod.annotations, pod.has_host_users, is_of_claim=wanted.is_of_claim
    )
