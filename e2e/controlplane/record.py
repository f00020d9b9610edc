"""
The file `cluster.json` in the folder of a cluster.

Owns its form. It is written before the things that it lists are made, so that a later run finds all of them.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from testbed.driver.hardware import FakeGpu, FakeNode

FILE = "cluster.json"
NODES_MAX = 200


class RecordError(Exception):
    """The record is not of the form that this code writes. The message names the file and the reason."""


@dataclass(frozen=True)
class Member:
    """A node of the cluster."""

    index: int
    """From 1. Decides its addresses."""
    hardware: FakeNode


@dataclass(frozen=True)
class Record:
    """The intended state of a cluster."""

    kubernetes: str
    """The minor version."""
    programs: str
    """The folder of its programs."""
    port: int
    """The port of the API server on this machine's loopback."""
    nodes: Mapping[str, Member] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: Path) -> Self | None:
        """Return the record in *folder*, or None if there is none. Raises: RecordError, if other code wrote it."""
        path = folder / FILE
        try:
            content = json.loads(path.read_text())
            nodes = {
                name: Member(node["index"], _hardware(**node["hardware"])) for name, node in content["nodes"].items()
            }
            return cls(content["kubernetes"], content["programs"], content["port"], nodes)
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise RecordError(f"{path} was not written by this code ({type(error).__name__}: {error})") from error

    def write(self, folder: Path) -> None:
        """Write this record into *folder*, atomically."""
        draft = folder / f"{FILE}.new"
        draft.write_text(json.dumps(asdict(self)))
        draft.rename(folder / FILE)

    def joined_by(self, hardware: FakeNode) -> Self:
        """Return this record with one more node, at the first free index, or with new hardware for a known node."""
        taken = {member.index for member in self.nodes.values()}
        free = next(index for index in range(1, NODES_MAX) if index not in taken)
        known = self.nodes.get(hardware.name)
        return replace(self, nodes={**self.nodes, hardware.name: Member(known.index if known else free, hardware)})

    def without(self, name: str) -> Self:
        """Return this record without the node *name*."""
        return replace(self, nodes={other: member for other, member in self.nodes.items() if other != name})


def _hardware(name: str, gpus: list[dict[str, Any]], **more: Any) -> FakeNode:
    return FakeNode(name, tuple(FakeGpu(**gpu) for gpu in gpus), **more)
