"""
Remember who was refused on what, and find those for whom room has appeared since.

kube-scheduler asks about a refused Pod again at every event of the API server. It may ask before our own watch has
brought that event, and a reservation that runs out or a quota that grows is no event for it at all: then nobody asks
again for minutes. Owns a bounded memory of refusals; knows no clock and writes nothing. Neighbours: `memo` decides,
`extender` notes refusals here and wakes who is overlooked.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from hami_scheduler.decide.memo import Memo
from hami_scheduler.state.view import ClusterView
from hami_scheduler.values.request import PodRequest

_PODS_REMEMBERED = 100
"""Refused last; a list of 5000 candidates takes some 300 KiB."""
_NEVER = (-1, -1)
_PODS_LOOKED_AT = 8
"""At one look, so that it takes no longer than a few filters."""


@dataclass(frozen=True, slots=True)
class _Refused:
    request: PodRequest
    candidates: Sequence[str]
    version: tuple[int, int]
    """Of the view it did not fit."""
    is_doubtful: bool = False
    """Whether what was decided on has been replaced, so that nobody knows any more."""


@dataclass(slots=True)
class Waiting:
    """Refused Pods, the one refused or looked at last at the end."""

    _pods: OrderedDict[str, _Refused] = field(default_factory=OrderedDict)

    def refused(self, request: PodRequest, candidates: Sequence[str], view: ClusterView) -> None:
        """Note that *request* fits none of *candidates* as *view* is now."""
        self._pods[request.uid] = _Refused(request, candidates, view.version)
        self._pods.move_to_end(request.uid)
        if len(self._pods) > _PODS_REMEMBERED:
            self._pods.popitem(last=False)

    def forget(self, uid: str) -> None:
        """Drop the Pod *uid*: it has a Node, was woken, or is gone."""
        self._pods.pop(uid, None)

    def asked_about(self, uid: str) -> Sequence[str] | None:
        """Return the candidates the Pod *uid* was refused on last, None where that is not remembered."""
        refused = self._pods.get(uid)
        return refused.candidates if refused else None

    def look_again(self, uid: str) -> None:
        """Let the next look find the Pod *uid* though nothing changes: it was found, but could not be woken."""
        if uid in self._pods:
            self._pods[uid] = replace(self._pods[uid], version=_NEVER)

    def doubt(self) -> None:
        """Let every Pod be asked about once more: what they were refused by holds no longer."""
        for uid in list(self._pods):
            self._pods[uid] = replace(self._pods[uid], version=_NEVER, is_doubtful=True)

    def overlooked(self, view: ClusterView, memo: Memo) -> PodRequest | None:
        """
        Return a Pod that fits now and has not been asked about since *view* changed; None where there is none.

        One at a time: whoever is woken first takes the room, and that wakes the others.
        """
        version = view.version
        changed = [uid for uid, refused in self._pods.items() if refused.version != version]
        for uid in changed[:_PODS_LOOKED_AT]:
            refused = self._pods[uid]
            self._pods[uid] = replace(refused, version=version)
            self._pods.move_to_end(uid)
            if refused.is_doubtful or memo.fits_any(refused.request, refused.candidates, view):
                return refused.request
        return None
