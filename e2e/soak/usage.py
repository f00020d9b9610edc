"""
What the processes of a soak use, and whether it grows.

Source: proc(5)
"""

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from harness.clusters.mixed import part_of
from harness.invariants import samples
from soak.cluster import SoakCluster

SERVICES = ("webhook", "scheduler", "plugin", "monitor")
"""The parts that are judged. The others are the embedded cluster's, and only shown."""
MEMORY_FACTOR, MEMORY_MIB = 1.3, 30.0
MORE_DESCRIPTORS, MORE_THREADS = 20, 12
MORE_WRITES = 6.0
"""How much more the last calm may have than the first: this factor and so many MiB, and so many of the others."""
P99_SECONDS = 2.5
REGION = ".cache"
"""The end of the name of a region that has not been deleted."""
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Usage:
    """What a process uses, or the most that several processes use."""

    memory_mib: float
    descriptors: int
    """Without those of regions, which the monitor keeps open, one for each container of which there is a region."""
    threads: int


async def measure(cluster: SoakCluster) -> dict[str, Usage]:
    """Return the usage of each part, the most of its processes."""
    found: dict[str, list[Usage]] = defaultdict(list)
    for name in dict.fromkeys(cluster.site.parts):
        for pid in await cluster.pids(name):
            with suppress(FileNotFoundError, ProcessLookupError):  # it has ended
                found[part_of(name)].append(_usage(Path(f"/proc/{pid}")))
    return {
        part: Usage(
            max(each.memory_mib for each in usages),
            max(each.descriptors for each in usages),
            max(each.threads for each in usages),
        )
        for part, usages in found.items()
    }


def _usage(process: Path) -> Usage:
    pages = int((process / "statm").read_text().split()[1])
    descriptors = sum(not _is_region(each) for each in (process / "fd").iterdir())
    threads = sum(1 for _ in (process / "task").iterdir())
    return Usage(pages * _PAGE_BYTES / 2**20, descriptors, threads)


def _is_region(descriptor: Path) -> bool:
    try:
        return str(descriptor.readlink()).endswith(REGION)
    except OSError:  # it is closed meanwhile
        return True


def growths(first: Mapping[str, Usage], last: Mapping[str, Usage]) -> Iterator[str]:
    """Yield one sentence for each use of a service that is not flat from the *first* calm to the *last*."""
    for part in SERVICES:
        before, after = first[part], last[part]
        if after.memory_mib > before.memory_mib * MEMORY_FACTOR + MEMORY_MIB:
            yield f"grows: memory of {part} from {before.memory_mib:.0f} to {after.memory_mib:.0f} MiB"
        if after.descriptors > before.descriptors + MORE_DESCRIPTORS:
            yield f"grows: descriptors of {part} from {before.descriptors} to {after.descriptors}"
        if after.threads > before.threads + MORE_THREADS:
            yield f"grows: threads of {part} from {before.threads} to {after.threads}"


def filter_p99_seconds(metrics: str) -> float:
    """Return the bound of the bucket with the 99th percentile of the scheduler's answers to filter; 0 without any."""
    buckets: dict[float, float] = defaultdict(float)
    for labels, value in samples(metrics).get("hami_scheduler_filter_seconds_bucket", []):
        buckets[float(labels["le"])] += value
    total = buckets.get(float("inf"), 0.0)
    return next((bound for bound, value in sorted(buckets.items()) if total and value >= 0.99 * total), 0.0)
