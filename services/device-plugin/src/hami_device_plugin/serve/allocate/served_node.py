"""
By what the kubelet's calls are answered, besides the call and its Pod.

Neighbours: `calls` makes the value again when settings change, `identity` and `lock` answer by it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hami_device_plugin import __version__
from hami_device_plugin.adapters import library
from hami_device_plugin.decide.allocate.allocation import GrantPolicy, Library
from hami_device_plugin.decide.allocate.cdi.spec import LimitHook
from hami_device_plugin.decide.probe.enforcement import Enforcement
from hamicommon.model import Device
from hamicommon.vendors.description import Vendor


@dataclass(frozen=True, slots=True)
class ServedNode:
    """One Node, its devices, and how they are shared."""

    name: str
    resource: str
    """The resource that the kubelet counts."""
    vendor: Vendor
    policy: GrantPolicy
    enforcement: Enforcement
    """Who limits memory."""
    devices: Mapping[str, Device]
    """Those that are offered, by UUID."""
    cdi_root: Path
    """Where specs are written."""
    limit_hook: LimitHook
    """For what the driver limits."""
    memory_bytes: Mapping[str, int]
    """How much each device has, by UUID."""
    memory_margin_mib: int = 0
    """How far the driver's limit is above a share."""
    vendor_keys: tuple[str, ...] = ()
    """The keys of all vendors, which the lock's annotations are searched for."""
    is_cdi_named: bool = False
    """
    Whether an answer under the lock also names a CDI device, in whose spec PreStartContainer writes the same grant: the
    runtime applies it over the variables of the Pod, which the kubelet applies over an answer's.
    """

    def library(self) -> Library:
        """Return the library to mount."""
        return library.host_library(Path(self.policy.hook_path) / "vgpu", __version__)
