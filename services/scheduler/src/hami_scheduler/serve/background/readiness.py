"""
Tell whether this replica can decide, and whether it may.

Ready means that it could decide if it led: in a rolling update the replica that holds the Lease ends only when the next
one is ready. Neighbours: `leader` reads the Lease, `cluster_feed` has the reflectors.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any

from hami_scheduler.config import Config
from hami_scheduler.serve.background.leader import Leadership
from hami_scheduler.serve.kube import api
from hamicommon.runtime.api.kube import Kube, Reflector

Object = dict[str, Any]


class Readiness:
    """What this replica waits for before it decides."""

    def __init__(self, config: Config, kube: Kube, reflectors: Callable[[], Mapping[str, Reflector]]) -> None:
        """Wait for *reflectors*, and for the Lease if *config* says so."""
        self._config = config
        self._followed = reflectors
        self._leadership = Leadership(config.hostname)
        self.lease: Reflector | None = None
        """Follows the Lease; None if any replica decides."""
        if config.must_lead:
            self.lease = api.lease(
                kube,
                config.lease_namespace,
                config.lease_name,
                self._replace_leases,
                self._put_lease,
                lambda _: self._leadership.drop(),
            )

    @property
    def reflectors(self) -> dict[str, Reflector]:
        """Everything that is followed, by collection."""
        return {**self._followed(), **({"leases": self.lease} if self.lease else {})}

    def watch_ages(self) -> dict[str, tuple[float, int]]:
        """Return by collection the seconds since the last message, and the number of lists after the first."""
        return {name: (found.age_seconds(), found.restarts) for name, found in self.reflectors.items()}

    def unsynced(self) -> str | None:
        """Return why this replica could not decide even if it led, None if it could."""
        waiting = [name for name, reflector in self.reflectors.items() if not reflector.synced.is_set()]
        return f"the first list of {', '.join(waiting)} has not arrived from the API server" if waiting else None

    def blocked(self) -> str | None:
        """Return why no decision can be made now, None if it can."""
        unsynced = self.unsynced()
        if unsynced:
            return unsynced
        if not self.is_leader():
            return f"the kube-scheduler on {self._config.hostname} does not hold the lease {self._config.lease_name}"
        return None

    def is_leader(self) -> bool:
        """Return whether this replica leads, or need not lead to decide."""
        return not self._config.must_lead or self._leadership.is_leader(time.monotonic())

    def _replace_leases(self, leases: list[Object]) -> None:
        for lease in leases:
            self._put_lease(lease)

    def _put_lease(self, lease: Object) -> None:
        self._leadership.put(lease, time.monotonic())
