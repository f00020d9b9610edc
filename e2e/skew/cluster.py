"""
The soak's cluster, whose services are of chosen versions and can be exchanged while it runs.

A release is installed as this tree is: programs in `.venv/bin`, library in `build/native`. So another version of a
service is the same command with other paths. Neighbour: `tools/installed.py` installs the releases.
"""

import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

from harness.cluster import ROOT
from harness.clusters import embedded
from harness.clusters.mixed import LOCKED, MIG
from skew.matrix import CLIENT, EXCHANGED, LEADER, PLUGIN, TREE, Versions, part_of
from soak.cluster import Site
from soak.embedded import IDENTITY, EmbeddedSoakCluster
from testbed.waiting import eventually

RELEASES = ROOT / "build/skew/releases"
STAMP = "installed"
SITE = Site((IDENTITY[0], LOCKED[0], MIG), ("a", "b"))
"""One Node of each way to allocate."""


def installed() -> dict[str, tuple[str, ...]]:
    """Return the versions of each part that can run: the installed releases, oldest first, and this tree."""
    found: dict[str, tuple[str, ...]] = {}
    for part in dict.fromkeys(part_of(name) for name in (*EXCHANGED, CLIENT)):
        stamps = RELEASES.glob(f"{part}-[0-9]*/{STAMP}")
        versions = (stamp.parent.name.removeprefix(f"{part}-") for stamp in stamps)
        found[part] = (*sorted(versions, key=lambda each: tuple(map(int, each.split(".")))), TREE)
    return found


def programs(part: str, version: str) -> Path:
    """Return the folder with the programs of *version* of a released *part*."""
    return embedded.BIN if version == TREE else RELEASES / f"{part}-{version}/.venv/bin"


def _paths(part: str, version: str) -> tuple[str, ...]:
    """Return how the paths of a version's files begin, in the same order for each version."""
    native = embedded.NATIVE if version == TREE else RELEASES / f"{part}-{version}/build/native"
    return f"{programs(part, version)}/", f"{native}/libvgpu.so", f"{native}/hami-limit-hook"


def exchanged_of(process: str) -> str:
    """Return which of EXCHANGED the process *process* of a cluster is."""
    if process == "scheduler":  # until the replicas take its place
        return LEADER
    return PLUGIN if process.startswith("plugin-") else next(name for name in EXCHANGED if process.startswith(name))


def command_of(argv: Sequence[str], part: str, version: str) -> tuple[str, ...]:
    """Return the command *argv* of a service with the programs and the library of another *version*."""
    new = _paths(part, version)
    changed = {old: new[place] for each in installed()[part] for place, old in enumerate(_paths(part, each))}
    return tuple(_replaced(argument, changed) for argument in argv)


def _replaced(argument: str, changed: Mapping[str, str]) -> str:
    for old, new in changed.items():
        name, found, rest = argument.partition(old)
        if found and (not name or name.endswith("=")):
            return f"{name}{new}{rest}"
    return argument


class SkewCluster(EmbeddedSoakCluster):
    """The cluster. `versions` is what runs now."""

    start_seconds = 600.0

    def __init__(self, folder: Path, versions: Versions, site: Site = SITE) -> None:
        super().__init__(folder, site)
        self.versions = dict(versions)

    def _start_service(self, name: str, argv: Sequence[str], environment: Mapping[str, str]) -> None:
        exchanged = exchanged_of(name)
        command = self.command(argv, exchanged, self.versions[exchanged])
        # A release's Python finds `testbed.launch`, which gives a replica its hostname, there.
        super()._start_service(name, command, {**environment, "PYTHONPATH": str(ROOT / "e2e")})

    def command(self, argv: Sequence[str], exchanged: str, version: str) -> tuple[str, ...]:
        """Return the command of a service for *version*."""
        return command_of(argv, part_of(exchanged), version)

    async def exchange(self, exchanged: str, version: str) -> None:
        """
        Replace all processes of one of EXCHANGED, one Node after another, and let the keeper start them.

        Raises: NotInTimeError if one does not become ready.
        """
        self.versions[exchanged] = version
        for name, process in self.processes.items():
            if self._is_service(name) and exchanged_of(name) == exchanged:
                process.argv = self.command(process.argv, exchanged, version)
                ended = process.popen
                await self.end(name, signal.SIGTERM)
                await eventually(lambda: process.popen is not ended, f"{name} ends", self.start_seconds)  # noqa: B023
                await self._ready_again(name)

    def _is_service(self, name: str) -> bool:
        return name.startswith((*EXCHANGED, "plugin-"))
