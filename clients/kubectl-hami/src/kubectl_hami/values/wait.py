"""
What would let a waiting Pod start.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Remedy:
    """The scheduler's answer about one waiting Pod."""

    cause: str
    """Why no Node takes it now; empty if one does."""
    changes: tuple[str, ...]
    """Changes after which it would fit, each alone or one pair, cheapest first: `with ... (node n1)`."""
    node: str
    """The Node that it would get now; empty if none."""
