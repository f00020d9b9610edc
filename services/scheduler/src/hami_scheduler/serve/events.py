"""
Decide which refusals become Events.

kube-scheduler asks about a refused Pod again at every change in the cluster, and not every call may become a write.
Neighbours: `filter` asks before it writes an Event.
"""

from collections import OrderedDict
from dataclasses import dataclass, field

REPEAT_SECONDS = 300.0
"""How often an unchanged refusal is reported again; kube-scheduler asks at least this often."""
_PODS_REMEMBERED = 10_000


@dataclass(slots=True)
class EventBook:
    """The last Event about each Pod, and when it was written."""

    _reported: OrderedDict[str, tuple[str, float]] = field(default_factory=OrderedDict)

    def is_news(self, uid: str, key: str, now: float) -> bool:
        """Return whether *key*, a kind of refusal of Pod *uid*, is worth an Event at *now*; if so, remember it."""
        last = self._reported.get(uid)
        if last is not None and last[0] == key and now - last[1] < REPEAT_SECONDS:
            return False
        self._reported[uid] = (key, now)
        self._reported.move_to_end(uid)
        if len(self._reported) > _PODS_REMEMBERED:
            self._reported.popitem(last=False)
        return True

    def forget(self, uid: str) -> None:
        """Forget what was reported about Pod *uid*."""
        self._reported.pop(uid, None)
