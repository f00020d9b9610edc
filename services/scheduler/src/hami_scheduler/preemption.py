"""
Which Pods must leave a Node so that one of higher priority gets its devices there.

Owns the answer to `/preempt`, pure like the filter's. kube-scheduler names, per Node, Pods whose end satisfies its own
filters; it knows nothing of shares. A Node where the Pod would not get its devices even then is taken off the list, so
that nobody is evicted in vain. Must never name a Pod of the same or a higher priority. Neighbours: `filter` judges the
room that would be left, `extender` answers.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from hami_scheduler.filter import Snapshot, allowances_of
from hami_scheduler.grant import Grant
from hami_scheduler.inventory import NodeInventory
from hami_scheduler.ledger import Ledger
from hami_scheduler.placement import Placement, place
from hami_scheduler.quota import Allowance
from hami_scheduler.request import PodRequest


@dataclass(frozen=True, slots=True)
class Victims:
    """Pods to be evicted from one Node."""

    uids: tuple[str, ...]
    pdb_violations: int = 0
    """How many disruption budgets kube-scheduler found violated by them."""


def must_leave(
    request: PodRequest,
    priority: int,
    name: str,
    leaving: Sequence[str],
    snapshot: Snapshot,
    untouchable: Collection[str] = (),
) -> tuple[str, ...] | None:
    """
    Return the UIDs of the Pods that must leave Node *name* for *request*, None where its devices would not do then.

    *leaving* leave in any case and come first. Those added hold devices there, are of lower *priority*, are not among
    the *untouchable*, and are as few and as low as one walk from the highest downwards finds.
    """
    ledger = snapshot.ledger
    entry = ledger.node(name)
    if entry is None:
        return None
    gone = [grant for grant in ledger.grants_on(name) if grant.uid in leaving]
    rest = [grant for grant in ledger.grants_on(name) if grant.uid not in leaving]
    lower = [grant for grant in rest if grant.priority < priority and grant.uid not in untouchable]
    trial = _Trial(request, entry.inventory, allowances_of(request, snapshot.quotas), Ledger(), [*gone, *lower])
    trial.ledger.put_node(entry.inventory)
    for grant in rest:
        if grant not in lower:
            trial.ledger.put(grant)
    if not trial.fits():
        return None
    added = [grant.uid for grant in sorted(lower, key=_worth, reverse=True) if not trial.keep(grant)]
    return (*leaving, *added)


@dataclass(slots=True)
class _Trial:
    """One Node while it is found out who can stay."""

    request: PodRequest
    inventory: NodeInventory
    allowances: Mapping[str, Allowance]
    """What the namespace may take as things are."""
    ledger: Ledger
    """The Node with those that stay."""
    gone: list[Grant]

    def fits(self) -> bool:
        """Return whether the Pod gets its devices when all that are gone are gone."""
        allowances = {vendor: self._widened(vendor, allowance) for vendor, allowance in self.allowances.items()}
        rooms = self.ledger.rooms(self.inventory.name)
        return isinstance(place(self.request, rooms, allowances, self.inventory.pair_scores), Placement)

    def keep(self, grant: Grant) -> bool:
        """Return whether the Pod of *grant* can stay; if so it does."""
        self.ledger.put(grant)
        self.gone.remove(grant)
        if self.fits():
            return True
        self.ledger.drop(grant.uid)
        self.gone.append(grant)
        return False

    def _widened(self, vendor: str, allowance: Allowance) -> Allowance:
        """Return *allowance* with what the Pods that are gone held of it."""
        freed = [
            amount
            for grant in self.gone
            if grant.namespace == self.request.namespace
            for uuid, amount in grant.amounts.items()
            if grant.vendors[uuid] == vendor
        ]
        memory_mib, core_percent = allowance.memory_mib, allowance.core_percent
        return replace(
            allowance,
            memory_mib=None if memory_mib is None else memory_mib + sum(amount.memory_mib for amount in freed),
            core_percent=None if core_percent is None else core_percent + sum(amount.core_percent for amount in freed),
        )


def _worth(grant: Grant) -> tuple[int, int, str]:
    """Return what a Pod is kept by: its priority, then its size, so that the least is lost."""
    return grant.priority, sum(amount.memory_mib for amount in grant.amounts.values()), grant.uid
