"""
What a decision may read of the cluster: the ledger and the quotas, borrowed for as long as it takes.

The ledger keeps changing, so a view is not a copy: nothing may change while a decision reads it, and no decision keeps
one. Neighbours: `cluster` hands views out, everything in `decide` reads them.
"""

from dataclasses import dataclass

from hami_scheduler.state.ledger import Ledger
from hami_scheduler.state.quota import Quotas


@dataclass(frozen=True, slots=True)
class ClusterView:
    """What a decision reads; it must not change while the decision is made."""

    ledger: Ledger
    quotas: Quotas

    @property
    def version(self) -> tuple[int, int]:
        """Equal for two looks between which nothing changed that could change an answer."""
        return self.ledger.version, self.quotas.version
