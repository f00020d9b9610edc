"""
The regions of ResourceClaims that are prepared on this Node.

The device plugin keeps a record of each claim, makes a directory for each of its requests, and removes both. Nothing is
removed here.
Neighbours: `rounds` has the regions of containers, `hami_monitor.decide.claims` says who uses a request.
"""

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

import structlog

from hami_monitor.adapters.directories import Directories
from hami_monitor.adapters.regions import Regions
from hami_monitor.decide.claims import (
    UsedRequest,
    by_container,
    charged,
    request_grants,
    used_by,
    with_claims,
    with_priorities,
)
from hami_monitor.decide.containers import ContainerDirectory, ContainerKey
from hami_monitor.decide.grants import Grant
from hami_monitor.decide.pods import MonitoredPod
from hami_monitor.decide.usage import ContainerUsage
from hamicommon.dra.grants import CLAIMS, RECORDS, ClaimGrant
from hamicommon.model import Share
from hamicommon.runtime.host.claim_records import read_records

_Asked = tuple[tuple[MonitoredPod, ...], tuple[ClaimGrant, ...]]

logger = structlog.get_logger()


class ClaimRegions:
    """What the device plugin has prepared for claims; none on a Node that serves no claims."""

    def __init__(self, hook_path: str) -> None:
        """Use the directories below *hook_path*."""
        self.directories = Directories(hook_path, CLAIMS)
        self.regions = Regions(self.directories.path)
        self.grants: Mapping[ContainerKey, Grant] = {}
        """What each prepared request has, at the last look."""
        self._claims: tuple[ClaimGrant, ...] = ()
        self._last: tuple[_Asked, dict[ContainerKey, UsedRequest]] | None = None
        """Who uses what, as it was asked last: a scrape asks several times."""
        self._listed: tuple[ContainerDirectory, ...] = ()
        self._problems: Mapping[Path, str] = {}

    def look(self) -> None:
        """Read the records, and open the regions that exist now. Raises: OSError."""
        found, problems = read_records(self.directories.path / RECORDS)
        for path in problems.keys() - self._problems.keys():
            logger.warning("The record of a claim is unreadable", file=str(path), error=problems[path])
        self._problems, self._claims = problems, tuple(found.values())
        self.grants = request_grants(self._claims)
        self._listed, _ = self.directories.scan()
        self.regions.follow(self._listed)

    def used_by(self, pods: Iterable[MonitoredPod]) -> dict[ContainerKey, UsedRequest]:
        """Return the request that each container of *pods* uses."""
        asked = tuple(pods), self._claims
        if self._last is None or self._last[0] != asked:
            self._last = asked, used_by(*asked)
        return self._last[1]

    def shown(self, pods: Iterable[MonitoredPod]) -> tuple[MonitoredPod, ...]:
        """Return *pods* with the shares of their claims."""
        known = tuple(pods)
        return with_claims(known, self.used_by(known), self.grants)

    def charged(self, pods: Iterable[MonitoredPod]) -> dict[str, tuple[Share, ...]]:
        """Return the shares whose time each of *pods* is charged with, by UID."""
        known = tuple(pods)
        return charged(known, self.used_by(known), self.grants)

    def prioritized(self, pods: Iterable[MonitoredPod]) -> dict[ContainerKey, Grant]:
        """Return what each prepared request has, with the priority of those of *pods* that use it."""
        known = tuple(pods)
        return with_priorities(self.grants, self.used_by(known), known)

    def usages(self, used: Mapping[ContainerKey, UsedRequest]) -> dict[ContainerKey, ContainerUsage]:
        """Return the use of the request that each container uses, by the container."""
        return by_container(self.regions.usages(self.grants), used)

    def prepared(self, used: Mapping[ContainerKey, UsedRequest]) -> Collection[ContainerKey]:
        """Return the containers whose request has a directory."""
        return by_container(dict.fromkeys(directory.key for directory in self._listed), used)
