"""
Prepare the host for who gets shares: a container, or all containers that use a request of a ResourceClaim.

Owns what is written for a grant, and in which order: records, region, limits, and the CDI specs last. Whose shares they
are is found elsewhere: by the annotation of a Pod (`identity`), or by the allocation of a claim (`serve.dra`).
Neighbours: `allocation` and `container_limits` decide, `driver_cdi` has the driver's part, `cdi_files` and `regions`
write, `calls` makes this.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hami_device_plugin.adapters import cdi_files
from hami_device_plugin.adapters.files import host_files_of, make_world_writable
from hami_device_plugin.adapters.mps.daemon import daemon_problem
from hami_device_plugin.adapters.nvml.mig import MigNvml
from hami_device_plugin.adapters.regions import keep_region, prepare_region, write_limits
from hami_device_plugin.decide.allocate.allocation import (
    CONTAINERS,
    NO_CORE_LIMIT,
    Container,
    Grant,
    GrantPolicy,
    Library,
    allocate,
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
from hami_device_plugin.decide.inventory import is_instance
from hami_device_plugin.decide.mig.grant import GrantedInstance, instance_grant
from hami_device_plugin.decide.probe.enforcement import EnforcementError, MpsDaemon, MpsServer
from hami_device_plugin.serve.allocate.served_node import ServedNode
from hami_device_plugin.serve.namespaces import Namespaces
from hami_device_plugin.serve.probe.driver_cdi import DriverCdi
from hamicommon.dra.grants import CLAIMS
from hamicommon.model import ContainerShares, Share
from hamicommon.pod import reading
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


@dataclass(frozen=True, slots=True)
class Recipient:
    """Who gets shares."""

    container: Container
    shown: str
    """The name that messages use."""
    devices: tuple[str, ...]
    """The names of the CDI devices of which it has one or more. Each of them carries all of its shares."""
    containers: tuple[reading.Container, ...] = ()
    """The containers of Pods that run with the shares, as far as they are known."""
    annotations: Mapping[str, str] = field(default_factory=dict)
    """Those of its Pods."""
    has_host_users: bool = True
    """False if a container has a user namespace, in which no hook may change a file of the host."""
    is_of_claim: bool = False
    """Whether the kubelet asks once for all runs of its containers, and again while they run."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """What a recipient gets, before it is written."""

    recipient: Recipient
    shares: ContainerShares
    instances: Sequence[GrantedInstance]
    """Its MIG instances, if its shares are such."""
    driver: DriverSpec | None
    limits: ContainerLimits
    """How it is limited, unless its shares are MIG instances."""
    namespace: str = ""
    """That of MPS by which its compute is limited; empty if it has none."""

    @property
    def container(self) -> Container:
        """The container."""
        return self.recipient.container

    @property
    def region(self) -> str:
        """The name of the region file without its ending."""
        return cdi.region_name(self.recipient.devices[0])

    @property
    def has_library(self) -> bool:
        """Whether it gets the library, and so a region."""
        return self.limits.has_library and not self.instances

    @property
    def is_checked(self) -> bool:
        """
        Whether the runtime marks the region when it applies the edits: that needs a hook, and a region for each start.
        """
        is_each_start = not self.recipient.is_of_claim
        return self.driver is not None and self.has_library and self.recipient.has_host_users and is_each_start


class Preparer:
    """What is prepared on one Node."""

    def __init__(
        self, served: ServedNode, *, driver: DriverCdi, mig: MigNvml, namespaces: Namespaces | None = None
    ) -> None:
        """Prepare by *served*; *namespaces* are None unless MPS limits compute by them."""
        self._served = served
        self._policy = served.policy
        self._driver = driver
        self._mig = mig
        self._namespaces = namespaces

    def limits(self, annotations: Mapping[str, str], shares: ContainerShares) -> ContainerLimits:
        """
        Return how a container with *shares* is limited, whose Pod has *annotations*.

        Raises:
            EnforcementError: its Pod demands what the Node cannot do.
        """
        return container_limits(
            shares,
            annotations,
            self._served.enforcement,
            self._served.memory_bytes,
            is_oversubscribed=self._policy.is_oversubscribed,
            margin_mib=self._served.memory_margin_mib,
        )

    def gets_library(self, annotations: Mapping[str, str], shares: ContainerShares) -> bool:
        """Return whether a container with *shares* gets the library; False if it cannot start."""
        try:
            return not any(is_instance(share.uuid) for share in shares) and self.limits(annotations, shares).has_library
        except EnforcementError:
            return False

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

    async def decide(self, recipient: Recipient, shares: ContainerShares, instances: Sequence[str] = ()) -> Prepared:
        """
        Return what *recipient* gets with *shares*, which are the MIG *instances*, by UUID, if there are any.

        Raises:
            HamiError: it cannot be prepared now.
        """
        driver = await self._driver.part(instances or granted_uuids(shares))
        granted = await self._mig.granted(instances, self._policy)
        limits = self.limits(recipient.annotations, shares)
        namespace = "" if granted else await self._namespace(recipient, shares)
        return Prepared(recipient, shares, granted, driver, limits, namespace)

    def write(self, prepared: Prepared) -> bool:
        """
        Write what a recipient needs on the host, its specs last, and return whether a spec changed.

        Raises:
            HostFileError: a file of the host cannot be used.
        """
        library = self._served.library()
        with host_files_of(f"{prepared.recipient.shown} cannot be prepared"):
            if library.is_hamis:
                make_world_writable(Path(self._policy.lock_directory))
            grant = self._grant(prepared, library)
            self._record(prepared)
            if prepared.has_library:
                prepare = keep_region if prepared.recipient.is_of_claim else prepare_region
                prepare(self.region_file(prepared))
            if grant.limits:
                write_limits(Path(grant.limits_directory), encode_limits_file(grant.limits))
            changes = [
                cdi_files.write_spec(self._spec_path(prepared, device), self._spec(prepared, device, grant))
                for device in prepared.recipient.devices
            ]
        return any(changes)

    def region_file(self, prepared: Prepared) -> Path:
        """Return the region file on the host."""
        return Path(region_file(self._policy.hook_path, prepared.container, prepared.region))

    async def _namespace(self, recipient: Recipient, shares: ContainerShares) -> str:
        """
        Return the namespace in which *recipient* uses MPS; empty if it has none.

        Raises:
            HamiError: MPS must limit its compute, and does not.
        """
        if self._namespaces is None:
            await self._check_daemon(shares)
            return ""
        percents = [self.namespace_percent(container, shares) for container in recipient.containers]
        known = [percent for percent in percents if percent is not None]
        percent = min(known) if known and len(known) == len(percents) else None
        owner = recipient.container
        return await self._namespaces.prepare(owner.pod_uid, owner.name, granted_uuids(shares), percent)

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

    def _record(self, prepared: Prepared) -> None:
        """Record for the monitor who limits a recipient's shares. Nobody limits what is an instance."""
        name = directory_name(prepared.container.pod_uid, prepared.container.name)
        folder = Path(self._policy.hook_path) / "vgpu" / (CLAIMS if prepared.container.is_request else CONTAINERS)
        record(folder, UNPRELOADED, name, is_so=not (prepared.has_library or prepared.instances))
        record(folder, IN_NAMESPACE, name, is_so=bool(prepared.namespace))

    def _spec_path(self, prepared: Prepared, device: str) -> Path:
        of = cdi_files.claim_spec_path if prepared.container.is_request else cdi_files.spec_path
        return of(self._served.cdi_root, prepared.container.pod_uid, device)

    def _spec(self, prepared: Prepared, device: str, grant: Grant) -> dict[str, Any]:
        """Return the spec of *device*: the driver's part, then ours."""
        driver = prepared.driver or DriverSpec()
        edits = driver.common + cdi.grant_edits(grant)
        if prepared.is_checked:
            edits += cdi.mark_edits(self._driver.hook, region_in_container(self._policy, prepared.region))
        if not prepared.instances:
            edits = cdi.with_limits(edits, self._served.limit_hook, prepared.limits.by_driver)
        return cdi.spec(device, edits, driver.version)

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
