"""
Make sure that a Binding sent earlier can no longer take effect.

A Binding carries the resourceVersion of the Pod that it was decided for. A fence is a write to the Pod that surely
changes it. Once it is answered, every Binding sent before has either been carried out, which the answer shows, or never
will be. Must never guess: without an answer the outcome stays unknown. Neighbours: `bind_writer` asks about its own
Bindings, `takeover` fences every waiting Pod before a new leader decides.
Source: https://github.com/kubernetes/kubernetes/blob/v1.34.4/pkg/registry/core/pod/storage/storage.go
(`setPodNodeAndMetadata`)
"""

import asyncio
import secrets
from dataclasses import dataclass, field
from itertools import count
from typing import Protocol

import structlog

from hami_scheduler.bind.plan import can_be_bound
from hami_scheduler.errors import ApiRefusedError, ApiUnknownError
from hami_scheduler.state.cluster import Cluster
from hamicommon.model import Object

AT_ONCE = 32
"""Fences in progress. One takes some milliseconds, so thousands take seconds."""


logger = structlog.get_logger()


class FenceApi(Protocol):
    """What a fence needs of the API server."""

    async def read_pod(self, namespace: str, name: str) -> Object | None:
        """Return the Pod, None if it does not exist."""

    async def mark_pod(self, uid: str, namespace: str, name: str, mark: str) -> Object:
        """Set *mark* as a condition of the Pod *uid*, and return the Pod."""


@dataclass(slots=True)
class Marks:
    """The texts of fences. No two are equal, over all processes, so that each fence changes its Pod."""

    owner: str = "a scheduler without leader election"
    """Whose fences they are, for people."""
    _process: str = field(default_factory=lambda: secrets.token_hex(8))
    _numbers: "count[int]" = field(default_factory=lambda: count(1))

    def next(self) -> str:
        """Return a new text."""
        return f"{self.owner}, fence {self._process}-{next(self._numbers)}"


@dataclass(frozen=True, slots=True)
class PodName:
    """Which Pod: the UID counts, the names find it."""

    uid: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


async def fence(api: FenceApi, pod: PodName, mark: str) -> Object | None:
    """
    Write a fence to *pod* and return the Pod as it is then, None if it is gone. It may be bound.

    Raises:
        ApiRefusedError: the write was refused, and a Binding could still bind the Pod.
        ApiUnknownError: there was no answer.
    """
    try:
        return await api.mark_pod(pod.uid, pod.namespace, pod.name, mark)
    except ApiRefusedError:
        found = await _read(api, pod)
        if found is not None and can_be_bound(found):
            raise
        return found


async def find_out(api: FenceApi, pod: PodName, marks: Marks) -> Object | None:
    """
    Return *pod* as it is now, None if it is gone; write a fence only if a Binding could still bind it.

    Raises:
        ApiRefusedError, ApiUnknownError: as `fence`, or the Pod cannot be read.
    """
    found = await _read(api, pod)
    return await fence(api, pod, marks.next()) if found is not None and can_be_bound(found) else found


async def _read(api: FenceApi, pod: PodName) -> Object | None:
    """Return *pod* as it is now, None if it is gone, also if another has its name."""
    found = await api.read_pod(pod.namespace, pod.name)
    return found if found is not None and found["metadata"].get("uid") == pod.uid else None


def is_bound(pod: Object | None) -> bool:
    """Return whether *pod* has a Node."""
    return pod is not None and bool((pod.get("spec") or {}).get("nodeName"))


def take_outcome(cluster: Cluster, uid: str, pod: Object | None) -> None:
    """Take *pod*, the Pod *uid* after a fence, None if it is gone: no Binding sent before it may be waited for."""
    if pod is not None and is_bound(pod):
        cluster.put_read(pod)
    else:
        cluster.fenced(uid)


async def find_outcomes(cluster: Cluster, api: FenceApi, marks: Marks) -> bool:
    """
    Find out what became of Bindings without an answer, and return whether all is known now.

    What stays unknown stays reserved.
    """
    turns = asyncio.Semaphore(AT_ONCE)

    async def find_one(pod: PodName) -> None:
        """Find out about one *pod*."""
        async with turns:
            try:
                found = await find_out(api, pod, marks)
            except (ApiRefusedError, ApiUnknownError) as error:
                logger.warning(
                    "A bind may still take effect, so its devices stay reserved", pod=str(pod), error=str(error)
                )
                return
        take_outcome(cluster, pod.uid, found)
        logger.info("The outcome of a bind is known", pod=str(pod), is_bound=is_bound(found))

    grants = cluster.reservations.in_doubt()
    await asyncio.gather(*(find_one(PodName(grant.uid, grant.namespace, grant.name)) for grant in grants))
    return not cluster.reservations.in_doubt()
