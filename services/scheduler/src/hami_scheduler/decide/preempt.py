"""
Find the fewest Pods that must leave a Node so that another Pod gets its devices there: the answer to `/preempt`.

kube-scheduler names, per Node, Pods whose end satisfies its own filters; it knows nothing of shares. A Node where the
Pod would not get its devices even then is dropped, so that no Pod is evicted in vain. Must never name a Pod of the same
or a higher priority to kube-scheduler. Pure over a borrowed view. Neighbours: `place_pod` tries the Node without the
Pods, `remedies` asks which Pods would have to end.
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
    """Number of disruption budgets that these evictions violate, as kube-scheduler counted them."""


def must_leave(
    request: PodRequest,
    priority: int,
    name: str,
    leaving: Sequence[str],
    view: ClusterView,
    untouchable: Collection[str] = (),
) -> tuple[str, ...] | None:
    """
    Return the UIDs of the Pods that must leave Node *name* for *request*, None if it would still not fit.

    *leaving* leave anyway and come first. The Pods added hold devices there, have a lower priority than *priority* and
    are not *untouchable*. They are the fewest and lowest that one walk from the highest priority down finds.
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
    Return those of *candidates* that must leave for *request*, None if it would not fit without all of them.

    The Node of *inventory* holds *candidates* and *staying*. *allowances* are what the namespace may take while the
    Pods that are *gone* and the candidates still count. One walk keeps each Pod that can stay, most important first.
    """
    eviction = _Eviction(request, inventory, allowances, Ledger(), [*gone, *candidates])
    eviction.ledger.put_node(inventory)
    for grant in staying:
        eviction.ledger.put(grant)
    if not eviction.fits():
        return None
    return [grant for grant in sorted(candidates, key=_worth, reverse=True) if not eviction.keep(grant)]


@dataclass(slots=True)
class _Eviction:
    """One Node, while Pods are added back that can stay."""

    request: PodRequest
    inventory: NodeInventory
    allowances: Mapping[str, Allowance]
    """What the namespace may take now."""
    ledger: Ledger
    """The Node with the Pods that stay."""
    gone: list[Grant]

    def fits(self) -> bool:
        """Return whether the Pod gets its devices beside the Pods that stay."""
        allowances = {vendor: self._widened(vendor, allowance) for vendor, allowance in self.allowances.items()}
        uses = self.ledger.device_uses(self.inventory.name)
        return isinstance(place(self.request, uses, allowances, self.inventory.pair_scores), Placement)

    def keep(self, grant: Grant) -> bool:
        """Return whether the Pod of *grant* can stay; if so, it is added back."""
        self.ledger.put(grant)
        self.gone.remove(grant)
        if self.fits():
            return True
        self.ledger.drop(grant.uid)
        self.gone.append(grant)
        return False

    def _widened(self, vendor: str, allowance: Allowance) -> Allowance:
        """Return *allowance* plus what the Pods that are gone held of it."""
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
    """Return how important it is that a Pod stays: by priority, then by size."""
    amounts = grant.amounts.values()
    memory_mib, core_percent = sum(a.memory_mib for a in amounts), sum(a.core_percent for a in amounts)
    return grant.priority, memory_mib, core_percent, grant.uid
