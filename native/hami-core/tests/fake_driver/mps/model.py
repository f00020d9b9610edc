"""
Servers, namespaces and their limits, as commands and the configuration file give them.

Owns the rules for names and values. Knows no socket and no process.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

DEFAULT = "default"
"""The namespace that every server has."""
WHOLE = 100.0
UNLIMITED = "unlimited"
_NAME = re.compile(r"[a-z0-9_]{1,64}")
_MEMORY = re.compile(r"[1-9][0-9]*[KMG]")
_SHIFTS = {"K": 10, "M": 20, "G": 30}


class MpsError(Exception):
    """A command or a configuration that MPS rejects. The message is the answer."""


@dataclass(frozen=True)
class Limits:
    """What a namespace allows each of its clients on each GPU."""

    percentage: float = WHOLE
    """Active thread percentage, 1 to 100."""
    memory: str = UNLIMITED
    """Pinned memory limit, with the suffix K, M or G."""
    priority: int = 0
    """Client priority: 0 normal, 1 below normal."""

    @property
    def memory_bytes(self) -> int:
        """The pinned memory limit in bytes; 0 means none."""
        return 0 if self.memory == UNLIMITED else int(self.memory[:-1]) << _SHIFTS[self.memory[-1]]

    def changed(self, options: Mapping[str, str]) -> "Limits":
        """
        Return these limits with *options*, whose keys are those of the command line without dashes.

        Raises:
            MpsError: a value is not valid.
        """
        changed = self
        if (text := options.get("active-thread-percentage")) is not None:
            changed = replace(changed, percentage=_percentage(text))
        if (text := options.get("pinned-memory-limit")) is not None:
            changed = replace(changed, memory=_checked(text, _MEMORY, "pinned memory limit"))
        if (text := options.get("client-priority")) is not None:
            changed = replace(changed, priority=int(_checked(text, re.compile("[01]"), "client priority")))
        return changed


LIMIT_OPTIONS = frozenset({"active-thread-percentage", "pinned-memory-limit", "client-priority"})
"""The options of `namespace set`."""


@dataclass(frozen=True)
class ServerSettings:
    """What a server is created with."""

    name: str
    uid: int
    allowed_devices: tuple[str, ...] = ()
    """UUIDs or ordinals as they were given. Empty means all GPUs."""


def checked_name(name: str, kind: str) -> str:
    """
    Return *name* if it may name a server or a namespace, which *kind* says.

    Raises:
        MpsError: it may not.
    """
    if not _NAME.fullmatch(name):
        raise MpsError(f"Invalid {kind} name '{name}': use 1 to 64 lowercase letters, digits and underscores.")
    return name


def devices(text: str) -> tuple[str, ...]:
    """Return the devices of a list such as `GPU-abc123,1`."""
    return tuple(part for part in text.split(",") if part)


def _percentage(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0
    if not 1 <= value <= WHOLE:
        raise MpsError(f"Invalid active thread percentage '{text}': give a number from 1 to 100.")
    return value


def _checked(text: str, pattern: re.Pattern[str], what: str) -> str:
    if not pattern.fullmatch(text):
        raise MpsError(f"Invalid {what} '{text}'.")
    return text
