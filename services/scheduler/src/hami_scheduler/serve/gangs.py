"""
Give back soon what was reserved for a PodGroup that kube-scheduler gives up, and do not reserve it again in vain.

kube-scheduler asks about all members of a PodGroup one after the other, and about no other Pod in between. Then it
binds them at once, or gives all up and tells nobody. So members are reserved for a second after the last question. A
member about which it asks again shows that it gave the attempt up. Nothing is reserved for the PodGroup then until more
of its members fit than in that attempt: otherwise it would take what others wait for, at every event of the cluster.

An attempt in which every member got a Node has failed for a reason that is not ours. It may be repeated after some
seconds. Neighbours: `filter` asks before it chooses, `bind` reports that members are bound, `wakeups` wakes a member
once its PodGroup may be tried. Must never decide about a Pod without a PodGroup.
Source: kubernetes 1.37.2, pkg/scheduler/schedule_one_podgroup.go
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hami_scheduler.search.cache import Memo
from hami_scheduler.search.placement import grant_of
from hami_scheduler.state.cluster import Cluster
from hami_scheduler.values.request import PodRequest
from hamicommon.pod.gang import Gang

HELD_SECONDS = 1.0
"""How long members are reserved after the last question about their PodGroup, unless one of them is bound."""
RETRY_SECONDS = 5.0
"""When a PodGroup whose members all got a Node, and were not bound, is tried again."""
CERTAIN_SECONDS = 60.0
"""When a PodGroup is tried again although no more of its members fit: it may need fewer of them by now."""
_GANGS_REMEMBERED = 100
"""The last asked about; a set of 5000 candidates takes some 300 KiB."""
_MEMBERS_REMEMBERED = 1000
"""Of one PodGroup; more are treated as Pods without one."""
_GIVEN_UP = "kube-scheduler gave up its PodGroup, which is tried again within seconds"
"""What is answered while an attempt in which every member got a Node is not repeated."""


@dataclass(slots=True)
class _Attempt:
    """One attempt of kube-scheduler to place a PodGroup."""

    asked_at: float
    """When it last asked about a member."""
    members: dict[str, PodRequest] = field(default_factory=dict)
    """About which it asked, by UID."""
    chosen: set[str] = field(default_factory=set)
    """UIDs of the members that got a Node."""
    candidates: set[str] = field(default_factory=set)
    """Of all members."""
    failed_nodes: Mapping[str, str] | None = None
    """The last refusal of a member; None if none was refused."""
    counted_at: float = 0.0
    """When it was last counted how many fit, with the result that no more do."""
    counted_version: tuple[int, int] | None = None
    """Of the view on which it was counted."""


@dataclass(slots=True)
class Gangs:
    """The last attempt for each PodGroup, the one asked about last at the end."""

    _attempts: OrderedDict[Gang, _Attempt] = field(default_factory=OrderedDict)

    def refusal(
        self, gang: Gang, uid: str, candidates: Sequence[str], cluster: Cluster, now: float
    ) -> Mapping[str, str] | None:
        """
        Return FailedNodes if an attempt for *gang* that begins with the Pod *uid* would fail as the last one did.

        None if the Pod is to be tried.
        """
        attempt = self._attempts.get(gang)
        if attempt is None or uid not in attempt.members:
            return None
        for chosen in attempt.chosen:
            cluster.unreserve_chosen(chosen)
        attempt.candidates.update(candidates)
        if not attempt.chosen or self._may_succeed(attempt, cluster, now):
            del self._attempts[gang]
            return None
        known = attempt.failed_nodes or {}
        text = next(iter(known.values()), _GIVEN_UP)
        return {name: known.get(name, text) for name in candidates}

    def chosen(self, gang: Gang, request: PodRequest, candidates: Sequence[str], cluster: Cluster, now: float) -> None:
        """Hold what was just reserved for *request*, and for the members of *gang* before it, for a short time."""
        attempt = self._asked(gang, request, candidates, now)
        if attempt is not None:
            attempt.chosen.add(request.uid)
            self._hold(attempt, cluster, now + HELD_SECONDS)

    def refused(
        self,
        gang: Gang,
        request: PodRequest,
        failed_nodes: Mapping[str, str],
        cluster: Cluster,
        now: float,
    ) -> None:
        """Remember that no Node takes *request*, a member of *gang*."""
        attempt = self._asked(gang, request, tuple(failed_nodes), now)
        if attempt is not None:
            attempt.failed_nodes = failed_nodes
            self._hold(attempt, cluster, now + HELD_SECONDS)

    def bound(self, uid: str, cluster: Cluster, now: float) -> None:
        """Remember that kube-scheduler binds the Pod *uid*: of its PodGroup it binds every member that has a Node."""
        for gang, attempt in self._attempts.items():
            if uid in attempt.members:
                self._hold(attempt, cluster, now + cluster.reservations.seconds)
                del self._attempts[gang]
                return

    def may_wake(self, uid: str, cluster: Cluster, now: float) -> bool:
        """Return whether it is worth while to wake the Pod *uid*; always for one without a PodGroup."""
        attempt = next((one for one in self._attempts.values() if uid in one.members), None)
        if attempt is None:
            return True
        if now < attempt.counted_at + RETRY_SECONDS or any(one in cluster.reservations for one in attempt.chosen):
            return False
        return self._may_succeed(attempt, cluster, now)

    def _asked(self, gang: Gang, request: PodRequest, candidates: Sequence[str], now: float) -> _Attempt | None:
        """Return the running attempt for *gang*, None if it has too many members."""
        attempt = self._attempts.setdefault(gang, _Attempt(now))
        self._attempts.move_to_end(gang)
        if len(self._attempts) > _GANGS_REMEMBERED:
            self._attempts.popitem(last=False)
        if len(attempt.members) >= _MEMBERS_REMEMBERED and request.uid not in attempt.members:
            return None
        attempt.members[request.uid], attempt.asked_at = request, now
        attempt.candidates.update(candidates)
        return attempt

    @staticmethod
    def _hold(attempt: _Attempt, cluster: Cluster, until: float) -> None:
        for uid in attempt.chosen:
            cluster.reservations.hold(uid, until)

    @staticmethod
    def _may_succeed(attempt: _Attempt, cluster: Cluster, now: float) -> bool:
        """Return whether more members fit now than in *attempt*, or whether it is time to try again anyway."""
        if attempt.failed_nodes is None:
            return now >= attempt.asked_at + RETRY_SECONDS
        if now >= attempt.asked_at + CERTAIN_SECONDS:
            return True
        if attempt.counted_version == cluster.view.version:
            return False
        if _count(attempt, cluster, now) > len(attempt.chosen):
            return True
        attempt.counted_at, attempt.counted_version = now, cluster.view.version
        return False


def _count(attempt: _Attempt, cluster: Cluster, now: float) -> int:
    """Return how many members fit together, at most one more than in *attempt*; afterwards nothing is reserved."""
    memo = Memo()
    reserved: list[str] = []
    for request in attempt.members.values():
        if len(reserved) > len(attempt.chosen):
            break
        choice = (
            None if cluster.is_deleted(request.uid) else memo.search(request, cluster.view).choose(attempt.candidates)
        )
        if choice is not None:
            grant = grant_of(request, cluster.view.inventory(choice.node), choice.placement, unix_nanoseconds=0)
            cluster.reserve(grant, now)
            reserved.append(request.uid)
    for uid in reserved:
        cluster.unreserve(uid)
    return len(reserved)
