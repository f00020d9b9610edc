"""
Prepare and unprepare ResourceClaims when the kubelet asks.

Prepare reads the claim, decides, writes a record, and then what the record's shares need on the host. Unprepare takes
these away in the reverse order. So whatever exists on the host has a record, and both may be killed at any step and
repeated: the kubelet repeats Prepare after its own restart, too, while containers run.
Neighbours: `decide.dra` decides, `allocate.preparation` writes for a grant, `claim_records` remembers it.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import structlog

from hami_device_plugin.adapters import cdi_files
from hami_device_plugin.adapters.claim_records import ClaimRecords
from hami_device_plugin.adapters.dra import ClaimName
from hami_device_plugin.adapters.files import host_files_of
from hami_device_plugin.adapters.regions import forget_requests
from hami_device_plugin.decide.allocate.allocation import Container
from hami_device_plugin.decide.allocate.capacity import CapacityError, pod_use
from hami_device_plugin.decide.dra.grant import ClaimError, cdi_devices, claim_grant
from hami_device_plugin.decide.dra.instances import claim_owner, promised_instances, with_identities
from hami_device_plugin.decide.dra.ledger import check_ledger
from hami_device_plugin.decide.dra.users import check_users
from hami_device_plugin.serve.allocate.last_line import EVENT
from hami_device_plugin.serve.allocate.preparation import NOTICE_SECONDS, Prepared, Preparer, Recipient
from hami_device_plugin.serve.context import Context
from hami_device_plugin.serve.dra.tokens import Tokens
from hami_device_plugin.serve.mig.instances import MigInstances
from hamicommon.dra.claims import Claim, decode_claim
from hamicommon.dra.grants import CLAIMS, ClaimGrant, Requests, requests_of
from hamicommon.dra.partitions import Partition
from hamicommon.errors import HamiError
from hamicommon.model import Device
from hamicommon.pod.amounts import NOTHING, Amounts
from hamicommon.pod.reading import Pod

FORGET_SECONDS = 600.0

logger = structlog.get_logger()


class Claims:
    """The claims of one session."""

    def __init__(
        self,
        context: Context,
        records: ClaimRecords,
        preparer: Callable[[], Preparer],
        offered: Callable[[], Mapping[str, Device | Partition]],
        tokens: Tokens,
        mig: MigInstances | None = None,
    ) -> None:
        """
        Prepare by what *preparer* returns at each call, and remember it in *records*.

        *offered* returns the devices by their names in the slice; *tokens* prepares claims of tokens, *mig* has the
        instances of a Node in mode `mig`.
        """
        self._context = context
        self._view = context.view
        self._kube = context.dra
        self._records = records
        self._preparer = preparer
        self._offered = offered
        self._tokens = tokens
        self._mig = mig
        self._one_at_a_time = asyncio.Lock()
        """Held while a claim is written or removed."""

    async def prepare(self, names: Sequence[ClaimName]) -> Mapping[str, ClaimGrant | str]:
        """Prepare each claim of a Pod; return its grant, or why it is not prepared, by UID."""
        read = await asyncio.gather(*(self._read(name) for name in names))
        recorded = await asyncio.to_thread(self._records.read)
        requests = {**requests_of(recorded.values())}
        requests |= {(claim.namespace, claim.name): claim.requests for claim in read if isinstance(claim, Claim)}
        answers: dict[str, ClaimGrant | str] = {}
        for name, claim in zip(names, read, strict=True):
            answer = claim if isinstance(claim, str) else await self._attempt(claim, recorded, requests)
            shown, answers[name.uid] = f"{name.namespace}/{name.name}", answer
            if isinstance(answer, str):
                self._count("prepare", "error")
                logger.warning("Claim not prepared", claim=shown, error=answer)
            else:
                self._count("prepare", "ok")
                logger.info("Claim prepared", claim=shown, uid=name.uid)
        return answers

    async def unprepare(self, names: Sequence[ClaimName]) -> Mapping[str, str]:
        """Take back what was prepared for each claim; return the error of each, by UID, empty if it is done."""
        return {name.uid: await self._unprepare(name) for name in names}

    async def forget_gone(self) -> None:
        """
        Unprepare claims that are gone and that the kubelet does not ask about, until cancelled.

        A kubelet that has lost its checkpoint asks about none, and their records would hold their shares forever. It
        looks at what it has each minute, so a claim that was gone at the last look, too, is one of those.
        """
        gone: set[str] = set()
        while True:
            recorded = await asyncio.to_thread(self._records.read)
            names = [ClaimName(grant.namespace, grant.name, grant.uid) for grant in recorded.values()]
            now = {name for name in names if await self._is_gone(name)}
            for name in now:
                if name.uid in gone:
                    logger.warning("The kubelet has not unprepared a claim that is gone", claim=name.uid)
                    await self._unprepare(name)
            gone = {name.uid for name in now}
            await asyncio.sleep(FORGET_SECONDS)

    async def _is_gone(self, name: ClaimName) -> bool:
        """Return whether the API server says that there is no claim of this name and UID."""
        try:
            item = await self._kube.claim(name.namespace, name.name)
        except HamiError:
            return False
        return item is None or (item.get("metadata") or {}).get("uid") != name.uid

    async def _unprepare(self, name: ClaimName) -> str:
        shown = f"ResourceClaim {name.namespace}/{name.name}"
        try:
            async with self._one_at_a_time:
                if self._mig is not None:
                    await self._mig.release(name.uid)
                await asyncio.to_thread(self._remove, shown, name.uid)
        except HamiError as error:
            self._count("unprepare", "error")
            logger.warning("Claim not unprepared", claim=shown, error=str(error))
            return str(error)
        self._count("unprepare", "ok")
        logger.info("Claim unprepared", claim=shown, uid=name.uid)
        return ""

    async def _read(self, name: ClaimName) -> Claim | str:
        """Return the claim as the API server has it, or why it cannot be prepared."""
        shown = f"ResourceClaim {name.namespace}/{name.name}"
        try:
            item = await self._kube.claim(name.namespace, name.name)
            if item is None:
                return f"{shown} does not exist"
            claim = decode_claim(item)
        except HamiError as error:
            return f"{shown} cannot be read: {error}"
        if claim.uid != name.uid:
            return f"{shown} has UID {claim.uid}, and the kubelet prepares the one with UID {name.uid}, which is gone"
        return claim

    async def _attempt(self, claim: Claim, recorded: Mapping[str, ClaimGrant], requests: Requests) -> ClaimGrant | str:
        try:
            if claim.tokens:
                return await self._tokens.prepare(claim)
            return await self._prepare(claim, recorded.get(claim.uid), requests)
        except HamiError as error:
            return str(error)

    async def _prepare(self, claim: Claim, before: ClaimGrant | None, requests: Requests) -> ClaimGrant:
        """
        Prepare *claim*, and return its grant: the one *before* if it was prepared already.

        Raises:
            HamiError: it cannot be prepared now; the message names it, and what would be right.
        """
        grant = claim_grant(claim, self._context.config.node_name, self._offered())
        if before is not None and before.is_same(grant):
            grant = before
        pods = await self._pods(claim)
        check_users(pods, claim.name, requests)
        try:
            if self._mig is not None and grant.has_instances:
                grant = await self._realized(self._mig, grant)
            prepared = [await self._decided(grant, request, pods) for request in grant.requests]
            async with self._one_at_a_time:
                changed = await asyncio.to_thread(self._write, grant, prepared)
        except CapacityError as error:
            self._context.metrics.starts_refused.inc()
            for pod in pods:
                self._view.report_pod(pod, EVENT, str(error))
            raise
        if changed:
            await asyncio.sleep(NOTICE_SECONDS)
        return grant

    async def _realized(self, mig: MigInstances, grant: ClaimGrant) -> ClaimGrant:
        """
        Record *grant*, create its MIG instances, and return it with their identity.

        Raises:
            HamiError: it is more than there is, or an instance cannot be created.
        """
        async with self._one_at_a_time:
            await asyncio.to_thread(self._record, grant)
            entries = await mig.realized_claim(claim_owner(grant), promised_instances(grant))
        return with_identities(grant, entries)

    async def _pods(self, claim: Claim) -> Sequence[Pod]:
        """
        Return the Pods that may use *claim*; the kubelet may see one a moment before the watch shows it.

        Raises:
            ClaimError: there is none.
        """
        unseen = [uid for uid in claim.pod_uids if uid not in self._view.pods]
        await asyncio.gather(*(self._view.wait_seen(uid) for uid in unseen))
        found = [self._view.pods[uid] for uid in claim.pod_uids if uid in self._view.pods]
        if not found:
            raise ClaimError(
                f"ResourceClaim {claim}: none of the {len(claim.pod_uids)} Pods in status.reservedFor is known on Node "
                f"{self._context.config.node_name}; kube-scheduler reserves it for the Pod that it binds here"
            )
        return found

    async def _decided(self, grant: ClaimGrant, request: str, pods: Sequence[Pod]) -> Prepared:
        """Return what the containers of *pods* that use *request* get."""
        recipient = Recipient(
            Container(grant.uid, request, is_request=True),
            f"{grant}, request {request}",
            cdi_devices(grant, request),
            annotations={key: value for pod in pods for key, value in pod.annotations.items()},
            has_host_users=all(pod.has_host_users for pod in pods),
            is_of_claim=True,
        )
        try:
            return await self._preparer().decide(recipient, grant.shares(request), grant.instances(request))
        except HamiError as error:
            raise ClaimError(f"{recipient.shown}: {error}") from error

    def _write(self, grant: ClaimGrant, prepared: Sequence[Prepared]) -> bool:
        """Record *grant*, and write what it needs, its specs last; return whether a spec changed."""
        preparer = self._preparer()
        with host_files_of(f"{grant} cannot be prepared"), self._records.held():
            self._keep_record(grant)
            changes = [preparer.write(each) for each in prepared]
        return any(changes)

    def _record(self, grant: ClaimGrant) -> None:
        with host_files_of(f"{grant} cannot be prepared"), self._records.held():
            self._keep_record(grant)

    def _keep_record(self, grant: ClaimGrant) -> None:
        """Record *grant*, if the ledger allows it and it is not recorded yet."""
        known = self._records.read()
        before = known.get(grant.uid)
        if before == grant:
            return
        if before is None or not before.is_same(grant):
            if before is not None:
                self._take_away(grant.uid)
            devices = {one.id: one for one in self._offered().values() if isinstance(one, Device)}
            check_ledger(grant, known.values(), self._of_pods(), devices)
        self._records.write(grant)

    def _remove(self, shown: str, uid: str) -> None:
        with host_files_of(f"{shown} cannot be unprepared"), self._records.held():
            self._tokens.forget(uid)
            self._take_away(uid)

    def _take_away(self, uid: str) -> None:
        """Remove everything of the claim *uid*, its record last."""
        for path in cdi_files.claim_specs(Path(self._context.config.cdi_root), uid):
            path.unlink(missing_ok=True)
        forget_requests(self._context.config.vgpu_directory / CLAIMS, uid)
        self._records.remove(uid)

    def _of_pods(self) -> Mapping[str, Amounts]:
        """Return what Pods hold by HAMi's annotation, by UUID: they run on while their Node is moved to DRA."""
        found: dict[str, Amounts] = {}
        for pod in list(self._view.pods.values()):
            if pod.has_ended:
                continue
            for uuid, amounts in pod_use(pod, self._context.config.node_name, self._context.vendor).amounts.items():
                found[uuid] = found.get(uuid, NOTHING).plus(amounts)
        return found

    def _count(self, call: str, result: str) -> None:
        self._context.metrics.claims.labels(call, result).inc()
