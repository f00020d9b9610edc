"""
Decide what the container directories mean: their owners, their region files, and which to delete.

Owns the directory names `<pod UID>_<container>`, the choice of the region file, and the rule for deletion.
Neighbours: `directories` lists and deletes, `regions` opens the chosen file.
Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/monitor/nvidia/cudevshr.go (Update, loadCache)
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

LIBRARY_NAME = "libvgpu.so"
REGION_SUFFIX = ".cache"
REGION_FILES_MAX = 2
"""Entries that look like a region or the library: one of each. With more, the region in use cannot be determined."""

FILE_NAMES_MAX = 128
"""Most names that are read from a directory; a container may fill its directory."""


class ContainerKey(NamedTuple):
    """One container of one Pod, as in a directory name. A tuple, because a scrape looks up a thousand of them."""

    pod_uid: str
    container: str

    def __str__(self) -> str:
        return f"{self.pod_uid}_{self.container}"


@dataclass(frozen=True, slots=True)
class ContainerDirectory:
    """One directory below `<HOOK_PATH>/containers` with a container's name."""

    key: ContainerKey
    file_names: tuple[str, ...] = ()
    """At most FILE_NAMES_MAX names."""


class Refusal(Enum):
    """Why a container's region is not read; the value of the metric's label `reason`."""

    TOO_MANY_FILES = "too-many-files"
    UNREADABLE = "unreadable"
    UNKNOWN_LAYOUT = "unknown-layout"
    TRUNCATED = "truncated"
    TOO_MANY_PROCESSES = "too-many-processes"
    """Smaller regions have used up what one scrape may read."""


@dataclass(frozen=True, slots=True)
class PodCache:
    """The known Pods of this Node, and the age of that knowledge."""

    uids: frozenset[str]
    is_synced: bool
    """False until the first complete list."""
    age_seconds: float
    """Time since the API server last sent anything."""


def parse_directory_name(name: str) -> ContainerKey | None:
    """
    Return the container whose directory is called *name*; None if the device plugin gives no such name.

    The first underscore separates: neither a UID nor a container name contains one.
    """
    pod_uid, _, container = name.partition("_")
    return ContainerKey(pod_uid, container) if pod_uid and container else None


def choose_region_file(file_names: Collection[str]) -> str | Refusal | None:
    """Return the name of the region file, None if there is none yet, or why no file can be chosen."""
    names = sorted(name for name in file_names if LIBRARY_NAME in name or name.endswith(REGION_SUFFIX))
    if len(names) > REGION_FILES_MAX or len(file_names) >= FILE_NAMES_MAX:
        return Refusal.TOO_MANY_FILES
    return next((name for name in names if LIBRARY_NAME not in name), None)


def without_pod(directories: Iterable[ContainerDirectory], pods: PodCache) -> tuple[ContainerKey, ...]:
    """Return those of *directories* that may be abandoned, because their Pod is unknown."""
    return tuple(directory.key for directory in directories if directory.key.pod_uid not in pods.uids)


def abandoned(
    changed_seconds: Mapping[ContainerKey, float], pods: PodCache, now_seconds: float, grace_seconds: float
) -> tuple[ContainerKey, ...]:
    """
    Return the directories whose Pod is gone, of those with the Unix times *changed_seconds* of their last change.

    A directory is created after its Pod. So an unknown Pod is gone only if the API server has sent something since the
    directory changed. Until the first list, and while the watch is silent, no directory counts as abandoned. HAMi's
    rule applies as well: *grace_seconds* must have passed since the last change.
    """
    if not pods.is_synced:
        return ()
    quiet_seconds = max(grace_seconds, pods.age_seconds)
    return tuple(
        key
        for key, changed in changed_seconds.items()
        if key.pod_uid not in pods.uids and now_seconds - changed > quiet_seconds
    )
