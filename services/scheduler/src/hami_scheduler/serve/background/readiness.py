"""
Tell whether this replica can decide, and whether it may.

Ready means that it could decide if it led: in a rolling update the replica that holds the Lease ends only when the next
one is ready. Neighbours: `leader` reads the Lease, `cluster_feed` has the reflectors.
"""

import asyncio
import time
from collections.abc import Callable, Mapping

from hami_scheduler.config import NAME, Config
from hami_scheduler.errors import ApiRefusedError, ApiUnknownError
from hami_scheduler.serve.background.leader import Leadership, Term, term_of
from hami_scheduler.serve.kube.api import leases, read_lease
from hamicommon.model import Object
from hamicommon.runtime.api.kube import Kube, Reflector
from hamicommon.runtime.program.shared_read import SharedRead


class Readiness:
    """What this replica waits for before it decides."""

    def __init__(self, config: Config, kube: Kube, reflectors: Callable[[], Mapping[str, Reflector]]) -> None:
        """Wait for *reflectors*, and for the Lease if *config* says so."""
        self._config = config
        self._kube = kube
        self._followed = reflectors
        self._leadership = Leadership(config.hostname)
        self._started = Term(config.hostname or NAME)
        """The term of a process that need not lead."""
        self._fresh_lease = SharedRead(self._read_lease)
        self.changed = asyncio.Event()
        """Set when a message about the Lease has arrived; who waits for it clears it."""
        self.lease: Reflector | None = None
        """Follows the Lease; None if any replica decides."""
        if config.must_lead:
            self.lease = Reflector(
                kube,
                leases(config.lease_namespace),
                field_selector=f"metadata.name={config.lease_name}",
                replace=self._replace_leases,
                upsert=self._put_lease,
                delete=self._drop_lease,
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
        return None if self.is_leader() else self._is_not_held()

    def is_leader(self) -> bool:
        """Return whether this replica leads, or need not lead to decide."""
        return self.term() is not None

    def term(self) -> Term | None:
        """Return the term in which this replica decides, by the last message about the Lease; None if it does not."""
        return self._leadership.term(time.monotonic()) if self._config.must_lead else self._started

    async def confirm(self, term: Term | None) -> str | None:
        """
        Read the Lease, and return why *term* is not the present one, None if it is.

        The read begins after the call and is consistent. So a replica that leads later has seen all that was written
        before.
        """
        if not self._config.must_lead:
            return None
        try:
            lease = await self._fresh_lease()
        except (ApiRefusedError, ApiUnknownError) as error:
            return f"the lease {self._config.lease_name} could not be read: {error}"
        found = term_of((lease or {}).get("spec") or {}, self._config.hostname)
        return None if found is not None and found == term else self._is_not_held()

    async def _read_lease(self) -> Object | None:
        return await read_lease(self._kube, self._config.lease_namespace, self._config.lease_name)

    def _is_not_held(self) -> str:
        return f"the kube-scheduler on {self._config.hostname} does not hold the lease {self._config.lease_name}"

    def _replace_leases(self, found: list[Object]) -> None:
        for lease in found:
            self._put_lease(lease)

    def _put_lease(self, lease: Object) -> None:
        self._leadership.put(lease, time.monotonic())
        self.changed.set()

    def _drop_lease(self, _: Object) -> None:
        self._leadership.drop()
        self.changed.set()
