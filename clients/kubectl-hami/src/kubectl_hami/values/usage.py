"""
How much device time was held and used.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DeviceHours:
    """Hours of one whole device, of a namespace, a Pod or a model. A field that the row does not have is None."""

    namespace: str | None
    pod: str | None
    model: str
    held_hours: float
    used_hours: float | None
    """What was used of it; None if nothing measured it."""
    offered_hours: float | None = None
    idle_hours: float | None = None
