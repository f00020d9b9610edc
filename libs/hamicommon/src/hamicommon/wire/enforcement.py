"""
Who limits the memory of the containers on a Node, in its annotation `hami.io/node-enforcement`.

The device plugin finds it out and writes it; the monitor reads it.
"""

from enum import StrEnum

from hamicommon.wire.errors import WHOLE_TEXT, DecodeError, quote


class Enforcement(StrEnum):
    """Who limits the device memory of a container with a share."""

    LIBRARY = "library"
    """`libvgpu.so`, which a container can leave."""
    DRIVER = "driver"
    """The driver, by cgroup, for every program in the container. The container has no library."""
    BOTH = "both"
    """The driver limits memory. The library limits compute, and shows the share."""

    @property
    def is_by_driver(self) -> bool:
        """Whether the driver limits memory, so that `currentUsed` of the container's cgroup is known."""
        return self is not Enforcement.LIBRARY


def decode_enforcement(text: str) -> Enforcement:
    """
    Return the enforcement that *text* names.

    >>> decode_enforcement("both").is_by_driver
    True

    Raises: DecodeError
    """
    try:
        return Enforcement(text)
    except ValueError:
        raise DecodeError(WHOLE_TEXT, f"{quote(text)} is not one of {', '.join(Enforcement)}") from None
