"""
Allocate by identity: ask the kubelet which container owns the granted replicas.

Allocate cannot know the container, so it answers with a CDI device name made for this answer. When the kubelet calls
PreStartContainer, its checkpoint says which container got that answer. Only then are the container's shares read from
its Pod and written into the CDI spec that the runtime is about to read. The kubelet's checkpoint is the only record
between the two calls, so this process may restart in between.
Must never give a container the shares of another: if anything is unclear, the call fails and the kubelet retries.
Neighbours: `owner` and `pods` decide, `driver_cdi` has the driver's part, `cdi_files` and `files` write, `calls`
makes this.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hami_device_plugin.adapters import cdi_files
from hami_device_plugin.adapters.files import host_files_of, make_world_writable
from hami_device_plugin.adapters.kube import NodeKube
from hami_device_plugin.adapters.mps.daemon import daemon_problem
from hami_device_plugin.adapters.nvml.mig import MigNvml
from hami_device_plugin.adapters.regions import prepare_region, write_limits
from hami_device_plugin.decide.allocate.allocation import (
    NO_CORE_LIMIT,
    Container,
    Grant,
    GrantPolicy,
    Library,
    allocate,
    check_count,
    directory_name,
    granted_uuids,
    region_file,
    region_in_container,
    shared_limits_directory,
    without_library,
)
from hami_device_plugin.decide.allocate.cdi import spec as cdi
from hami_device_plugin.decide.allocate.cdi.driver import DriverSpec
from hami_device_plugin.decide.allocate.container_limits import (
    NO_LIMIT_PERCENT,
    ContainerLimits,
    MpsError,
    container_limits,
    has_whole_devices,
    thread_percentage,
    with_mps,
)
from hami_device_plugin.decide.allocate.namespaces import gets_namespace, namespace_percent, with_namespace
from hami_device_plugin.decide.allocate.owner import contradiction, named, owner
from hami_device_plugin.decide.allocate.pods import check_unprivileged, granted_shares
from hami_device_plugin.decide.inventory import is_instance
from hami_device_plugin.decide.mig.grant import GrantedInstance, instance_grant
from hami_device_plugin.decide.probe.enforcement import EnforcementError, MpsDaemon, MpsServer
from hami_device_plugin.serve.allocate.batch import Batch
from hami_device_plugin.serve.allocate.kubelet_records import KubeletRecords
from hami_device_plugin.serve.allocate.last_line import LastLine
from hami_device_plugin.serve.allocate.served_node import ServedNode
from hami_device_plugin.serve.mig.instances import Realize
from hami_device_plugin.serve.namespaces import Namespaces
from hami_device_plugin.serve.probe.driver_cdi import DriverCdi
from hamicommon.errors import HamiError
from hamicommon.model import ContainerShares, Share
from hamicommon.pod import reading
from hamicommon.pod.reading import Pod
from hamicommon.pod.variables import CORE_POLICY
from hamicommon.runtime.host.records import IN_NAMESPACE, UNPRELOADED, record
from hamicommon.wire.limits_file import encode_limits_file

NOTICE_SECONDS = 0.005
"""
How long a runtime gets to notice a changed spec before the kubelet is answered.

