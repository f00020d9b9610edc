"""
Create, adopt and destroy the MIG instances of this Node's Pods, in mode `mig`.

Owns the journal and every change of an instance. The journal is written before the driver is asked, so the next process
finishes or undoes what this one began. One change at a time: `decide.mig` decides from the journal, the driver and the
Pods as they are at that moment.
Must never destroy an instance of a Pod that has not ended; the API server is asked again before each.
Neighbours: `serve.allocate` asks for a container's instances, `probe.devices` offers what the GPUs offer.
"""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Protocol

from hami_device_plugin.adapters.mig_journal import JournalFile
from hami_device_plugin.adapters.nvml.mig import MigNvml
from hami_device_plugin.decide.allocate.owner import Allocated
from hami_device_plugin.decide.allocate.pods import AllocationError
from hami_device_plugin.decide.inventory import SharingPolicy
from hami_device_plugin.decide.mig.claims import Claim, Claims, owner_of, read_claims, reservations, with_identities
from hami_device_plugin.decide.mig.geometry import Gpu, GpuProfile, Instance, MigMode
from hami_device_plugin.decide.mig.journal import Entry, Journal, State, with_entry, without
from hami_device_plugin.decide.mig.offer import Offer, offer
from hami_device_plugin.decide.mig.realize import CreationError, PlacementError, realize
from hami_device_plugin.decide.mig.repair import blocked_placements, described, identified, repair
from hami_device_plugin.decide.mig.startup import other_devices, preparation
from hami_device_plugin.serve.context import Context
from hami_device_plugin.serve.mig.reports import MigReports
from hamicommon.errors import HamiError
from hamicommon.model import ContainerShares, MigPlacement
from hamicommon.pod.reading import Pod
from hamicommon.vendors.nvidia import MigProfileRule
from hamicommon.wire import keys

REPAIR_SECONDS = 5.0
"""HAMi's own pause between two checks for ended Pods."""
PREPARE_SECONDS = 30.0
ALONE_SECONDS = 10.0
"""How long the other clients of the driver get to let go of it."""
ALONE_PAUSE_SECONDS = 0.5
ASK_AGAIN_SECONDS = 600.0

Realize = Callable[[Pod, str, ContainerShares], Awaitable[Sequence[str]]]
"""Turns the shares of a Pod's container into MIG instances, one for each, and returns their UUIDs."""


class MigDriver(Protocol):
    """What the driver does; every method raises `HamiError` if it fails."""

    async def read_gpus(self) -> tuple[Gpu, ...]:
        """Return every GPU that answers."""

    def clients(self) -> str:
        """Name the other processes that have the driver open, as far as they are seen."""

    async def switch_on(self, gpu_uuid: str) -> MigMode:
        """Switch MIG on, and return the mode afterwards."""

    async def create(self, gpu_uuid: str, profile: GpuProfile, placement: MigPlacement) -> Instance:
        """Create an instance, or nothing."""

    async def destroy(self, gpu_uuid: str, gpu_instance_id: int) -> None:
        """Destroy an instance; it may be gone already."""


class JournalStore(Protocol):
    """Where the journal is kept; every method raises `HamiError` if it fails."""

    def read(self) -> Journal:
        """Return the journal of this boot."""

    def write(self, journal: Journal) -> None:
        """Replace it."""


class MigPods(Protocol):
    """The Pods of the Node and its annotations at the API server; every method raises `HamiError` if it fails."""

    @property
    def pods(self) -> Mapping[str, Pod]:
        """Every Pod bound to this Node, as last seen, by UID."""

    async def has_ended(self, uid: str, namespace: str, name: str) -> bool:
        """Ask the API server whether a Pod is gone or has ended."""

    async def change_mig_allocations(self, pod: Pod, change: Callable[[str], str]) -> None:
        """Apply *change* to the MIG annotation of *pod*, on the version that was read."""

    async def announce_mig_change(self, reason: str | None) -> None:
        """Tell the Node's other NVML clients why they must let go of the driver; None: they need not any more."""


class Allocations(Protocol):
    """What the kubelet has given to containers."""

    def entries(self) -> Sequence[Allocated]:
        """Return it. Raises: HamiError."""


@dataclass(frozen=True, slots=True)
class MigPolicy:
    """Which instances there may be."""

    rules: Sequence[MigProfileRule]
    """The allowlist."""
    allocated_key: str
    """The annotation of a Pod's shares."""
    sharing: SharingPolicy
    """It names the GPUs that are left out."""


@contextmanager
def open_instances(context: Context) -> Iterator["MigInstances"]:
    """
    Lock the Node's journal for a block, and yield its instances.

    Raises:
        JournalError: another process has it, or it cannot be read.
    """
    config = context.config
    journal = JournalFile(config.vgpu_directory)
    reports = MigReports(context.metrics, context.view.report)
    policy = MigPolicy(config.mig_rules, context.vendor.allocated_key, config.sharing)
    try:
        yield MigInstances(MigNvml(context.nvml), journal, context.view, context.checkpoint, reports, policy)
    finally:
        reports.hide()
        journal.close()


