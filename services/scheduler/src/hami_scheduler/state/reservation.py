"""
What is promised to Pods that are not bound yet, and for how long.

Owns the life of a reservation: chosen by a filter, held while its bind is in flight, kept after the bind until the
Pod is seen bound. Lives in memory alone; dies with the process. Time comes as `now`, in seconds of any steady clock.
Neighbours: `cluster` keeps the ledger in step.
"""

import math
from dataclasses import dataclass, field
from enum import Enum

from hami_scheduler.values.grant import Grant

RESERVATION_SECONDS = 60.0
"""
How long a choice is held for a bind that does not come: twice kube-scheduler's 30 s extender timeout, so that a slow
bind finds it, and short enough that a scheduling cycle given up by kube-scheduler costs nobody room for long.
"""


class Stage(Enum):
    """How far a reservation has come."""

    CHOSEN = "chosen"
    """A filter answered with it; it expires."""
    BINDING = "binding"
    """Its Binding is being written; it stays until the answer is known."""
    WRITTEN = "written"
    """Its Binding is written, or may be; it stays until the Pod is seen."""


@dataclass(slots=True)
class Reservation:
    """One Pod's promise."""

    grant: Grant
    expires_at: float | None
    """None while it must not expire."""
    stage: Stage = Stage.CHOSEN
    is_certain: bool = True
    """False where the Binding may or may not have been written."""


@dataclass(slots=True)
class Reservations:
    """Every promise to a Pod not seen bound, by Pod UID."""

    seconds: float = RESERVATION_SECONDS
    _by_uid: dict[str, Reservation] = field(default_factory=dict)
    _soonest: float = math.inf
    """Before this none expires."""

    def __len__(self) -> int:
        return len(self._by_uid)

    def __contains__(self, uid: str) -> bool:
        return uid in self._by_uid

    def get(self, uid: str) -> Reservation | None:
        """Return the reservation of Pod *uid*."""
        return self._by_uid.get(uid)

    def put(self, grant: Grant, now: float) -> Reservation:
        """Hold *grant* for its Pod, instead of what was held before."""
        reservation = Reservation(grant, now + self.seconds)
        self.take(reservation)
        return reservation

    def all(self) -> tuple[Reservation, ...]:
        """Return every reservation."""
        return tuple(self._by_uid.values())

    def take(self, reservation: Reservation) -> None:
        """Hold *reservation*, made elsewhere, as far as it has come."""
        self._by_uid[reservation.grant.uid] = reservation
        self._look_at(reservation.expires_at)

    def begin_bind(self, uid: str) -> Reservation:
        """Keep the reservation of *uid* until `written` or `drop`, and return it."""
        reservation = self._by_uid[uid]
        reservation.stage, reservation.expires_at = Stage.BINDING, None
        return reservation

    def written(self, uid: str, *, is_certain: bool = True) -> None:
        """Keep the reservation of *uid*, if it still is one, until its Pod is seen."""
        reservation = self._by_uid.get(uid)
        if reservation is not None:
            reservation.stage, reservation.is_certain = Stage.WRITTEN, is_certain

    def doubt(self, uid: str) -> None:
        """Note that a Binding for *uid* got no answer: it may be written, also when the next one is refused."""
        self._by_uid[uid].is_certain = False

    def drop(self, uid: str) -> Reservation | None:
        """Forget the reservation of *uid*."""
        return self._by_uid.pop(uid, None)

    def missed(self, seen: set[str], now: float) -> None:
        """Let written reservations whose Pods are not among *seen*, all there are, expire: the Pods are gone."""
        for uid, reservation in self._by_uid.items():
            if reservation.stage is Stage.WRITTEN and uid not in seen and reservation.expires_at is None:
                reservation.expires_at = now + self.seconds
                self._look_at(reservation.expires_at)

    def expired(self, now: float) -> list[str]:
        """Return the UIDs whose time is over."""
        if now < self._soonest:
            return []
        ends = {uid: held.expires_at for uid, held in self._by_uid.items() if held.expires_at is not None}
        self._soonest = min(ends.values(), default=math.inf)
        return [uid for uid, end in ends.items() if end <= now]

    def _look_at(self, expires_at: float | None) -> None:
        if expires_at is not None:
            self._soonest = min(self._soonest, expires_at)
