"""
What is promised to Pods that are not bound yet, and for how long.

A filter makes a reservation. It expires without a bind, and otherwise stays until the Pod is seen bound. It is in
memory alone and ends with the process. Time comes as `now`, in seconds of any steady clock.
Neighbours: `cluster` counts reservations in the ledger.
"""

import math
from collections.abc import Hashable
from dataclasses import dataclass, field
from enum import Enum

from hami_scheduler.values.grant import Grant
from hami_scheduler.values.request import PodRequest

RESERVATION_SECONDS = 60.0
"""
How long a choice is reserved without a bind. It is twice kube-scheduler's extender timeout of 30 s, so that a slow bind
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


@dataclass(frozen=True, slots=True)
class Basis:
    """What a choice was made for, and when."""

    version: str
    """The resourceVersion of the Pod, a precondition of the Binding; empty if it was not known."""
    request: PodRequest
    term: Hashable = None
    """The term of this replica. In another one, other schedulers may have decided since."""


@dataclass(slots=True)
class Reservation:
    """The reservation of one Pod."""

    grant: Grant
    expires_at: float | None
    """None if it must not expire."""
    stage: Stage = Stage.CHOSEN
    is_certain: bool = True
    """False if a Binding may have been written, or may still be."""
    basis: Basis | None = None
    """None if the Pod must be read again before it is bound."""

    @property
    def is_bound(self) -> bool:
        """Whether the Pod is known to be bound, even if it was not seen bound."""
        return self.stage is Stage.WRITTEN and self.is_certain


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

    def put(self, grant: Grant, now: float, basis: Basis | None = None) -> Reservation:
        """Reserve *grant*, chosen for the Pod of *basis*, instead of what was reserved before."""
        reservation = Reservation(grant, now + self.seconds, basis=basis)
        self.take(reservation)
        return reservation

    def all(self) -> tuple[Reservation, ...]:
        """Return every reservation."""
        return tuple(self._by_uid.values())

    def take(self, reservation: Reservation) -> None:
        """Keep *reservation*, made elsewhere, in its stage."""
        self._by_uid[reservation.grant.uid] = reservation
        self._look_at(reservation.expires_at)

    def hold(self, uid: str, until: float) -> None:
        """Let the choice for *uid* expire at *until*, unless its Binding was sent since."""
        reservation = self._by_uid.get(uid)
        if reservation is not None and reservation.stage is Stage.CHOSEN:
            reservation.expires_at = until
            self._look_at(until)

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
        """Note that a Binding for *uid*, if it is still reserved, got no answer: it may be written at any time."""
        reservation = self._by_uid.get(uid)
        if reservation is not None:
            reservation.is_certain = False

    def in_doubt(self) -> tuple[Grant, ...]:
        """Return the grants of Bindings without an answer that nobody waits for any more."""
        return tuple(one.grant for one in self._by_uid.values() if one.stage is Stage.WRITTEN and not one.is_certain)

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
        ends = {uid: one.expires_at for uid, one in self._by_uid.items() if one.expires_at is not None}
        self._soonest = min(ends.values(), default=math.inf)
        return [uid for uid, end in ends.items() if end <= now]

    def _look_at(self, expires_at: float | None) -> None:
        if expires_at is not None:
            self._soonest = min(self._soonest, expires_at)
