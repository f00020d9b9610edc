"""
Decide what the folder of container directories means: which are whose, which may go, which file is the region.

Owns the names `<pod UID>_<container>`, the rule that picks the region file of a directory, and the rule for deleting
one. Touches no file and no clock. Neighbours: `directories` lists and deletes, `regions` opens what is chosen here.
Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/monitor/nvidia/cudevshr.go (Update, loadCache)
"""

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum

LIBRARY_NAME = "libvgpu.so"
REGION_SUFFIX = ".cache"
REGION_FILES_MAX = 2
"""Entries that look like a region or the library: one of each. With more of them nothing tells which one is in use."""

FILE_NAMES_MAX = 1000
"""A container may put what it likes into its directory; no more than so many names are looked at."""


@dataclass(frozen=True, slots=True, order=True)
class ContainerKey:
    """One container of one Pod, as a directory name spells it."""

    pod_uid: str
    container: str

    def __str__(self) -> str:
        return f"{self.pod_uid}_{self.container}"


@dataclass(frozen=True, slots=True)
class ContainerDirectory:
    """One entry below `<HOOK_PATH>/containers` that is a directory with a container's name."""

    key: ContainerKey
    modified_seconds: float
    """Unix time of the last entry made or removed in it."""
    file_names: tuple[str, ...] = ()
    """At most FILE_NAMES_MAX of them."""


class Refusal(Enum):
    """Why a container's region is not read. The values are those of the metric's `reason`."""

    TOO_MANY_FILES = "too-many-files"
    UNREADABLE = "unreadable"
    UNKNOWN_LAYOUT = "unknown-layout"
    TRUNCATED = "truncated"


@dataclass(frozen=True, slots=True)
class PodCache:
    """What is known of this Node's Pods, and how old that knowledge is."""

    uids: frozenset[str]
    is_synced: bool
    """False until the first complete list."""
    age_seconds: float
    """Time since the API server's last word."""


def parse_directory_name(name: str) -> ContainerKey | None:
    """
    Return whose directory *name* is, or None for a name the device plugin does not give.

    The first underscore separates: neither a UID nor a container name may hold one.
    """
    pod_uid, _, container = name.partition("_")
    return ContainerKey(pod_uid, container) if pod_uid and container else None


def choose_region_file(file_names: Collection[str]) -> str | Refusal | None:
    """Return the name of the region file, None where there is none yet, or why no file can be chosen."""
    names = sorted(name for name in file_names if LIBRARY_NAME in name or name.endswith(REGION_SUFFIX))
    if len(names) > REGION_FILES_MAX or len(file_names) >= FILE_NAMES_MAX:
        return Refusal.TOO_MANY_FILES
    return next((name for name in names if LIBRARY_NAME not in name), None)


def abandoned(
    directories: Collection[ContainerDirectory], pods: PodCache, now_seconds: float, grace_seconds: float
) -> tuple[ContainerDirectory, ...]:
    """
    Return the directories whose Pod is gone.

    A directory is made after its Pod exists in the API. So a Pod that is unknown is gone only if the API server has
    spoken since the directory changed: until the first list, and as long as the watch is silent, nothing is abandoned.
    HAMi's own margin, *grace_seconds* since the last change, comes on top.
    """
    if not pods.is_synced:
        return ()
    quiet_seconds = max(grace_seconds, pods.age_seconds)
    return tuple(
        directory
        for directory in directories
        if directory.key.pod_uid not in pods.uids and now_seconds - directory.modified_seconds > quiet_seconds
    )
