"""
What the scheduler knows of one vendor, beside the names and keys every service shares.

Owns `VendorFrame` and the list of vendors this build places. One algorithm serves all of them; a vendor is data plus
the few functions that are truly its own. Neighbours: `hamicommon.vendors` describes, `request`, `inventory` and
`rules` use.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from hamicommon.config import DeviceConfig
from hamicommon.model import Request
from hamicommon.vendors import Vendor, nvidia


@dataclass(frozen=True, slots=True)
class VendorFrame:
    """One vendor, as decisions see it."""

    vendor: Vendor
    parse_request: Callable[[Mapping[str, Any]], Request | None]
    """From a container's `resources` to what it asks; None where it asks nothing."""
    mode_key: str = ""
    """Pod annotation naming the acceptable device modes; empty where the vendor has none."""
    numa_bind_key: str = ""
    """Pod annotation asking for one NUMA node; empty where the vendor has none."""
    pair_scores_key: str = ""
    """Node annotation rating the links between its devices; empty where the vendor has none."""

    @property
    def key(self) -> str:
        """The vendor's key, as it stands in annotations (`NVIDIA`)."""
        return self.vendor.key

    @property
    def count_resource(self) -> str:
        """The extended resource that counts replicas; its allocatable amount says whether the device plugin lives."""
        return self.vendor.resource_names[0] if self.vendor.resource_names else ""


def nvidia_frame(config: DeviceConfig) -> VendorFrame:
    """Return NVIDIA under the names of *config*."""
    return VendorFrame(
        vendor=nvidia.vendor(config.nvidia),
        parse_request=partial(nvidia.parse_request, config=config.nvidia),
        mode_key=nvidia.MODE_KEY,
        numa_bind_key=nvidia.NUMA_BIND_KEY,
        pair_scores_key=nvidia.PAIR_SCORES_KEY,
    )


def vendor_frames(config: DeviceConfig) -> tuple[VendorFrame, ...]:
    """Return every vendor this build places, in the order their devices are listed on a Node."""
    return (nvidia_frame(config),)
