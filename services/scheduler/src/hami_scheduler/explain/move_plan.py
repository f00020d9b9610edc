"""
What a plan of moves says, for JSON.

Neighbours: `defragmentation` makes plans, `movable` says which Pods stay.
"""

from dataclasses import dataclass

from hami_scheduler.explain.movable import Fixed


@dataclass(frozen=True, slots=True)
class Device:
    """A device in a plan."""

    id: str
    index: int | None


@dataclass(frozen=True, slots=True)
class Spot:
    """Devices of one Node."""

    node: str
    devices: tuple[Device, ...]


@dataclass(frozen=True, slots=True)
class Move:
    """One Pod that would move."""

    namespace: str
    pod: str
    owner: str
    leaves: Spot
    gets: Spot
    """As the scheduler would decide now."""
    gains: tuple[str, ...]
    """The waiting Pods that get a device it leaves, or the devices or Nodes that become empty."""


@dataclass(frozen=True, slots=True)
class Fit:
    """A waiting Pod, and what it would get; None if it would still wait."""

    namespace: str
    pod: str
    gets: Spot | None


@dataclass(frozen=True, slots=True)
class Cordon:
    """Devices of one Node that must take no new Pod until all Pods of the plan run elsewhere."""

    node: str
    devices: tuple[str, ...]
    before: tuple[str, ...]
    """Those that are closed already, and stay so."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Which Pods would move, and what that gains."""

    goal: str
    """`pods`, `devices` or `nodes`."""
    moves: tuple[Move, ...] = ()
    """In the order in which the descheduler evicts: the oldest Pod first."""
    fits: tuple[Fit, ...] = ()
    """Of each waiting Pod asked about."""
    empties: tuple[Spot, ...] = ()
    """The devices that become empty, or all devices of the Nodes that do."""
    cordons: tuple[Cordon, ...] = ()
    fixed: tuple[Fixed, ...] = ()
    """The first Pods that hold devices and cannot be moved."""
    fixed_count: int = 0
    tries: int = 0
    is_best: bool = True
    """Whether no set of Pods is better. False if the search ended before it had considered every set."""
