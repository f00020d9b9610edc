"""
What ResourceClaims hold of each device.

A result names a device of a ResourceSlice, and the slice says which GPU that is. Tokens hold nothing: what they stand
for is in the annotation of their Pod.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from hamicommon.dra.claims import read_claim
from hamicommon.dra.slices import SliceDevice, read_slices
from hamicommon.model import Device
from hamicommon.pod.amounts import NOTHING, Amounts
from harness.history.reading import Holding


@dataclass(frozen=True, slots=True)
class Claim:
    """A ResourceClaim at one version."""

    name: str
    """As `ResourceClaim default/c`."""
    holdings: Mapping[tuple[str, str], Holding]
    """By Node and UUID; empty unless it is allocated."""
    problems: tuple[str, ...]
    """What of it cannot be read, or is allocated and in no slice."""


class Slices:
    """The devices that ResourceSlices list, and have listed."""

    def __init__(self) -> None:
        self._items: dict[str, dict[str, Mapping[str, Any]]] = defaultdict(dict)
        """By Node and name."""
        self._known: dict[tuple[str, str], SliceDevice] = {}
        """By Node and name, as last listed: a slice goes while its claims stay, when a plugin is away."""

    def put(self, item: Mapping[str, Any], *, is_gone: bool) -> tuple[str, ...]:
        """Replace or remove a slice, and return what cannot be read."""
        beside = self._items[item["spec"].get("nodeName", "")]
        beside.pop(item["metadata"]["name"], None)
        if is_gone:
            return ()
        beside[item["metadata"]["name"]] = item
        pools, problems = read_slices(beside.values())
        for node, pool in pools.items():
            self._known |= {(node, name): listed for name, listed in pool.items()}
        return tuple(map(str, problems))

    def read_claim(self, item: Mapping[str, Any]) -> Claim:
        """Return the claim in *item*."""
        found, errors = read_claim(item)
        name = f"ResourceClaim {found}"
        problems = [str(error) for error in errors]
        taken: dict[tuple[str, str], Amounts] = defaultdict(lambda: NOTHING)
        for result in found.results:
            listed = self._known.get((result.pool, result.device))
            if listed is None:
                problems.append(f"{name} was given {result.device} of Node {result.pool}, which no slice lists")
            elif not result.is_admin:
                place = result.pool, listed.device.id
                taken[place] = taken[place].plus(_taken(listed, result.of(listed.device)))
        return Claim(name, {place: Holding(amount) for place, amount in taken.items()}, tuple(problems))

    def offers(self, node: str, uuid: str) -> list[Device]:
        """Return the device as slices have listed it."""
        return [listed.device for (pool, _), listed in self._known.items() if (pool, listed.device.id) == (node, uuid)]


def _taken(listed: SliceDevice, amounts: Amounts) -> Amounts:
    """Return *amounts*; of a MIG instance without compute, because parts of seven are rounded up."""
    return amounts if listed.instance is None else replace(amounts, core_percent=0)
