"""
Tell from its Lease whether the kube-scheduler beside us leads.

We only observe the Lease: the kube-scheduler in this Pod competes for it. Neighbours: `kube` watches the Lease,
`readiness` asks.
Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/util/leaderelection/leaderelection.go
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_DEFAULT_LEASE_SECONDS = 15


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

    def is_leader(self, now: float) -> bool:
        """Return whether the holder is on this host and has renewed in time."""
        if self._spec is None:
            return False
        holder = str(self._spec.get("holderIdentity") or "")
        seconds = self._spec.get("leaseDurationSeconds") or _DEFAULT_LEASE_SECONDS
        is_here = bool(self.hostname) and (holder == self.hostname or holder.startswith(f"{self.hostname}_"))
        return is_here and now - self._seen_at < float(seconds)
