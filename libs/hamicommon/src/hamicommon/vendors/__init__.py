"""
Pure descriptions of the vendors: resource names, annotation keys, and how a container's resources become a request.
"""

from hamicommon.config import DeviceConfig
from hamicommon.vendors import ascend, cambricon, hygon, iluvatar, metax, mthreads, nvidia
from hamicommon.vendors.description import Vendor

__all__ = ["Vendor", "all_vendors", "ascend", "cambricon", "hygon", "iluvatar", "metax", "mthreads", "nvidia"]


def all_vendors(config: DeviceConfig) -> tuple[Vendor, ...]:
    """Return every vendor of the device config, one entry a chip where a vendor has several; keys are distinct."""
    return (
        nvidia.vendor(config.nvidia),
        *(ascend.vendor(chip) for chip in config.ascend.chips),
        cambricon.vendor(config.cambricon),
        hygon.vendor(config.hygon),
        *(iluvatar.vendor(chip) for chip in config.iluvatars),
        mthreads.vendor(config.mthreads),
        metax.gpu_vendor(config.metax),
        metax.sgpu_vendor(config.metax),
    )