class MigInstances:
    """The MIG instances of one Node, for one session."""

    def __init__(
        self,
        driver: MigDriver,
        store: JournalStore,
        api: MigPods,
        allocations: Allocations,
        reports: MigReports,
        policy: MigPolicy,
    ) -> None:
        """Manage the instances by *policy*."""
        self._driver = driver
        self._store = store
        self._api = api
        self._allocations = allocations
        self._reports = reports
        self._policy = policy
        self._journal: Journal = store.read()
        self._one_at_a_time = asyncio.Lock()
        self._asked_at: dict[str, float] = {}
        """When the other clients were last asked to let go for a GPU."""
        self.offers: Mapping[str, Offer] = {}
        """What each ready GPU offers, by UUID."""
        self.problems: Mapping[str, str] = {}
        """Why a GPU is not offered, by UUID."""

    async def prepare(self) -> bool:
        """
        Repair, make every GPU ready that can be, and return whether the offers changed.

        Raises:
            HamiError: the driver or the journal cannot be used.
        """
        async with self._one_at_a_time:
            # A process that was killed while it switched a GPU may have left its announcement.
            await self._api.announce_mig_change(None)
            gpus = await self._repaired()
            ready: dict[str, Gpu] = {}
            problems: dict[str, str] = {}
            for gpu in gpus.values():
                if self._policy.sharing.excludes(gpu.uuid, gpu.index):
                    continue
                problem = await self._made_ready(gpu)
                if problem is None:
                    ready[gpu.uuid] = gpu
                else:
                    problems[gpu.uuid] = f"{gpu}: {problem}"
            gpus = await self._gpus()
            claims = self._claims()
            offers = {
                uuid: offer(gpus[uuid], self._policy.rules, blocked_placements(gpus[uuid], self._journal, claims))
                for uuid in ready
                if uuid in gpus
            }
            self._reports.not_ready(problems)
            has_changed = offers != self.offers
            self.offers, self.problems = offers, problems
            self._reports.show(offers, self._journal)
            return has_changed

    async def realized(self, pod: Pod, container: str, shares: ContainerShares) -> tuple[str, ...]:
        """
        Return the UUIDs of the instances of *container*, one for each of *shares*; create those that do not exist.

        The Pod's annotation names them before this returns. If one cannot be created, those that this call created are
        destroyed.

        Raises:
            HamiError: an instance cannot be created, or the Pod cannot be written; the kubelet retries.
        """
        try:
            return await self._realized(pod, container, shares)
        except HamiError as error:
            if isinstance(error, PlacementError | AllocationError) and not isinstance(error, CreationError):
                self._reports.failed("create", is_refused=True)
            self._reports.not_created(f"Pod {pod}, container {container}", error)
            raise

    async def _realized(self, pod: Pod, container: str, shares: ContainerShares) -> tuple[str, ...]:
        wanted = reservations(pod, container, shares, self._policy.allocated_key)
        async with self._one_at_a_time:
            created: list[Entry] = []
            entries: list[Entry] = []
            try:
                for allocation in wanted:
                    gpus = await self._repaired()
                    claim = Claim(owner_of(pod), allocation)
                    how = realize(claim, self._journal, gpus.get(allocation.gpu_uuid))
                    if how.use is not None:
                        entries.append(how.use)
                        continue
                    for old in how.destroy:
                        await self._destroy(old, "another container of its Pod gets that place")
                    assert how.create is not None
                    entry = await self._create(claim, how.create)
                    created.append(entry)
                    entries.append(entry)
            except HamiError:
                for entry in reversed(created):
                    await self._try_to_destroy(entry, "another instance of its container cannot be created")
                raise
            named = {
                (allocation.container_index, allocation.device_index): entry
                for allocation, entry in zip(wanted, entries, strict=True)
            }
            text = pod.annotations.get(keys.MIG_ALLOCATIONS, "")
            if with_identities(text, named) != text:
                await self._api.change_mig_allocations(pod, lambda found: with_identities(found, named))
        return tuple(str(entry.mig_uuid) for entry in entries)

    async def keep(self, report_change: Callable[[], None]) -> None:
        """Destroy the instances of ended Pods and make idle GPUs ready, until cancelled; report changed offers."""
        pause = 0.0
        while True:
            await asyncio.sleep(REPAIR_SECONDS)
            pause += REPAIR_SECONDS
            try:
                if pause >= PREPARE_SECONDS:
                    pause = 0.0
                    if await self.prepare():
                        report_change()
                elif self._is_repair_due():
                    async with self._one_at_a_time:
                        await self._repaired()
            except HamiError as error:
                self._reports.not_up_to_date(error)

    def _is_repair_due(self) -> bool:
        uids = self._claims().pod_uids
        return any(entry.state is not State.LIVE or entry.owner.uid not in uids for entry in self._journal)

    async def _repaired(self) -> dict[str, Gpu]:
        """Carry out what `repair` says, and return the GPUs as they are afterwards."""
        gpus = await self._gpus()
        claims = self._claims()
        plan = repair(self._journal, gpus, claims, self._allocated(claims))
        for entry in plan.adopt:
            self._write(with_entry(self._journal, entry))
            self._reports.changed("adopt", described(entry))
        for entry, reason in plan.forget:
            self._write(without(self._journal, entry))
            self._reports.changed("forget", described(entry), reason)
        has_changed = False
        for entry, reason in plan.destroy:
            owner = entry.owner
            if entry.state is not State.LIVE or await self._api.has_ended(owner.uid, owner.namespace, owner.name):
                has_changed |= await self._try_to_destroy(entry, reason)
        self._reports.left_alone(plan.problems)
        return await self._gpus() if has_changed else gpus

    async def _made_ready(self, gpu: Gpu) -> str | None:
        """Make *gpu* ready, and return why it is not; None if it is."""
        claims = self._claims()
        plan = preparation(gpu, self._policy.rules, self._journal, claims, self._allocated(claims))
        if plan.problem is not None:
            return plan.problem
        try:
            if plan.switch_on:
                return await self._switch_on(gpu)
            for instance in plan.clear:
                await self._driver.destroy(gpu.uuid, instance.id)
                self._reports.changed("clear", f"{instance.mig_uuid} of {gpu}")
        except HamiError as error:
            self._reports.failed("switch-on" if plan.switch_on else "clear")
            return str(error)
        return None

    async def _switch_on(self, gpu: Gpu) -> str | None:
        """Switch MIG on, and return why it is not; None if it is. The monitor lets go of the driver if it has to."""
        mode = await self._driver.switch_on(gpu.uuid)
        is_due = time.monotonic() - self._asked_at.get(gpu.uuid, -math.inf) > ASK_AGAIN_SECONDS
        if mode is not MigMode.ON and is_due:
            self._asked_at[gpu.uuid] = time.monotonic()
            mode = await self._switch_on_alone(gpu)
        if mode is MigMode.ON:
            self._reports.switched_on(gpu)
            return None
        self._reports.failed("switch-on", is_refused=True)
        return (
            f"MIG is {mode.value}, or once no other program holds the driver "
            f"({self._driver.clients() or 'such as DCGM, nvidia-persistenced or another monitor'}); "
            f"to reset it: nvidia-smi --gpu-reset -i {gpu.index}"
        )

    async def _switch_on_alone(self, gpu: Gpu) -> MigMode:
        """Ask the monitor to let go of the driver while this switches MIG on, and return the mode then."""
        mode = MigMode.TURNING_ON
        await self._api.announce_mig_change(f"switching MIG on for {gpu}")
        try:
            async with asyncio.timeout(ALONE_SECONDS):
                while mode is not MigMode.ON:
                    await asyncio.sleep(ALONE_PAUSE_SECONDS)
                    mode = await self._driver.switch_on(gpu.uuid)
        except TimeoutError:
            pass
        finally:
            await self._api.announce_mig_change(None)
        return mode

    def _allocated(self, claims: Claims) -> frozenset[str] | None:
        """Return the device IDs that the kubelet gave to other containers; None if that is unknown."""
        try:
            return other_devices(self._allocations.entries(), claims)
        except HamiError:
            return None

    async def _create(self, claim: Claim, profile: GpuProfile) -> Entry:
        wanted = claim.allocation
        gpu = (await self._gpus())[wanted.gpu_uuid]
        entry = Entry(
            gpu_uuid=wanted.gpu_uuid,
            profile=wanted.profile,
            placement=wanted.placement,
            owner=claim.owner,
            state=State.CREATING,
            before=tuple(found.id for found in gpu.instances),
        )
        self._write(with_entry(self._journal, entry))
        try:
            found = await self._driver.create(wanted.gpu_uuid, profile, wanted.placement)
        except HamiError as error:
            self._reports.failed("create")
            raise CreationError(f"{described(entry)} cannot be created: {error}") from error
        entry = replace(identified(entry, found), state=State.LIVE)
        self._write(with_entry(self._journal, entry))
        self._reports.changed("create", described(entry))
        return entry

    async def _destroy(self, entry: Entry, reason: str) -> None:
        assert entry.gpu_instance_id is not None
        self._write(with_entry(self._journal, replace(entry, state=State.DESTROYING)))
        await self._driver.destroy(entry.gpu_uuid, entry.gpu_instance_id)
        self._write(without(self._journal, entry))
        self._reports.changed("destroy", described(entry), reason)

    async def _try_to_destroy(self, entry: Entry, reason: str) -> bool:
        """Destroy, and return True; an error of the driver is reported, and the next repair tries again."""
        try:
            await self._destroy(entry, reason)
        except HamiError as error:
            self._reports.not_destroyed(entry, reason, error)
            return False
        return True

    async def _gpus(self) -> dict[str, Gpu]:
        return {gpu.uuid: gpu for gpu in await self._driver.read_gpus()}

    def _claims(self) -> Claims:
        return read_claims(list(self._api.pods.values()), self._policy.allocated_key)

    def _write(self, journal: Journal) -> None:
        self._store.write(journal)
        self._journal = journal
        self._reports.show(self.offers, journal)
