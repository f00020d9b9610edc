"""
Create, adopt and destroy the MIG instances of this Node's Pods and ResourceClaims, in mode `mig`.

Owns the journal and every change of an instance. The journal is written before the driver is asked, so the next process
finishes or undoes what this one began. One change at a time: `decide.mig` decides from the journal, the driver,
the Pods and the prepared claims as they are at that moment.
Must never destroy an instance of a Pod that has not ended, or of a claim that is prepared; the API server is asked
again before each, unless the kubelet has said that no container uses a claim.
Neighbours: `serve.allocate` asks for a container's instances, `probe.devices` offers what the GPUs offer.
"""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace

from hami_device_plugin.adapters.mig_journal import JournalFile
from hami_device_plugin.adapters.nvml.mig import MigNvml
from hami_device_plugin.decide.allocate.pods import AllocationError
from hami_device_plugin.decide.inventory import SharingPolicy
from hami_device_plugin.decide.mig.claims import Claim, Claims, owner_of, read_claims, reservations, with_identities
from hami_device_plugin.decide.mig.geometry import Gpu, GpuProfile, MigMode
from hami_device_plugin.decide.mig.journal import Entry, Journal, Owner, State, with_entry, without
from hami_device_plugin.decide.mig.offer import Offer, offer
from hami_device_plugin.decide.mig.realize import CreationError, PlacementError, realize
from hami_device_plugin.decide.mig.repair import blocked_placements, described, identified, occupied_placements, repair
from hami_device_plugin.decide.mig.startup import other_devices, preparation
from hami_device_plugin.serve.context import Context
from hami_device_plugin.serve.mig.outside import Allocations, JournalStore, MigDriver, MigPods, OtherOwners
from hami_device_plugin.serve.mig.prepared import PreparedClaims
from hami_device_plugin.serve.mig.reports import MigReports
from hamicommon.dra.names import DRA
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


class InstanceStaysError(HamiError):
    """An instance that is to go cannot go now."""


@dataclass(frozen=True, slots=True)
class MigPolicy:
    """Which instances there may be."""

    rules: Sequence[MigProfileRule]
    """The allowlist."""
    allocated_key: str
    """The annotation of a Pod's shares."""
    sharing: SharingPolicy
    """It names the GPUs that are left out."""
    is_by_claims: bool = False
    """Whether kube-scheduler places instances, by ResourceClaims."""


