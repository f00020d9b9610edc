"""
Choose the devices of one Node for one container, or say why there are none.

Owns the walk over devices, the same for every vendor, and what the containers tried so far take. Neighbours: `fit`
judges one device, `score` orders them, `vendor` has what only a vendor does, `place_pod` walks the containers.
Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/scheduler/score.go
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hami_scheduler.rules.fit import belongs, memory_asked, refusal_of_kind, refusal_of_share
from hami_scheduler.rules.mig import MODE, free_instances
from hami_scheduler.rules.score import device_order, device_score
from hami_scheduler.state.quota import UNLIMITED, Allowance
from hami_scheduler.values.attempt import Attempt, ShareOption
from hami_scheduler.values.constraints import Constraints
from hami_scheduler.values.device_use import DeviceUse, PodOnDevice
from hami_scheduler.values.inventory import PairScores
from hami_scheduler.values.reasons import Misfit, Reason
from hami_scheduler.values.request import PodRequest
from hami_scheduler.values.vendor import FitRules, VendorRules
from hamicommon.model import MigAllocation, PodShares, Request, Share
from hamicommon.pod.amounts import NOTHING, Amounts, amounts_over_time
from hamicommon.pod.containers import ContainerKind
from hamicommon.pod.reading import Container

QuotaCheck = Callable[[str, int, int], bool]
"""Says for (UUID, MiB, percent) whether the Pod's namespace may have one more share of this size."""
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
        return {
            vendor: tuple(container.get(vendor, ()) for container in self.taken) for vendor in self.request.constraints
        }

    def matters(self, container: Container) -> bool:
        """
        Return whether the choice for *container* can leave a later container without devices.

        An init container has returned its devices by then, but a quota counts each device at its maximum.
        """
        is_limited = any(allowance != UNLIMITED for allowance in self.allowances.values())
        return container.kind is not ContainerKind.INIT or is_limited

    def attempt(self, request: Request, uses: Sequence[DeviceUse]) -> Attempt:
        """Return the attempt of the current container to get *request* from *uses*."""
        constraints = self.request.constraints[request.vendor]
        candidates = [use for use in uses if belongs(use.device, request.vendor, constraints)]
        return Attempt(request, constraints, candidates, self._earlier(request.vendor), self.pair_scores)

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


def place_container(container: Container, uses: list[DeviceUse], draft: Draft) -> Misfit | None:
    """Give *container* its devices of *uses*, which end up sorted, or return why there are too few."""
    draft.taken.append({})
    hopeless = [_hopeless(request, uses, draft) for request in container.requests]
    told = [misfit for misfit in hopeless if misfit]
    if told and len(told) == len(hopeless):
        return Misfit.of_all(told)
    policy, weights = draft.request.device_policy, draft.request.weights
    scores = {use.device.id: device_score(use, container.requests, weights) for use in uses}
    misfits = []
    for request, misfit in zip(container.requests, hopeless, strict=True):
        if misfit is not None:
            misfits.append(misfit)
            continue
        order = device_order(uses, [scores[use.device.id] for use in uses], policy)
        uses[:] = [uses[position] for position in order]
        attempt = draft.attempt(request, uses)
        chosen = _choose(attempt, draft)
        if isinstance(chosen, Misfit):
            misfits.append(chosen if chosen.vendor else replace(chosen, vendor=request.vendor))
        else:
            _take(chosen, attempt, draft)
    return Misfit.of_all(misfits) if misfits else None


def _hopeless(request: Request, uses: Sequence[DeviceUse], draft: Draft) -> Misfit | None:
    """
    Return why *request* fits in no order of devices, None if the order may matter.

    Most refusals end here, before devices are scored or sorted.
    """
    rules, attempt = draft.request.vendors[request.vendor], draft.attempt(request, uses)
    candidates, constraints = attempt.candidates, attempt.constraints
    has_mig = any(use.device.mode == MODE for use in candidates)
    may_partition = has_mig and (constraints.modes is None or MODE in constraints.modes)
    if request.count > len(candidates) and not may_partition:
        return Misfit.of_node(Reason.NODE_DEVICES, request.vendor)
    closed = rules.fit.check_node(attempt) if rules.fit.check_node else None
    if closed is not None:
        return Misfit(((closed, 1),), len(candidates), vendor=request.vendor)
    is_limited = draft.allowances.get(request.vendor, UNLIMITED) != UNLIMITED
    if is_limited or has_mig or constraints.is_numa_bound or rules.fit.refuses_itself(attempt):
        return None
    refusals: Counter[Reason] = Counter()
    check_device = _device_check(attempt, rules.fit, _no_limit)
    for use in candidates:
        found = check_device(use)
        refusals[found if isinstance(found, Reason) else Reason.COUNT] += 1
        if refusals[Reason.COUNT] == request.count:
            return None
    return Misfit.of_devices(refusals, len(candidates), request.vendor)


def _no_limit(_uuid: str, _memory_mib: int, _core_percent: int) -> bool:
    return True


