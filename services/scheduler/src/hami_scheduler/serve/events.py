"""
Which decisions deserve an Event of their own.

Owns the memory of what was told: kube-scheduler asks about a refused Pod again at every change in the cluster, and each
asking must not become a write. Neighbours: `extender` asks before it tells.
"""

from collections import OrderedDict
from dataclasses import dataclass, field

REPEAT_SECONDS = 300.0
"""How often an unchanged refusal is told again; kube-scheduler itself asks at least this often."""
_PODS_REMEMBERED = 10_000


@dataclass(slots=True)
class EventBook:
    """What was told last about each Pod, and when."""

    _told: OrderedDict[str, tuple[str, float]] = field(default_factory=OrderedDict)

    def is_news(self, uid: str, key: str, now: float) -> bool:
        """Return whether *key*, the kind of what happened to Pod *uid*, should be told at *now*; remember it if so."""
        told = self._told.get(uid)
        if told is not None and told[0] == key and now - told[1] < REPEAT_SECONDS:
            return False
        self._told[uid] = (key, now)
        self._told.move_to_end(uid)
        if len(self._told) > _PODS_REMEMBERED:
            self._told.popitem(last=False)
        return True

    def forget(self, uid: str) -> None:
        """Begin anew with Pod *uid*."""
        self._told.pop(uid, None)