@contextmanager
def open_instances(context: Context) -> Iterator["MigInstances"]:
    """
    Open the Node's journal for a block, and yield its instances.

    Raises:
        JournalError: it cannot be opened.
    """
    config = context.config
    journal = JournalFile(config.vgpu_directory)
    reports = MigReports(context.metrics, context.view.report)
    policy = MigPolicy(config.mig_rules, context.vendor.allocated_key, config.sharing, config.node_kind == DRA)
    prepared = PreparedClaims(config.vgpu_directory, context.dra)
    try:
        yield MigInstances(MigNvml(context.nvml), journal, context.view, context.checkpoint, reports, policy, prepared)
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
        prepared: OtherOwners,
    ) -> None:
        """Manage the instances by *policy*."""
        self._driver = driver
        self._store = store
        self._api = api
        self._allocations = allocations
        self._reports = reports
        self._policy = policy
        self._prepared = prepared
        self._journal: Journal = ()
        self._one_at_a_time = asyncio.Lock()
        self._asked_at: dict[str, float] = {}
        """When the other clients were last asked to let go for a GPU."""
        self.offers: Mapping[str, Offer] = {}
        """What each ready GPU offers, by UUID."""
        self.problems: Mapping[str, str] = {}
        """Why a GPU is not offered, by UUID."""
        self.occupied: Mapping[str, Sequence[MigPlacement]] = {}
        """Where on each ready GPU there is something that is of no prepared ResourceClaim, by UUID."""

    async def prepare(self) -> bool:
        """
        Repair, make every GPU ready that can be, and return whether what kube-scheduler or HAMi's reads changed.

        Raises:
            HamiError: the driver or the journal cannot be used.
        """
        async with self._alone():
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
            offers = {uuid: self._offer(gpus[uuid]) for uuid in ready if uuid in gpus}
            claims = self._claims()
            occupied = {uuid: occupied_placements(gpus[uuid], self._journal, claims) for uuid in offers}
            self._reports.not_ready(problems)
            has_changed = offers != self.offers or (self._policy.is_by_claims and occupied != self.occupied)
            self.occupied = occupied
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
            self._not_created(f"Pod {pod}, container {container}", error)
            raise

    async def _realized(self, pod: Pod, container: str, shares: ContainerShares) -> tuple[str, ...]:
        wanted = reservations(pod, container, shares, self._policy.allocated_key)
        async with self._alone():
            entries = await self._entries([Claim(owner_of(pod), allocation) for allocation in wanted])
            named = {
                (allocation.container_index, allocation.device_index): entry
                for allocation, entry in zip(wanted, entries, strict=True)
            }
            text = pod.annotations.get(keys.MIG_ALLOCATIONS, "")
            if with_identities(text, named) != text:
                await self._api.change_mig_allocations(pod, lambda found: with_identities(found, named))
        return tuple(str(entry.mig_uuid) for entry in entries)

    async def realized_claim(self, owner: Owner, promised: Sequence[Claim]) -> tuple[Entry, ...]:
        """
        Return the instances of a ResourceClaim, one for each of *promised*; create those that do not exist.

        Those that it has from an earlier allocation are destroyed.

        Raises:
            HamiError: an instance cannot be created, or an earlier one cannot be destroyed; the kubelet retries.
        """
        try:
            async with self._alone():
                places = {(claim.allocation.gpu_uuid, claim.allocation.placement) for claim in promised}
                gpus = await self._repaired()
                await self._release(owner.uid, gpus, "it is allocated elsewhere", but=places)
                return tuple(await self._entries(promised))
        except HamiError as error:
            self._not_created(str(owner), error)
            raise

    async def release(self, uid: str) -> None:
        """
        Destroy the instances of the ResourceClaim *uid*, which no container uses any more.

        One on a GPU that the driver does not show stays in the journal, and is repaired once the GPU is back.

        Raises:
            HamiError: an instance cannot be destroyed now; the kubelet retries.
        """
        async with self._alone():
            if any(entry.owner.uid == uid for entry in self._journal):
                await self._release(uid, await self._repaired(), "it is unprepared")

    async def _release(
        self, uid: str, gpus: Mapping[str, Gpu], reason: str, but: Collection[tuple[str, MigPlacement]] = ()
    ) -> None:
        for entry in self._journal:
            gpu = gpus.get(entry.gpu_uuid)
            if entry.owner.uid != uid or gpu is None or (entry.gpu_uuid, entry.placement) in but:
                continue
            if any(found.id == entry.gpu_instance_id and found.is_busy for found in gpu.instances):
                raise InstanceStaysError(f"{described(entry)} stays although {reason}: a process uses it")
            if entry.gpu_instance_id is None:
                raise InstanceStaysError(f"{described(entry)} stays although {reason}: its creation was not finished")
            await self._destroy(entry, reason)

    async def _entries(self, promised: Sequence[Claim]) -> list[Entry]:
        """
        Return the instance of each of *promised*, all of one owner; create those that do not exist.

        If one cannot be created, those that this call created are destroyed.
        """
        created: list[Entry] = []
        entries: list[Entry] = []
        try:
            for claim in promised:
                gpus = await self._repaired()
                how = realize(claim, self._journal, gpus.get(claim.allocation.gpu_uuid))
                if how.use is not None:
                    entries.append(how.use)
                    continue
                for old in how.destroy:
                    await self._destroy(old, "another instance of its owner gets that place")
                assert how.create is not None
                entry = await self._create(claim, how.create)
                created.append(entry)
                entries.append(entry)
        except HamiError:
            for entry in reversed(created):
                await self._try_to_destroy(entry, "another instance of its owner cannot be created")
            raise
        return entries

    def _not_created(self, shown: str, error: HamiError) -> None:
        if isinstance(error, PlacementError | AllocationError) and not isinstance(error, CreationError):
            self._reports.failed("create", is_refused=True)
        self._reports.not_created(shown, error)

    @asynccontextmanager
    async def _alone(self) -> AsyncIterator[None]:
        """Keep other changes away during a block: those of this process, and those of a plugin beside it."""
        async with self._one_at_a_time, self._store.held():
            self._journal = self._store.read()
            yield

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
                    async with self._alone():
                        await self._repaired()
            except HamiError as error:
                self._reports.not_up_to_date(error)

    def _is_repair_due(self) -> bool:
        uids = self._claims().owner_uids
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
            if entry.state is not State.LIVE or await self._has_ended(entry.owner):
                has_changed |= await self._try_to_destroy(entry, reason)
        self._reports.left_alone(plan.problems)
        return await self._gpus() if has_changed else gpus

    async def _has_ended(self, owner: Owner) -> bool:
        if owner.is_claim:
            return await self._prepared.is_over(owner)
        return await self._api.has_ended(owner.uid, owner.namespace, owner.name)

    def _offer(self, gpu: Gpu) -> Offer:
        """Return what *gpu* offers: to kube-scheduler every place, which a taint closes, to HAMi's the free ones."""
        blocked = () if self._policy.is_by_claims else blocked_placements(gpu, self._journal, self._claims())
        return offer(gpu, self._policy.rules, blocked)

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
        return self._prepared.added_to(read_claims(list(self._api.pods.values()), self._policy.allocated_key))

    def _write(self, journal: Journal) -> None:
        self._store.write(journal)
        self._journal = journal
        self._reports.show(self.offers, journal)
