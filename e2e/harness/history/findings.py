"""
What a judge finds: which rule is broken, where, and by which numbers.
"""

from dataclasses import dataclass
from enum import StrEnum


class Rule(StrEnum):
    """What must hold at every version."""

    COUNT = "count"
    """No device has more shares than replicas."""
    MEMORY = "memory"
    """No device has more memory granted than it offers."""
    CORES = "cores"
    """No device has more compute granted than it offers."""
    EXCLUSIVE = "exclusive"
    """A share of all compute of a device is alone there."""
    REQUEST = "request"
    """A grant is what the Pod requests, on devices that it accepts."""
    OFFER = "offer"
    """A granted device is one that its Node offers to new Pods."""
    SIDES = "sides"
    """A ResourceClaim holds no device that Pods can get by resources: each device has one bookkeeper."""
    CHANGED = "changed"
    """A grant never changes after the bind."""
    QUOTA = "quota"
    """No namespace has more than its ResourceQuotas allow."""
    ENVIRONMENT = "environment"
    """A container's environment says what was granted."""
    LIMITS = "limits"
    """A container's limits file says what was granted."""
    LOCK = "lock"
    """A Node's lock ends when its holder is allocated, bound elsewhere, ended or gone."""
    LOST = "lost"
    """A Pod does not wait although it fits."""
    READABLE = "readable"
    """Annotations can be decoded."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule that was broken at one version."""

    rule: Rule
    subject: str
    """The object, as `Pod default/p`."""
    text: str
    """What is wrong with it, with numbers."""
    version: int
    """The first version at which it is wrong."""
    line: int
    """Its line in the history, from 1: the lines up to it are the shortest history that shows it."""

    def __str__(self) -> str:
        return f"{self.rule}: version {self.version} (line {self.line}): {self.subject}: {self.text}"