def _device_check(
    attempt: Attempt, fit: FitRules, is_within_quota: QuotaCheck
) -> Callable[[DeviceUse], Amounts | Reason]:
    """Return a function that says what one more share takes of a device, or why the device cannot take it."""
    constraints, request = attempt.constraints, attempt.request
    check_first, check_last, amounts_of = fit.check_first, fit.check_last, fit.amounts
    asked: dict[int, Amounts] = {}
    """Per memory of a device: what a share takes of it."""

    def check_device(use: DeviceUse) -> Amounts | Reason:
        reason = refusal_of_kind(use, constraints, fit)
        if reason is None and check_first is not None:
            reason = check_first(use, attempt)
        if reason is not None:
            return reason
        if amounts_of is not None:
            taken = amounts_of(use, attempt)
        else:
            mib = use.device.memory_mib
            taken = asked.get(mib) or asked.setdefault(
                mib, Amounts(1, memory_asked(request, mib), request.held_core_percent)
            )
        reason = refusal_of_share(use, taken.memory_mib, taken.core_percent, constraints, is_within_quota, fit)
        if reason is None and check_last is not None:
            reason = check_last(use, attempt)
        return taken if reason is None else reason

    return check_device


def _take(chosen: Sequence[ShareOption], attempt: Attempt, draft: Draft) -> None:
    """Count what the current container of *draft* takes."""
    for index, option in enumerate(chosen):
        share, instance, use = option.share, option.instance, option.use
        use.take(share.memory_mib, share.core_percent, option.replicas)
        if attempt.constraints.vendor_annotations:
            asking = PodOnDevice(
                attempt.constraints.vendor_annotations, share.core_percent, is_set_up=False, is_asking=True
            )
            use.pods = (*use.pods, asking)
        if instance is not None:
            use.occupied.append(instance.placement)
            container = len(draft.taken) - 1
            draft.mig.append(MigAllocation(container, index, share.uuid, instance.profile.name, instance.placement))
    draft.taken[-1][attempt.request.vendor] = tuple(option.share for option in chosen)


def _choose(attempt: Attempt, draft: Draft) -> Sequence[ShareOption] | Misfit:
    """
    Return one share of each of the first acceptable devices, tried from the end, or of those the vendor chooses.

    Of several NUMA nodes with enough devices, the last one tried is taken, as in HAMi.
    """
    request, constraints = attempt.request, attempt.constraints
    rules = draft.request.vendors[request.vendor]
    choose = rules.fit.choose(attempt) if rules.fit.choose else None
    refusals: Counter[Reason] = Counter()
    options: list[ShareOption] = []
    left_behind: list[list[ShareOption]] = []
    numa: int | None = None
    is_within_quota = _quota_check(request, options, draft)
    check_device = _device_check(attempt, rules.fit, is_within_quota)

    def option_of(use: DeviceUse) -> ShareOption | Reason:
        """Return what the device of *use* can give beside *options*, or why it can give nothing."""
        taken = check_device(use)
        if isinstance(taken, Reason):
            return taken
        if use.device.mode == MODE:
            return _instance(use, taken.memory_mib, options, is_within_quota, constraints, rules)
        share = Share(use.device.id, rules.share_type(use.device), taken.memory_mib, taken.core_percent)
        return ShareOption(use, share, taken.replicas)

    for use in reversed(attempt.candidates):
        device = use.device
        while True:
            if (
                constraints.is_numa_bound
                and numa != device.numa
                and refusal_of_kind(use, constraints, rules.fit) is None
            ):
                if choose is None:
                    refusals[Reason.NUMA] += len(options)
                else:
                    left_behind.insert(0, options.copy())
                options.clear()
                numa = device.numa
            option = option_of(use)
            if isinstance(option, Reason):
                refusals[option] += 1
                break
            options.append(option)
            if len(options) == request.count and choose is None:
                return options
            if device.mode != MODE:
                break
    for acceptable in (options, *left_behind):
        chosen = choose(attempt, acceptable, refusals) if choose else None
        if chosen is not None:
            return chosen
    refusals[Reason.COUNT] += len(options)
    return Misfit.of_devices(refusals, len(attempt.candidates), request.vendor)


def _instance(
    use: DeviceUse,
    memory_mib: int,
    options: Sequence[ShareOption],
    is_within_quota: QuotaCheck,
    constraints: Constraints,
    rules: VendorRules,
) -> ShareOption | Reason:
    """
    Return the MIG instance to make on the device of *use* beside *options*, which the container has already.

    It counts as the size of its profile, not of the request.
    """
    device = use.device
    queued = [o.instance.placement for o in options if o.instance is not None and o.uuid == device.id]
    reason = Reason.MIG
    for instance in free_instances(device, memory_mib, [*use.occupied, *queued], constraints.mig_preference):
        profile = instance.profile
        if is_within_quota(device.id, profile.memory_mib, profile.core_percent):
            share = Share(device.id, rules.share_type(device), profile.memory_mib, profile.core_percent)
            return ShareOption(use, share, instance=instance)
        reason = Reason.QUOTA
    return reason


def _quota_check(request: Request, options: list[ShareOption], draft: Draft) -> QuotaCheck:
    """
    Return a function that says whether the Pod stays within its namespace's quota with one more share of *request*.

    The Pod counts as the maximum that its containers so far take at any time.
    """
    allowance = draft.allowances.get(request.vendor, UNLIMITED)
    if allowance == UNLIMITED:
        return _no_limit

    def is_within_quota(uuid: str, memory_mib: int, core_percent: int) -> bool:
        here = (*(other.share for other in options), Share(uuid, request.vendor, memory_mib, core_percent))
        before = tuple(container.get(request.vendor, ()) for container in draft.taken[:-1])
        total = NOTHING
        for amount in amounts_over_time(draft.request.kinds, (*before, here)).values():
            total = total.plus(amount)
        return not allowance.is_exceeded_by(total.memory_mib, total.core_percent)

    return is_within_quota