containerd notices by inotify, and reads the spec some 10 ms after the answer. If it has not noticed a new spec by then,
it rejects the container, and the kubelet retries. Only a container that restarts can read an older spec under its
device's name, and that spec has the same shares.
"""


class IdentityError(HamiError):
    """A container cannot get its shares now."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """What one container gets, before it is written."""

    device: str
    """The name of its CDI device."""
    container: Container
    shares: ContainerShares
    instances: Sequence[GrantedInstance]
    """Its MIG instances, if its shares are such."""
    driver: DriverSpec | None
    limits: ContainerLimits
    """How it is limited, unless its shares are MIG instances."""
    namespace: str = ""
    """That of MPS by which its compute is limited; empty if it has none."""
    has_host_users: bool = True
    """False if the container has a user namespace, in which no hook may change a file of the host."""

    @property
    def region(self) -> str:
        """The name of the region file without its ending."""
        return cdi.region_name(self.device)

    @property
    def has_library(self) -> bool:
        """Whether it gets the library, and so a region."""
        return self.limits.has_library and not self.instances

    @property
    def is_checked(self) -> bool:
        """Whether the runtime marks the region when it applies the edits: that needs a hook, and a region."""
        return self.driver is not None and self.has_library and self.has_host_users


class IdentityAllocator:
    """Answers Allocate and PreStartContainer for one resource on one Node."""

    def __init__(
        self,
        served: ServedNode,
        *,
        kubelet: KubeletRecords,
        pods: NodeKube,
        last_line: LastLine,
        driver: DriverCdi,
        mig: MigNvml,
        instances: Realize | None,
        namespaces: Namespaces | None,
    ) -> None:
        """
        Answer by *served*.

        *instances* are None unless shares are MIG instances, *namespaces* unless MPS limits compute by them.
        """
        self._served = served
        self._policy = served.policy
        self._kubelet = kubelet
        self._pods = pods
        self._last_line = last_line
        self._driver = driver
        self._mig = mig
        self._instances = instances
        self._namespaces = namespaces
        self._write = Batch(self._prepare)

    async def allocate(self, requests: Sequence[Sequence[str]]) -> tuple[Grant, ...]:
        """
        Return a grant for each container, with a new CDI device name and no device.

        A runtime that ignores CDI therefore gives the container none.

        Raises:
            SeveralReplicasError: the policy allows a container one replica, and one asks for several.
        """
        for replicas in requests:
            check_count(replicas, self._policy)
        return tuple(cdi.answer(cdi.new_device(), self._policy) for _ in requests)

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
        shares = granted_shares(pod, self._served.name, self._served.vendor)
        self._last_line.check(pod, entries, self._served.devices)
        prepared = [await self._decided(pod, container, device, shares, replicas) for container, device in devices]
        if await self._write((pod, prepared)):
            await asyncio.sleep(NOTICE_SECONDS)
        for each in prepared:
            if each.is_checked:
                self._driver.expect(pod, each.container.name, self._region_file(each))
        return pod

    def gets_library(self, pod: Pod, shares: ContainerShares) -> bool:
        """Return whether a container of *pod* with *shares* gets the library; False if it cannot start."""
        try:
            return not any(is_instance(share.uuid) for share in shares) and self.limits(pod, shares).has_library
        except EnforcementError:
            return False

    def limits(self, pod: Pod, shares: ContainerShares) -> ContainerLimits:
        """
        Return how a container of *pod* with *shares* is limited.

        Raises:
            EnforcementError: its Pod demands what the Node cannot do.
        """
        return container_limits(
            shares,
            pod.annotations,
            self._served.enforcement,
            self._served.memory_bytes,
            is_oversubscribed=self._policy.is_oversubscribed,
            margin_mib=self._served.memory_margin_mib,
        )

    async def _decided(
        self, pod: Pod, container: str, device: str, shares: Mapping[str, ContainerShares], replicas: frozenset[str]
    ) -> Prepared:
        """Return what *container* gets under the CDI device *device*."""
        granted = self._checked(pod, container, shares, replicas)
        try:
            uuids = await self._instances(pod, container, granted) if self._instances else ()
            driver = await self._driver.part(uuids or granted_uuids(granted))
            instances = await self._mig.granted(uuids, self._policy)
            limits = self.limits(pod, granted)
            namespace = "" if instances else await self._namespace(pod, container, granted)
        except HamiError as error:
            raise IdentityError(f"Pod {pod}, container {container}: {error}") from error
        found = self._container(pod, container)
        return Prepared(device, found, granted, instances, driver, limits, namespace, pod.has_host_users)

    def namespace_percent(self, container: reading.Container, shares: Sequence[Share]) -> int | None:
        """
        Return the percentage of the namespace of *container* with *shares*; None if it has none.

        Raises:
            MpsError: MPS must limit its compute, and cannot.
        """
        server = self._served.enforcement.mps
        if not isinstance(server, MpsServer) or has_whole_devices(shares, self._served.memory_bytes):
            return None
        if not gets_namespace(container, server):
            return None
        return namespace_percent(shares, container, is_unlimited=self._policy.is_core_limit_disabled)

    async def _namespace(self, pod: Pod, name: str, shares: ContainerShares) -> str:
        """
        Return the namespace in which the container *name* uses MPS; empty if it has none.

        Raises:
            HamiError: MPS must limit its compute, and does not.
        """
        if self._namespaces is None:
            await self._check_daemon(shares)
            return ""
        container = next(found for found in pod.containers if found.name == name)
        percent = self.namespace_percent(container, shares)
        return await self._namespaces.prepare(pod, name, granted_uuids(shares), percent)

    async def _check_daemon(self, shares: ContainerShares) -> None:
        """
        Check that a container with *shares* can be a client of the operator's daemon, where that limits compute.

        Raises:
            MpsError: it cannot, so it would have no limit, or not start.
        """
        daemon = self._served.enforcement.mps
        if not isinstance(daemon, MpsDaemon):
            return
        thread_percentage(shares)
        problem = await asyncio.to_thread(daemon_problem, daemon.pipe, daemon.shared_memory)
        if problem is not None:
            raise MpsError(f"MPS limits compute on this Node, and {problem}")

    def _container(self, pod: Pod, name: str) -> Container:
        for found in pod.containers:
            if found.name == name:
                return Container(pod.uid, name, is_control_disabled=found.is_control_disabled, choices=found.choices)
        return Container(pod.uid, name)

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

    def _region_file(self, prepared: Prepared) -> Path:
        return Path(region_file(self._policy.hook_path, prepared.container, prepared.region))

    def _prepare(self, containers: tuple[Pod, Sequence[Prepared]]) -> bool:
        """Write what each container of a Pod needs on the host, its spec last, and return whether a spec changed."""
        pod, prepared = containers
        library = self._served.library()
        changed = False
        for each in prepared:
            with host_files_of(f"Pod {pod}, container {each.container.name} cannot be prepared"):
                if library.is_hamis:
                    make_world_writable(Path(self._policy.lock_directory))
                grant = self._grant(each, library)
                self._record(each)
                if each.has_library:
                    prepare_region(self._region_file(each))
                if grant.limits:
                    write_limits(Path(grant.limits_directory), encode_limits_file(grant.limits))
                changed |= cdi_files.write_spec(self._served.cdi_root, pod.uid, each.device, self._spec(each, grant))
        return changed

    def _record(self, prepared: Prepared) -> None:
        """Record for the monitor who limits a container with shares. Nobody limits what is an instance."""
        name = directory_name(prepared.container.pod_uid, prepared.container.name)
        containers = Path(self._policy.hook_path) / "vgpu/containers"
        record(containers, UNPRELOADED, name, is_so=not (prepared.has_library or prepared.instances))
        record(containers, IN_NAMESPACE, name, is_so=bool(prepared.namespace))

    def _spec(self, prepared: Prepared, grant: Grant) -> dict[str, Any]:
        """Return the spec of one container: the driver's part, then ours."""
        driver = prepared.driver or DriverSpec()
        edits = driver.common + cdi.grant_edits(grant)
        if prepared.is_checked:
            edits += cdi.mark_edits(self._driver.hook, region_in_container(self._policy, prepared.region))
        if not prepared.instances:
            edits = cdi.with_limits(edits, self._served.limit_hook, prepared.limits.by_driver)
        return cdi.spec(prepared.device, edits, driver.version)

    def _grant(self, prepared: Prepared, library: Library) -> Grant:
        if prepared.instances:
            return instance_grant(prepared.instances, self._policy)
        mps = self._served.enforcement.mps
        if mps is None or (isinstance(mps, MpsServer) and not prepared.namespace):
            return self._share_grant(prepared, library, self._policy)
        # Both limits at once would be a part of a part.
        grant = self._share_grant(prepared, library, replace(self._policy, is_core_limit_disabled=True))
        if isinstance(mps, MpsServer):
            return with_namespace(grant, prepared.namespace, mps)
        is_author_unlimited = prepared.container.choices.get(CORE_POLICY) == NO_CORE_LIMIT
        is_limited = not (self._policy.is_core_limit_disabled or is_author_unlimited)
        return with_mps(grant, thread_percentage(prepared.shares) if is_limited else NO_LIMIT_PERCENT, mps)

    def _share_grant(self, prepared: Prepared, library: Library, policy: GrantPolicy) -> Grant:
        if not prepared.has_library:
            return without_library(prepared.shares, policy)
        return allocate(
            prepared.shares,
            prepared.container,
            policy,
            library=library,
            region=prepared.region,
            is_private=not self._is_under_the_lock(prepared),
        )

    def _is_under_the_lock(self, prepared: Prepared) -> bool:
        """
        Return whether Allocate gave the container its directories already.

        The runtime may know no CDI and use that answer alone, so the spec has the same directories.
        """
        return Path(shared_limits_directory(self._policy.hook_path, prepared.container)).is_dir()
