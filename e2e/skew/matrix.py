"""
Which parts talk through what, which versions meet, and the fewest runs in which all of them do.

Owns no cluster. A run has one version of each part before an exchange and one after it, so it covers many pairs at
once. A pair that only runs with problems cover is the suspect.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

TREE = "tree"
"""The version that this tree is."""
WEBHOOK, LEADER, STANDBY, PLUGIN, MONITOR = "webhook", "scheduler-a", "scheduler-b", "device-plugin", "monitor"
EXCHANGED = (WEBHOOK, LEADER, STANDBY, PLUGIN, MONITOR)
"""What a run exchanges. The two replicas of the scheduler are exchanged one after the other."""
CLIENT = "kubectl-hami"
CANDIDATES = 2000
"""How many random runs compete to be the next one of a plan."""

Versions = Mapping[str, str]
"""The version of each of EXCHANGED."""


def part_of(name: str) -> str:
    """Return the released part that *name*, one of EXCHANGED or CLIENT, belongs to."""
    return "scheduler" if name in {LEADER, STANDBY} else name


@dataclass(frozen=True)
class Role:
    """One side of a contract."""

    name: str
    exchanged: str
    """Which of EXCHANGED or CLIENT it is."""
    is_earlier: bool = False
    """Whether it is the version before the exchange, whose files, writes and containers are still there."""


ROLES = {
    role.name: role
    for role in (
        Role("webhook", WEBHOOK),
        Role("scheduler", LEADER),
        Role("other scheduler", STANDBY),
        Role("device-plugin", PLUGIN),
        Role("monitor", MONITOR),
        Role("library of running containers", PLUGIN, is_earlier=True),
        Role("earlier device-plugin", PLUGIN, is_earlier=True),
        Role("earlier monitor", MONITOR, is_earlier=True),
        Role("kubectl-hami", CLIENT),
    )
}
"""By name."""


@dataclass(frozen=True)
class Contract:
    """Two parts that talk."""

    one: Role
    other: Role
    through: str


CONTRACTS = tuple(
    Contract(ROLES[one], ROLES[other], through)
    for one, other, through in (
        ("webhook", "scheduler", "annotations, scheduler name and resources of Pods; use of quotas"),
        ("webhook", "device-plugin", "environment and annotations of Pods"),
        ("webhook", "monitor", "environment and annotations of Pods"),
        ("scheduler", "other scheduler", "Lease, grants, reservations and Bindings in a leader change"),
        ("scheduler", "device-plugin", "annotations of Nodes and Pods, node lock"),
        ("scheduler", "monitor", "grants in annotations of Pods"),
        ("device-plugin", "monitor", "folders and files of containers, inventory in annotations of Nodes"),
        ("library of running containers", "monitor", "regions"),
        ("library of running containers", "scheduler", "grants that are not changed"),
        (
            "earlier device-plugin",
            "device-plugin",
            "CDI specs, library files, regions, annotations, kubelet's checkpoint",
        ),
        ("earlier monitor", "monitor", "file with device time"),
        ("kubectl-hami", "webhook", "metrics"),
        ("kubectl-hami", "scheduler", "metrics, explanations, annotations"),
        ("kubectl-hami", "device-plugin", "metrics, annotations"),
        ("kubectl-hami", "monitor", "metrics"),
    )
)


@dataclass(frozen=True)
class Pair:
    """Two versions that meet by a contract."""

    contract: Contract
    one: str
    other: str

    def __str__(self) -> str:
        return f"{self.contract.one.name}={self.one},{self.contract.other.name}={self.other}"


@dataclass(frozen=True)
class Run:
    """The versions before and after an exchange."""

    before: Versions
    after: Versions

    def meets(self, pair: Pair) -> bool:
        """Return whether both versions of *pair* are in this run. Every version of the client is asked in each."""
        sides = ((pair.contract.one, pair.one), (pair.contract.other, pair.other))
        return all(role.exchanged == CLIENT or self._version(role) == version for role, version in sides)

    def _version(self, role: Role) -> str:
        return (self.before if role.is_earlier else self.after)[role.exchanged]

    def has(self, part: str, version: str) -> bool:
        """Return whether *version* of the released *part* is in this run."""
        return any(
            part_of(name) == part and each[name] == version for each in (self.before, self.after) for name in each
        )

    def __str__(self) -> str:
        changes = (f"{name} {self.before[name]} → {self.after[name]}" for name in EXCHANGED)
        return ", ".join(changes)


def pairs(versions: Mapping[str, Sequence[str]]) -> list[Pair]:
    """Return every pair of *versions*, which are given by released part, of every contract."""
    return [
        Pair(contract, one, other)
        for contract in CONTRACTS
        for one, other in product(
            versions[part_of(contract.one.exchanged)], versions[part_of(contract.other.exchanged)]
        )
    ]


def chosen(wanted: str, among: Sequence[Pair]) -> list[Pair]:
    """
    Return the pairs that `ROLE=VERSION,ROLE=VERSION` names.

    Raises: ValueError if there is none.
    """
    names = {tuple(side.strip().partition("=")[::2]) for side in wanted.split(",")}
    found = [
        pair for pair in among if names == {(pair.contract.one.name, pair.one), (pair.contract.other.name, pair.other)}
    ]
    if not found:
        raise ValueError(f"{wanted} names no pair; an example is {among[0]}")
    return found


def plan(wanted: Sequence[Pair], versions: Mapping[str, Sequence[str]], seed: int) -> Iterator[Run]:
    """Yield runs until each of the *wanted* pairs is met. Parts that none of them names stay this tree's."""
    draw, left = random.Random(seed), set(wanted)
    named = {role.exchanged for pair in wanted for role in (pair.contract.one, pair.contract.other)}
    choices = {name: versions[part_of(name)] if name in named else (TREE,) for name in EXCHANGED}
    while left:
        runs = [
            Run(*({name: draw.choice(each) for name, each in choices.items()} for _ in range(2)))
            for _ in range(CANDIDATES)
        ]
        best = max(runs, key=lambda run: sum(map(run.meets, left)))
        left = {pair for pair in left if not best.meets(pair)}
        yield best
