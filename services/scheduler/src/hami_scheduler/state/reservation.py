"""
What is promised to Pods that are not bound yet, and for how long.

A reservation is chosen by a filter, held while its bind is in progress, and kept after the bind until the Pod is seen
bound. It is in memory alone and ends with the process. Time comes as `now`, in seconds of any steady clock.
Neighbours: `cluster` counts reservations in the ledger.
"""

import math
from dataclasses import dataclass, field
from enum import Enum

from hami_scheduler.values.grant import Grant

RESERVATION_SECONDS = 60.0
"""
How long a choice is held without a bind. It is twice kube-scheduler's extender timeout of 30 s, so that a slow bind
finds it, and short enough that an abandoned scheduling cycle does not block the devices for long.
"""


class Stage(Enum):
    """The state of a reservation."""

    CHOSEN = "chosen"
    """A filter answered with it. It expires."""
    BINDING = "binding"
    """Its Binding is being written. It stays until the answer is known."""
    WRITTEN = "written"
    """Its Binding is written, or may be. It stays until the Pod is seen."""


@dataclass(slots=True)
class Reservation:
    """The reservation of one Pod."""

    grant: Grant
    expires_at: float | None
    """None if it must not expire."""
    stage: Stage = Stage.CHOSEN
    is_certain: bool = True
    """Whether it is known that the Binding was written."""


@dataclass(slots=True)
class Reservations:
    """Reservations of Pods not seen bound, by Pod UID."""

    seconds: float = RESERVATION_SECONDS
    _by_uid: dict[str, Reservation] = field(default_factory=dict)
    _soonest: float = math.inf
    """No reservation expires before this."""

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
        """Hold *reservation*, made elsewhere, in its stage."""
        self._by_uid[reservation.grant.uid] = reservation
        self._look_at(reservation.expires_at)

    def begin_bind(self, uid: str) -> Reservation:
        """Keep the reservation of *uid* until `written` or `drop`, and return it."""
        reservation = self._by_uid[uid]
        reservation.stage, reservation.expires_at = Stage.BINDING, None
        return reservation

    def written(self, uid: str, *, is_certain: bool = True) -> None:
        """Keep the reservation of *uid*, if it still exists, until its Pod is seen."""
        reservation = self._by_uid.get(uid)
        if reservation is not None:
            reservation.stage, reservation.is_certain = Stage.WRITTEN, is_certain

    def doubt(self, uid: str) -> None:
        """Note that a Binding for *uid* got no answer: it may be written even if the next one is refused."""
        self._by_uid[uid].is_certain = False

    def drop(self, uid: str) -> Reservation | None:
        """Forget the reservation of *uid*."""
        return self._by_uid.pop(uid, None)

    def missed(self, seen: set[str], now: float) -> None:
        """Let written reservations expire whose Pods are not among *seen*, a full list: the Pods are gone."""
        for uid, reservation in self._by_uid.items():
            if reservation.stage is Stage.WRITTEN and uid not in seen and reservation.expires_at is None:
                reservation.expires_at = now + self.seconds
                self._look_at(reservation.expires_at)

    def expired(self, now: float) -> list[str]:
        """Return the UIDs of expired reservations."""
        if now < self._soonest:
            return []
        ends = {uid: held.expires_at for uid, held in self._by_uid.items() if held.expires_at is not None}
        self._soonest = min(ends.values(), default=math.inf)
        return [uid for uid, end in ends.items() if end <= now]

    def _look_at(self, expires_at: float | None) -> None:
        if expires_at is not None:
            self._soonest = min(self._soonest, expires_at)
