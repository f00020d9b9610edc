"""
Find the fewest Pods that must leave a Node so that another Pod gets its devices there: the answer to `/preempt`.

kube-scheduler names, per Node, Pods whose end satisfies its own filters; it knows nothing of shares. A Node where the
Pod would not get its devices even then is dropped, so that no Pod is evicted in vain. Must never name a Pod of the same
or a higher priority to kube-scheduler. Pure over a borrowed view. Neighbours: `place_pod` tries the Node without the
Pods, `remedies` asks which Pods would have to end.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from hami_scheduler.search.place_pod import try_node
from hami_scheduler.search.placement import Placement
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
    lower: list[Grant] = []
    staying: list[Grant] = []
    for grant in may_stay:
        stays = grant.is_claim or grant.priority >= priority or grant.uid in untouchable
        (staying if stays else lower).append(grant)
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
    ledger = Ledger()
    ledger.put_node(inventory)
    for grant in staying:
        ledger.put(grant)
    left = {grant.uid: grant for grant in (*gone, *candidates)}

    def fits() -> bool:
        freed = {vendor: _freed(vendor, request.namespace, left.values()) for vendor in allowances}
        widened = {vendor: allowance.widened_by(*freed[vendor]) for vendor, allowance in allowances.items()}
        return isinstance(try_node(request, inventory.name, ledger, widened), Placement)

    if not fits():
        return None
    by_worth = sorted(candidates, key=_worth, reverse=True)
    for grant in by_worth:
        ledger.put(grant)
        del left[grant.uid]
        if not fits():
            ledger.drop(grant.uid)
            left[grant.uid] = grant
    return [grant for grant in by_worth if grant.uid in left]


def _freed(vendor: str, namespace: str, gone: Iterable[Grant]) -> tuple[int, int]:
    """Return the MiB and percent of *vendor* that Pods of *namespace* among *gone* held."""
    amounts = [
        amount
        for grant in gone
        if grant.namespace == namespace
        for uuid, amount in grant.amounts.items()
        if grant.vendors[uuid] == vendor
    ]
    return sum(amount.memory_mib for amount in amounts), sum(amount.core_percent for amount in amounts)


def _worth(grant: Grant) -> tuple[int, int, int, str]:
    """Return how important it is that a Pod stays: by priority, then by size."""
    amounts = grant.amounts.values()
    memory_mib, core_percent = sum(a.memory_mib for a in amounts), sum(a.core_percent for a in amounts)
    return grant.priority, memory_mib, core_percent, grant.uid
