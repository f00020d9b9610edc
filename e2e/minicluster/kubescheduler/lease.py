"""
Leader election.

Owns acquiring, renewing and releasing the Lease of the leader.
Source: k8s.io/client-go/tools/leaderelection.
"""

import asyncio
import contextlib
import socket
import time
import uuid
from datetime import UTC, datetime

from hamicommon.model import Object
from minicluster.client import ApiError, Client
from minicluster.kubescheduler.config import LeaderElection


class LeadershipLostError(Exception):
    """The Lease could not be renewed in time. This process must end."""


class Lease:
    """One candidate for one Lease."""

    def __init__(self, client: Client, election: LeaderElection) -> None:
        self._client = client
        self._election = election
        self._identity = f"{socket.gethostname()}_{uuid.uuid4()}"
        self._collection = f"/apis/coordination.k8s.io/v1/namespaces/{election.namespace}/leases"
        self._seen: tuple[str, float] = ("", 0.0)
        """The last resourceVersion of another holder's Lease, and when it was first seen."""

    async def acquire(self) -> None:
        """Wait until this candidate leads."""
        while True:
            if await self._try():
                return
            await asyncio.sleep(self._election.retry_seconds)

    async def renew(self) -> None:
        """
        Renew until cancelled.

        Raises: LeadershipLostError if that fails for longer than the renew deadline.
        """
        renewed = time.monotonic()
        while True:
            await asyncio.sleep(self._election.retry_seconds)
            if await self._try():
                renewed = time.monotonic()
            elif time.monotonic() - renewed > self._election.renew_seconds:
                raise LeadershipLostError(f"lease {self._election.namespace}/{self._election.name} lost")

    async def release(self) -> None:
        """Release the Lease, so that the next candidate need not wait."""
        with contextlib.suppress(ApiError, KeyError):
            found = await self._client.get(f"{self._collection}/{self._election.name}")
            if found["spec"].get("holderIdentity") == self._identity:
                found["spec"] |= {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": _now()}
                await self._client.replace(f"{self._collection}/{self._election.name}", found)

    async def _try(self) -> bool:
        """Try once to acquire or renew the Lease, and return whether this candidate holds it."""
        try:
            found = await self._client.get(f"{self._collection}/{self._election.name}")
        except ApiError as error:
            return error.status == 404 and await self._create()
        spec = found.setdefault("spec", {})
        holder = spec.get("holderIdentity") or ""
        if holder not in {"", self._identity} and not self._has_expired(found):
            return False
        if holder != self._identity:
            spec["acquireTime"] = _now()
            spec["leaseTransitions"] = spec.get("leaseTransitions", 0) + 1
        spec |= {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": int(self._election.lease_seconds),
            "renewTime": _now(),
        }
        try:
            await self._client.replace(f"{self._collection}/{self._election.name}", found)
        except ApiError:
            return False
        return True

    async def _create(self) -> bool:
        spec = {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": int(self._election.lease_seconds),
            "acquireTime": _now(),
            "renewTime": _now(),
            "leaseTransitions": 0,
        }
        metadata = {"name": self._election.name, "namespace": self._election.namespace}
        body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
        try:
            await self._client.create(self._collection, body)
        except ApiError:
            return False
        return True

    def _has_expired(self, found: Object) -> bool:
        """Return whether the Lease was unchanged for its duration, by this machine's clock only."""
        version = found["metadata"]["resourceVersion"]
        if self._seen[0] != version:
            self._seen = (version, time.monotonic())
            return False
        return time.monotonic() - self._seen[1] > float(found["spec"].get("leaseDurationSeconds") or 0)


def _now() -> str:
    return datetime.now(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
