"""
Choose the devices of one Node for one container, or say why there are none.

Owns the walk over devices, the same for every vendor, and what the containers tried so far take. Neighbours: `fit`
judges one device, `score` orders them, `vendor` has what only a vendor does, `place_pod` walks the containers.
Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/scheduler/score.go
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from hami_scheduler.state.quota import UNLIMITED, Allowance
from hami_scheduler.values.device_use import DeviceUse, Tenant
from hami_scheduler.values.fit import Attempt, Offer, belongs, memory_asked, refusal_of_kind, refusal_of_share
from hami_scheduler.values.inventory import PairScores
from hami_scheduler.values.mig import MODE, choose_instance
from hami_scheduler.values.reasons import Misfit, Reason
from hami_scheduler.values.request import ContainerRequest, PodRequest
from hami_scheduler.values.rules import Rules
from hami_scheduler.values.score import device_order, device_score
from hami_scheduler.values.vendor import VendorFrame
from hamicommon.held import NOTHING, ContainerKind, Taken, amounts_over_time
from hamicommon.model import MigAllocation, PodShares, Request, Share

_NOTHING_YET: frozenset[str] = frozenset()


@dataclass(slots=True)
class Draft:
    """A placement of a Pod on one Node, filled container by container."""

    request: PodRequest
    pair_scores: PairScores
    allowances: Mapping[str, Allowance]
    taken: list[dict[str, tuple[Share, ...]]] = field(default_factory=list)
    """Per container tried so far: what it takes, per vendor key."""
    mig: list[MigAllocation] = field(default_factory=list)

    def shares(self) -> dict[str, PodShares]:
        """Return what the containers tried so far take, per vendor key."""
        return {vendor: tuple(container.get(vendor, ()) for container in self.taken) for vendor in self.request.rules}

    def matters(self, container: ContainerRequest) -> bool:
        """
        Return whether the choice for *container* can leave a later container without devices.

        An init container has returned its devices by then, but a quota counts each device at its maximum.
        """
        is_limited = any(allowance != UNLIMITED for allowance in self.allowances.values())
        return container.kind is not ContainerKind.INIT or is_limited

    def attempt(self, request: Request, uses: Sequence[DeviceUse]) -> Attempt:
        """Return the attempt of the current container to get *request* from *uses*."""
        rules = self.request.rules[request.vendor]
        candidates = [use for use in uses if belongs(use.device, request.vendor, rules)]
        return Attempt(request, rules, candidates, self._earlier(request.vendor), self.pair_scores)

    def _earlier(self, vendor: str) -> frozenset[str]:
        """Return the devices that earlier containers of the same sort (app or init) took."""
        if len(self.taken) == 1:
            return _NOTHING_YET
        *before, current = self.request.kinds[: len(self.taken)]
        is_app = current is ContainerKind.APP
        return frozenset(
            share.uuid
            for kind, container in zip(before, self.taken, strict=False)
            if (kind is ContainerKind.APP) is is_app
            for share in container.get(vendor, ())
        )


def place_container(container: ContainerRequest, uses: list[DeviceUse], draft: Draft) -> Misfit | None:
    """Give *container* its devices of *uses*, which end up sorted, or return why there are too few."""
    draft.taken.append({})
    hopeless = [misfit for request in container.requests if (misfit := _hopeless(request, uses, draft))]
    if hopeless:
        return Misfit.of_all(hopeless)
    policy, weights = draft.request.device_policy, draft.request.weights
    scores = {use.device.id: device_score(use, container.requests, weights) for use in uses}
    misfits = []
    for request in container.requests:
        order = device_order(uses, [scores[use.device.id] for use in uses], policy)
        uses[:] = [uses[position] for position in order]
        attempt = draft.attempt(request, uses)
        chosen = _take(attempt, draft)
        if isinstance(chosen, Misfit):
            misfits.append(chosen)
        else:
            _grant(chosen, attempt, draft)
    return Misfit.of_all(misfits) if misfits else None


def _hopeless(request: Request, uses: Sequence[DeviceUse], draft: Draft) -> Misfit | None:
    """
    Return why *request* fits in no order of devices, None if the order may matter.

    Most refusals end here, before devices are scored or sorted.
    """
    frame, attempt = draft.request.vendors[request.vendor], draft.attempt(request, uses)
    candidates, rules = attempt.candidates, attempt.rules
    if request.count > len(candidates) and not _may_partition(candidates, rules):
        return Misfit.of_node(Reason.NODE_DEVICES)
    closed = frame.sharing.gate(attempt) if frame.sharing.gate else None
    if closed is not None:
        return Misfit(((closed, 1),), len(candidates))
    is_limited = draft.allowances.get(request.vendor, UNLIMITED) != UNLIMITED
    if is_limited or rules.is_numa_bound or any(use.device.mode == MODE for use in candidates):
        return None
    if frame.sharing.refuses_itself(attempt):
        return None
    judge = _judge(attempt, frame, _no_limit)
    refusals: Counter[Reason] = Counter()
    for use in candidates:
        refusals[judge(use)[0] or Reason.COUNT] += 1
        if refusals[Reason.COUNT] == request.count:
            return None
    return Misfit.of_devices(refusals, len(candidates))


def _no_limit(_uuid: str, _memory_mib: int, _core_percent: int) -> bool:
    return True


def _may_partition(candidates: Sequence[DeviceUse], rules: Rules) -> bool:
    """Return whether fewer devices than asked can be enough, because one can be cut into MIG instances."""
    return (rules.modes is None or MODE in rules.modes) and any(use.device.mode == MODE for use in candidates)


def _judge(
    attempt: Attempt, frame: VendorFrame, is_within_quota: Callable[[str, int, int], bool]
) -> Callable[[DeviceUse], tuple[Reason | None, Taken]]:
    """Return a function that judges a device: why it cannot take one more share, or None, and what the share takes."""
    sharing, rules, request = frame.sharing, attempt.rules, attempt.request
    check_first, check_last, amounts_of = sharing.check_first, sharing.check_last, sharing.amounts
    asked = Taken(1, request.memory_mib, request.held_core_percent)
    is_amount = request.memory_mib > 0 or request.memory_percent is None

    def judge(use: DeviceUse) -> tuple[Reason | None, Taken]:
        """Judge one device."""
        reason = refusal_of_kind(use, rules, sharing)
        if reason is None and check_first is not None:
            reason = check_first(use, attempt)
        if reason is not None:
            return reason, asked
        if amounts_of is not None:
            taken = amounts_of(use, attempt)
        elif is_amount:
            taken = asked
        else:
            taken = Taken(1, memory_asked(request, use.device), asked.core_percent)
        reason = refusal_of_share(use, taken.memory_mib, taken.core_percent, rules, is_within_quota, sharing)
        if reason is None and check_last is not None:
            reason = check_last(use, attempt)
        return reason, taken

    return judge


def _grant(chosen: Sequence[Offer], attempt: Attempt, draft: Draft) -> None:
    """Count what the current container of *draft* takes."""
    for index, offer in enumerate(chosen):
        share, instance, use = offer.share, offer.instance, offer.use
        use.take(share.memory_mib, share.core_percent, offer.replicas)
        if attempt.rules.notes:
            asking = Tenant(attempt.rules.notes, share.core_percent, is_settled=False, is_asking=True)
            use.tenants = (*use.tenants, asking)
        if instance is not None:
            use.occupied.append(instance.placement)
            container = len(draft.taken) - 1
            draft.mig.append(MigAllocation(container, index, share.uuid, instance.profile.name, instance.placement))
    draft.taken[-1][attempt.request.vendor] = tuple(offer.share for offer in chosen)


def _take(attempt: Attempt, draft: Draft) -> Sequence[Offer] | Misfit:
    """
    Return one share of each of the first acceptable devices, tried from the end, or of those the vendor chooses.

    Of several NUMA nodes with enough devices, the last one tried is taken, as in HAMi.
    """
    request, rules = attempt.request, attempt.rules
    frame = draft.request.vendors[request.vendor]
    choose = frame.sharing.choose(attempt) if frame.sharing.choose else None
    refusals: Counter[Reason] = Counter()
    offers: list[Offer] = []
    left_behind: list[list[Offer]] = []
    numa: int | None = None
    is_within_quota = _quota_check(request, offers, draft)
    judge = _judge(attempt, frame, is_within_quota)

    def offer_of(use: DeviceUse) -> Offer | Reason:
        """Return what the device of *use* offers beside *offers*, or why it offers nothing."""
        reason, amounts = judge(use)
        if reason is not None:
            return reason
        if use.device.mode == MODE:
            return _instance(use, amounts.memory_mib, offers, is_within_quota, frame)
        share = Share(use.device.id, frame.share_type(use.device), amounts.memory_mib, amounts.core_percent)
        return Offer(use, share, amounts.replicas)

    for use in reversed(attempt.candidates):
        device = use.device
        while True:
            if rules.is_numa_bound and numa != device.numa and refusal_of_kind(use, rules, frame.sharing) is None:
                if choose is None:
                    refusals[Reason.NUMA] += len(offers)
                else:
                    left_behind.insert(0, offers.copy())
                offers.clear()
                numa = device.numa
            offer = offer_of(use)
            if isinstance(offer, Reason):
                refusals[offer] += 1
                break
            offers.append(offer)
            if len(offers) == request.count and choose is None:
                return offers
            if device.mode != MODE:
                break
    for acceptable in (offers, *left_behind):
        chosen = choose(attempt, acceptable, refusals) if choose else None
        if chosen is not None:
            return chosen
    refusals[Reason.COUNT] += len(offers)
    return Misfit.of_devices(refusals, len(attempt.candidates))


def _instance(
    use: DeviceUse,
    memory_mib: int,
    offers: Sequence[Offer],
    is_within_quota: Callable[[str, int, int], bool],
    frame: VendorFrame,
) -> Offer | Reason:
    """
    Return the MIG instance to make on the device of *use* beside *offers*, which the container has already.

    It counts as the size of its profile, not of the request.
    """
    device = use.device
    queued = [o.instance.placement for o in offers if o.instance is not None and o.uuid == device.id]
    instance = choose_instance(device, memory_mib, [*use.occupied, *queued])
    if instance is None:
        return Reason.MIG
    profile = instance.profile
    if not is_within_quota(device.id, profile.memory_mib, profile.core_percent):
        return Reason.QUOTA
    share = Share(device.id, frame.share_type(device), profile.memory_mib, profile.core_percent)
    return Offer(use, share, instance=instance)


def _quota_check(request: Request, offers: list[Offer], draft: Draft) -> Callable[[str, int, int], bool]:
    """
    Return a function that says whether the Pod stays within its namespace's quota with one more share of *request*.

    The Pod counts as the maximum that its containers so far take at any time.
    """
    allowance = draft.allowances.get(request.vendor, UNLIMITED)
    if allowance == UNLIMITED:
        return _no_limit

    def is_within_quota(uuid: str, memory_mib: int, core_percent: int) -> bool:
        here = (*(other.share for other in offers), Share(uuid, request.vendor, memory_mib, core_percent))
        before = tuple(container.get(request.vendor, ()) for container in draft.taken[:-1])
        total = NOTHING
        for amount in amounts_over_time(draft.request.kinds, (*before, here)).values():
            total = total.plus(amount)
        return allowance.allows(total.memory_mib, total.core_percent)

    return is_within_quota
