"""
Tell from its Lease whether the kube-scheduler beside us leads.

We only observe the Lease: the kube-scheduler in this Pod competes for it. A watch may be late, so this alone never
allows a write. Neighbours: `kube` watches the Lease, `readiness` asks, and reads the Lease again before a write.
Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/util/leaderelection/leaderelection.go
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_DEFAULT_LEASE_SECONDS = 15


@dataclass(frozen=True, slots=True)
class Term:
    """One unbroken time for which one kube-scheduler holds the Lease."""

    holder: str
    transitions: int = 0
    """How often the Lease has changed hands."""
    acquired: str = ""
    """When, by the clock of the holder. A Lease that was deleted begins to count again, so this tells terms apart."""

    def __str__(self) -> str:
        return f"{self.holder}, term {self.transitions}"


@dataclass(slots=True)
class Leadership:
    """The last Lease seen, and when, in seconds of any steady clock."""

    hostname: str
    """kube-scheduler's identity is this, or this with `_` and an ID."""
    _spec: Mapping[str, Any] | None = None
    _seen_at: float = 0.0

    def put(self, lease: Mapping[str, Any], now: float) -> None:
        """Take *lease*. An unchanged Lease is ignored, because only a renewal shows that the holder is alive."""
        spec = lease.get("spec") or {}
        if spec != self._spec:
            self._spec, self._seen_at = spec, now

    def drop(self) -> None:
        """Forget the Lease: it was deleted."""
        self._spec = None

    def term(self, now: float) -> Term | None:
        """Return the present term if its holder is on this host and has renewed in time, else None."""
        if self._spec is None:
            return None
        seconds = self._spec.get("leaseDurationSeconds") or _DEFAULT_LEASE_SECONDS
        return term_of(self._spec, self.hostname) if now - self._seen_at < float(seconds) else None


def term_of(spec: Mapping[str, Any], hostname: str) -> Term | None:
    """Return the term that the *spec* of a Lease names, None if its holder is not on the host *hostname*."""
    holder = str(spec.get("holderIdentity") or "")
    if not hostname or not (holder == hostname or holder.startswith(f"{hostname}_")):
        return None
    return Term(holder, int(spec.get("leaseTransitions") or 0), str(spec.get("acquireTime") or ""))
