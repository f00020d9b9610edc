"""
Which Pods must leave a Node so that another gets its devices there.

Owns the search for the fewest, and with it the answer to `/preempt`, pure like the filter's. kube-scheduler names, per
Node, Pods whose end satisfies its own filters; it knows nothing of shares. A Node where the Pod would not get its
devices even then is taken off the list, so that nobody is evicted in vain. Must never name a Pod of the same or a
higher priority to kube-scheduler. Neighbours: `place_pod` judges the room that would be left, `extender` answers,
`remedies` tells people whose end would help.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from hami_scheduler.decide.place_pod import Placement, place
from hami_scheduler.state.ledger import Ledger
from hami_scheduler.state.quota import Allowance
from hami_scheduler.state.view import ClusterView
from hami_scheduler.values.grant import Grant
from hami_scheduler.values.inventory import NodeInventory
from hami_scheduler.values.request import PodRequest


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
    view: ClusterView,
    untouchable: Collection[str] = (),
) -> tuple[str, ...] | None:
    """
    Return the UIDs of the Pods that must leave Node *name* for *request*, None where its devices would not do then.

    *leaving* leave in any case and come first. Those added hold devices there, are of lower *priority*, are not among
    the *untouchable*, and are as few and as low as one walk from the highest downwards finds.
    """
    entry = view.ledger.node(name)
    if entry is None:
        return None
    here = view.ledger.grants_on(name)
    gone = [grant for grant in here if grant.uid in leaving]
    may_stay = [grant for grant in here if grant.uid not in leaving]
    lower = [grant for grant in may_stay if grant.priority < priority and grant.uid not in untouchable]
    staying = [grant for grant in may_stay if grant.priority >= priority or grant.uid in untouchable]
    allowances = view.allowances(request)
    added = fewest_to_leave(request, entry.inventory, allowances, lower, gone=gone, staying=staying)
    return None if added is None else (*leaving, *(grant.uid for grant in added))


def fewest_to_leave(
    request: PodRequest,
    inventory: NodeInventory,
    allowances: Mapping[str, Allowance],
    candidates: Sequence[Grant],
    *,
    gone: Sequence[Grant] = (),
    staying: Sequence[Grant] = (),
) -> list[Grant] | None:
    """
    Return those of *candidates* that must leave for *request*, None where it would not fit if all of them did.

    The Node of *inventory* holds *candidates* and those *staying*. *allowances* are what the namespace may take while
    those that are *gone* and the candidates still hold theirs. One walk keeps whom it can, the worthiest first.
    """
    trial = _Trial(request, inventory, allowances, Ledger(), [*gone, *candidates])
    trial.ledger.put_node(inventory)
    for grant in staying:
        trial.ledger.put(grant)
    if not trial.fits():
        return None
    return [grant for grant in sorted(candidates, key=_worth, reverse=True) if not trial.keep(grant)]


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
        uses = self.ledger.device_uses(self.inventory.name)
        return isinstance(place(self.request, uses, allowances, self.inventory.pair_scores), Placement)

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


def _worth(grant: Grant) -> tuple[int, int, int, str]:
    """Return what a Pod is kept by: its priority, then its size, so that the least is lost."""
    amounts = grant.amounts.values()
    memory_mib, core_percent = sum(a.memory_mib for a in amounts), sum(a.core_percent for a in amounts)
    return grant.priority, memory_mib, core_percent, grant.uid
