"""
Remember since when refused Pods wait, for a metric and its alert.

A Pod whose end the watch missed, and about which kube-scheduler no longer asks, is taken for deleted.
Neighbours: `serve.filter` reports refusals, `serve.listen.metrics` shows the longest wait.
"""

from collections import OrderedDict
from collections.abc import Callable
from datetime import datetime
from itertools import takewhile

ASKED_WITHIN_SECONDS = 600.0
"""
kube-scheduler asks again about each Pod that waits after 5 minutes at the latest.

Source: https://github.com/kubernetes/kubernetes/blob/v1.34.0/pkg/scheduler/backend/queue/scheduling_queue.go
(`DefaultPodMaxInUnschedulablePodsDuration`)
"""
_PODS_REMEMBERED = 20_000


class Waits:
    """The Pods that wait, the one refused last at the end."""

    def __init__(self) -> None:
        self._pods: OrderedDict[str, tuple[datetime, datetime]] = OrderedDict()
        """By UID: when the Pod was created, and when it was last refused."""

    def refused(self, uid: str, created: str, now: datetime) -> None:
        """Remember that the Pod *uid* got no Node; *created* is its creationTimestamp, empty if it has none yet."""
        known = self._pods.pop(uid, None)
        self._pods[uid] = (known[0] if known else _time(created, now), now)
        if len(self._pods) > _PODS_REMEMBERED:
            self._pods.popitem(last=False)

    def ended(self, uid: str) -> None:
        """Forget the Pod *uid*: it has a Node, or is gone."""
        self._pods.pop(uid, None)

    def now(self, now: datetime, is_deleted: Callable[[str], bool]) -> tuple[int, float]:
        """
        Return how many Pods wait, and for how many seconds the oldest of them, 0 if there is none.

        Forgets the Pods for whose UID *is_deleted* returns true.
        """
        for uid in [uid for uid in self._pods if is_deleted(uid)]:
            del self._pods[uid]
        newest_first = reversed(self._pods.values())
        waiting = takewhile(lambda pod: (now - pod[1]).total_seconds() < ASKED_WITHIN_SECONDS, newest_first)
        created = [pod[0] for pod in waiting]
        return len(created), max((now - min(created, default=now)).total_seconds(), 0.0)


def _time(text: str, default: datetime) -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return default
    return found if found.tzinfo else default
