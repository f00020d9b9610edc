"""
Which devices of one vendor a Pod accepts, as its annotations say.

Neighbours: `vendor` knows the annotations, `rules.fit` applies them to a device, `search.prefilter` to all devices.
"""

from dataclasses import dataclass

from hamicommon.model import Device
from hamicommon.wire.device_lists import type_allowed, uuid_allowed
from hamicommon.wire.go.strings import BLANKS

VendorAnnotations = tuple[tuple[str, str], ...]
"""Annotations of a Pod for one vendor alone: key and text, in the vendor's order."""


def annotation(vendor_annotations: VendorAnnotations, key: str) -> str:
    """
    Return the text of *key* in *vendor_annotations*, empty if it is missing.

    >>> annotation((("a", "1"), ("b", "2")), "b"), annotation((), "b")
    ('2', '')
    """
    return next((text for name, text in vendor_annotations if name == key), "")


@dataclass(frozen=True, slots=True)
class DeviceKind:
    """The properties of a device that constraints on models read; a cluster has few kinds."""

    vendor: str
    type: str
    mode: str


@dataclass(frozen=True, slots=True)
class Constraints:
    """Which devices of one vendor one Pod accepts."""

    use_uuids: str | None = None
    nouse_uuids: str | None = None
    use_types: str | None = None
    nouse_types: str | None = None
    type_word: str = ""
    """What the type of each of the vendor's devices contains, in lower case."""
    modes: str | None = None
    """Text that must contain the device's mode; None accepts every mode."""
    mig_preference: tuple[str, ...] = ()
    """MIG profiles to try first, such as `4g.20gb`, or `4g` for each with as many compute slices."""
    is_numa_bound: bool = False
    """All devices of one container come from one NUMA node."""
    is_mutex: bool = False
    is_topology_aware: bool = False
    """The devices of one container have the best links to each other."""
    vendor_annotations: VendorAnnotations = ()
    """Other annotations for this vendor."""
    core_capacity: int = 0
    """Compute that every device offers this Pod; 0 if what the device registered counts."""

    def accepts_type(self, device: Device | DeviceKind) -> bool:
        """Return whether the model and the mode of *device* are acceptable."""
        if self.modes is not None and device.mode not in self.modes:
            return False
        if self.use_types is None and self.nouse_types is None:
            return True
        return type_allowed(self.use_types, self.nouse_types, device.type)

    def accepts_uuid(self, uuid: str) -> bool:
        """Return whether the Pod's UUID lists allow device *uuid*."""
        if self.use_uuids is None and self.nouse_uuids is None:
            return True
        return uuid_allowed(self.use_uuids, self.nouse_uuids, uuid)

    def annotation(self, key: str) -> str:
        """Return the text of annotation *key*, empty if it is missing."""
        return annotation(self.vendor_annotations, key)


def read_preference(text: str) -> tuple[str, ...]:
    """
    Return the words of a comma list, each once.

    >>> read_preference(" 4g, 3g.20gb,,4g")
    ('4g', '3g.20gb')
    """
    return tuple(dict.fromkeys(word for part in text.split(",") if (word := part.strip(BLANKS))))
