"""
Remember refused Pods, and wake one if it fits now and kube-scheduler has not asked about it since.

kube-scheduler asks about a refused Pod again at every event of the API server. It may ask before our own watch has
received that event. A reservation that expires and a quota that grows are no event for it at all; it would then ask
again only minutes later. Neighbours: `search.cache` says whether a Pod fits, `serve.filter` reports refusals.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import structlog

from hami_scheduler.errors import ApiRefusedError, ApiUnknownError
from hami_scheduler.search.cache import Memo
from hami_scheduler.state.view import ClusterView
from hami_scheduler.values.request import PodRequest

_PODS_REMEMBERED = 100
"""The last refused; a list of 5000 candidates takes some 300 KiB."""
_NEVER = (-1, -1)
_PODS_TRIED = 8
"""In one pass, so that it takes no longer than a few filters."""

logger = structlog.get_logger()


class WakeApi(Protocol):
    """What a wake-up needs of the API server."""

    async def wake_pod(self, uid: str, namespace: str, name: str) -> None:
        """Change the Pod *uid*, so that kube-scheduler asks about it."""


@dataclass(frozen=True, slots=True)
class _Refused:
    request: PodRequest
    candidates: Sequence[str]
    version: tuple[int, int]
    """Of the view that it did not fit."""
    is_stale: bool = False
    """Whether the cluster it was refused on has been replaced, so that it may fit."""


@dataclass(slots=True)
class Wakeups:
    """Refused Pods, the one refused or tried last at the end."""

    _pods: OrderedDict[str, _Refused] = field(default_factory=OrderedDict)

    def refused(self, request: PodRequest, candidates: Sequence[str], view: ClusterView) -> None:
        """Remember that *request* fits none of *candidates* as *view* is now."""
        self._pods[request.uid] = _Refused(request, candidates, view.version)
        self._pods.move_to_end(request.uid)
        if len(self._pods) > _PODS_REMEMBERED:
            self._pods.popitem(last=False)

    def forget(self, uid: str) -> None:
        """Forget the Pod *uid*: it has a Node, was woken, or is gone."""
        self._pods.pop(uid, None)

    def candidates(self, uid: str) -> Sequence[str] | None:
        """Return the candidates that last refused the Pod *uid*, None if it is unknown."""
        refused = self._pods.get(uid)
        return refused.candidates if refused else None

    def retry_all(self) -> None:
        """Let every Pod be woken once: the cluster that refused it has been replaced."""
        for uid in list(self._pods):
            self._pods[uid] = replace(self._pods[uid], version=_NEVER, is_stale=True)

    async def wake_one(self, view: ClusterView, memo: Memo, api: WakeApi) -> str | None:
        """
        Wake one Pod that fits *view* now, and return its name, None if there is none.

        A Pod is woken once a refusal: if kube-scheduler has other reasons not to ask, waking it again is useless.
        """
        tried = self._overlooked(view, memo)
        if tried is None:
            return None
        request, woken, again = tried.request, None, None
        pod = f"{request.namespace}/{request.name}"
        try:
            await api.wake_pod(request.uid, request.namespace, request.name)
        except ApiRefusedError as error:
            logger.info("A waiting Pod is gone", pod=pod, error=str(error))
        except ApiUnknownError as error:
            again = replace(tried, version=_NEVER)
            logger.warning("A waiting Pod that fits now was not woken", pod=pod, error=str(error))
        else:
            woken = pod
            logger.info("Woke a waiting Pod that fits now", pod=pod)
        if self._pods.get(request.uid) is tried:  # kube-scheduler has not asked about it meanwhile.
            if again is None:
                del self._pods[request.uid]
            else:
                self._pods[request.uid] = again
        return woken

    def _overlooked(self, view: ClusterView, memo: Memo) -> _Refused | None:
        """
        Return a Pod that fits now and was not asked about since *view* changed, None if there is none.

        One at a time: the first Pod that is woken takes its devices, and that change wakes the others.
        """
        version = view.version
        changed = [uid for uid, refused in self._pods.items() if refused.version != version]
        for uid in changed[:_PODS_TRIED]:
            refused = self._pods[uid]
            self._pods[uid] = tried = replace(refused, version=version)
            self._pods.move_to_end(uid)
            if refused.is_stale or memo.search(refused.request, view).choose(refused.candidates) is not None:
                return tried
        return None
