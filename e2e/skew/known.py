"""
What releases are known to do wrong. A release cannot be changed, so its problems are declared here, with the reason.

A declared problem is shown with its reason and counted. It is none of the tree's.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Known:
    """A problem of one release."""

    part: str
    version: str
    signs: tuple[str, ...]
    """What the sentences contain by which it is found."""
    reason: str
    advisory: str
    """Where users read of it."""

    def __str__(self) -> str:
        return f"known in {self.part} {self.version}: {self.reason} ({self.advisory})"


KNOWN: tuple[Known, ...] = ()
