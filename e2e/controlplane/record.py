"""
What a cluster's folder says about the cluster as a whole: `cluster.json`.

Owns its form. Written before anything it tells of is made, so that a later run finds all there may be.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Self

from testbed.hardware import FakeGpu, FakeNode

FILE = "cluster.json"
NODES_MAX = 200


@dataclass(frozen=True)
class Member:
    """A node of the cluster."""

    index: int
    """1 and up; decides its addresses."""
    hardware: FakeNode


@dataclass(frozen=True)
class Record:
    """A cluster, as it was last meant to be."""

    kubernetes: str
    """The minor."""
    programs: str
    """Folder of the programs it runs."""
    port: int
    """Of the loopback of this machine, where the API server is reached."""
    nodes: Mapping[str, Member] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: Path) -> Self | None:
        """Return what *folder* says, None if it says nothing."""
        try:
            content = json.loads((folder / FILE).read_text())
        except FileNotFoundError:
            return None
        nodes = {
            name: Member(node["index"], FakeNode(name, tuple(FakeGpu(**gpu) for gpu in node["hardware"]["gpus"])))
            for name, node in content["nodes"].items()
        }
        return cls(content["kubernetes"], content["programs"], content["port"], nodes)

    def write(self, folder: Path) -> None:
        """Say this in *folder*, in one step."""
        draft = folder / f"{FILE}.new"
        draft.write_text(json.dumps(asdict(self)))
        draft.rename(folder / FILE)

    def joined_by(self, hardware: FakeNode) -> Self:
        """Return this with one node more, or with other hardware for one that is known; its index is the first free."""
        taken = {member.index for member in self.nodes.values()}
        free = next(index for index in range(1, NODES_MAX) if index not in taken)
        known = self.nodes.get(hardware.name)
        return replace(self, nodes={**self.nodes, hardware.name: Member(known.index if known else free, hardware)})

    def without(self, name: str) -> Self:
        """Return this with the node *name* left out."""
        return replace(self, nodes={other: member for other, member in self.nodes.items() if other != name})
