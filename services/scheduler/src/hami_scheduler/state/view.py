"""
What a decision reads of the cluster: the ledger and the quotas.

A view is borrowed, not a copy: the ledger in it changes with the next event. A decision must finish before that, and
must not keep the view. Neighbours: `cluster` hands views out, everything in `search` reads them.
"""

from dataclasses import dataclass

from hami_scheduler.state.ledger import Ledger
from hami_scheduler.state.quota import Allowance, Quotas
from hami_scheduler.values.inventory import NodeInventory
from hami_scheduler.values.request import PodRequest


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The ledger and the quotas of one cluster, as they are now."""

    ledger: Ledger
    quotas: Quotas

    @property
    def version(self) -> tuple[int, int]:
        """Equal between two moments if nothing changed in between that could change an answer."""
        return self.ledger.version, self.quotas.version

    def inventory(self, node: str) -> NodeInventory:
        """Return what *node* offers, nothing if it is unknown."""
        entry = self.ledger.node(node)
        return entry.inventory if entry else NodeInventory(node)

    def allowances(self, request: PodRequest) -> dict[str, Allowance]:
        """Return what the Pod's namespace may still take, per vendor key asked."""
        vendors = (rules for rules in self.quotas.vendors if rules.key in request.constraints)
        return {rules.key: self.quotas.allowance(request.namespace, rules) for rules in vendors}
