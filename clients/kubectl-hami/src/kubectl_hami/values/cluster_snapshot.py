"""
What was read of one cluster at one moment, before anything is concluded from it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from hamicommon.model import Object


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """The objects and metrics of one cluster. What could not be read is empty, and `problems` says why."""

    name: str
    """The name of the context, or of the archive."""
    taken_at: datetime
    nodes: tuple[Object, ...] = ()
    pods: tuple[Object, ...] = ()
    refusals: tuple[Object, ...] = ()
    """The Events in which the scheduler says why a Pod fits nowhere."""
    monitors: Mapping[str, bytes] = field(default_factory=dict)
    """The metrics of each Node's monitor, by Node; no entry if it did not answer."""
    problems: tuple[str, ...] = ()
    """One sentence for each thing that could not be read."""
