"""
Remember refused Pods, and wake one if it fits now and kube-scheduler has not asked about it since.

kube-scheduler asks about a refused Pod again at every event of the API server. It may ask before our own watch has
received that event. A reservation that expires and a quota that grows are no event for it at all; it would then ask
again only minutes later. Neighbours: `search.cache` says whether a Pod fits, `serve.filter` reports refusals.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Protocol

import structlog

from hami_scheduler.errors import ApiRefusedError, ApiUnknownError
from hami_scheduler.search.cache import Memo
from hami_scheduler.state.view import ClusterView
from hami_scheduler.values.request import PodRequest

_PODS_REMEMBERED = 5000
"""The last refused."""
_LISTS_REMEMBERED = 100
"""Lists of candidates, the last ones; one of 5000 names takes some 300 KiB. Most Pods have one in common."""
_LISTS_COMPARED = 8
_NEVER = (-1, -1)
_GROUPS_TRIED = 8
"""In one pass, so that it takes no longer than a few filters."""
_PODS_ASKED = 8
"""Of one group in one pass, whether they may be woken."""

_Key = tuple[int, str, Hashable]
"""The list of candidates, the namespace and the kind."""

MayWake = Callable[[str], bool]
"""Returns whether it is of use to wake the Pod of a UID now."""

logger = structlog.get_logger()


class WakeApi(Protocol):
    """What a wake-up needs of the API server."""

    async def wake_pod(self, uid: str, namespace: str, name: str) -> None:
        """Change the Pod *uid*, so that kube-scheduler asks about it."""


@dataclass(slots=True, eq=False)
class _Group:
    """Refused Pods of one kind, namespace and list of candidates: all of them fit, or none."""

    candidates: Sequence[str]
    version: tuple[int, int] = _NEVER
    """Of the view that they did not fit."""
    pods: OrderedDict[str, PodRequest] = field(default_factory=OrderedDict)
    """By UID, the one refused or tried last at the end."""
    stale: set[str] = field(default_factory=set)
    """UIDs of those that were refused on a cluster that has been replaced, so that they may fit."""

    def misfits(self, version: tuple[int, int]) -> None:
        """Remember that it does not fit at *version*; Pods that are stale are tried all the same."""
        self.version = _NEVER if self.stale else version

    def next_to_try(self, may_wake: MayWake) -> PodRequest | None:
        """Return the first Pod that may be woken, None if the first few may not; all of them then stand at the end."""
        for uid in list(islice(self.pods, _PODS_ASKED)):
            self.pods.move_to_end(uid)
            if may_wake(uid):
                return self.pods[uid]
        return None


@dataclass(slots=True)
class Wakeups:
    """Refused Pods, and those of a group that has been tried last at the end."""

    _lists: OrderedDict[int, Sequence[str]] = field(default_factory=OrderedDict)
    """Different lists of candidates by `id`, the one used last at the end."""
    _groups: OrderedDict[_Key, _Group] = field(default_factory=OrderedDict)
    """By list, namespace and kind; the one tried last at the end."""
    _keys: OrderedDict[str, _Key] = field(default_factory=OrderedDict)
    """The key of each Pod's group by UID, the Pod refused last at the end."""

    def refused(self, request: PodRequest, candidates: Sequence[str], view: ClusterView | None) -> None:
        """Remember that *request* fits none of *candidates* as *view* is now; None if it may fit as it is."""
        self.forget(request.uid)
        names = self._shared(candidates)
        key = id(names), request.namespace, request.kind
        group = self._groups.setdefault(key, _Group(names))
        group.misfits(view.version if view else _NEVER)
        group.pods[request.uid] = request
        self._keys[request.uid] = key
        if len(self._keys) > _PODS_REMEMBERED:
            self.forget(next(iter(self._keys)))

    def forget(self, uid: str) -> None:
        """Forget the Pod *uid*: it has a Node, was woken, or is gone."""
        key = self._keys.pop(uid, None)
        if key is not None:
            group = self._groups[key]
            del group.pods[uid]
            group.stale.discard(uid)
            if not group.pods:
                del self._groups[key]

    def candidates(self, uid: str) -> Sequence[str] | None:
        """Return the candidates that last refused the Pod *uid*, None if it is unknown."""
        key = self._keys.get(uid)
        return None if key is None else self._groups[key].candidates

    def retry_all(self) -> None:
        """Let every Pod be woken once: the cluster that refused it has been replaced."""
        for group in self._groups.values():
            group.stale, group.version = {*group.pods}, _NEVER

    async def wake_one(
        self, view: ClusterView, memo: Memo, api: WakeApi, may_wake: MayWake = lambda _: True
    ) -> str | None:
        """
        Wake one Pod that fits *view* now, and return its name, None if there is none.

        *may_wake* says of a UID whether that Pod is of use now; it may be a member of a gang.

        A Pod is woken once a refusal: if kube-scheduler has other reasons not to ask, waking it again is useless.
        """
        request = self._overlooked(view, memo, may_wake)
        if request is None:
            return None
        pod = f"{request.namespace}/{request.name}"
        try:
            await api.wake_pod(request.uid, request.namespace, request.name)
        except ApiUnknownError as error:
            logger.warning("A waiting Pod that fits now was not woken", pod=pod, error=str(error))
            return None
        except ApiRefusedError as error:
            logger.info("A waiting Pod is gone", pod=pod, error=str(error))
            woken = None
        else:
            logger.info("Woke a waiting Pod that fits now", pod=pod)
            woken = pod
        if self._request(request.uid) is request:  # kube-scheduler has not asked about it meanwhile.
            self.forget(request.uid)
        return woken

    def _overlooked(self, view: ClusterView, memo: Memo, may_wake: MayWake) -> PodRequest | None:
        """
        Return a Pod that fits now and was not asked about since *view* changed, None if there is none.

        One at a time: the first Pod that is woken takes its devices, and that change wakes the others.
        """
        changed = [key for key, group in self._groups.items() if group.version != view.version]
        for key in changed[:_GROUPS_TRIED]:
            self._groups.move_to_end(key)
            group = self._groups[key]
            request = group.next_to_try(may_wake)
            if request is None:
                continue
            if request.uid in group.stale or memo.search(request, view).choose(group.candidates) is not None:
                return request
            group.misfits(view.version)
        return None

    def _request(self, uid: str) -> PodRequest | None:
        key = self._keys.get(uid)
        return None if key is None else self._groups[key].pods[uid]

    def _shared(self, candidates: Sequence[str]) -> Sequence[str]:
        """Return *candidates*, or a list with the same names that other Pods have."""
        recent = list(islice(reversed(self._lists.values()), _LISTS_COMPARED))
        known = next((names for names in recent if names == candidates), candidates)
        self._lists[id(known)] = known
        self._lists.move_to_end(id(known))
        if len(self._lists) > _LISTS_REMEMBERED:
            oldest, _ = self._lists.popitem(last=False)
            for uid in [uid for uid, key in self._keys.items() if key[0] == oldest]:
                self.forget(uid)
        return known
