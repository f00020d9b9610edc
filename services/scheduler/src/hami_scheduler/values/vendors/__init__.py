"""
Every vendor whose devices are placed: one module each, with what is truly its own.

Owns the list. Neighbours: `vendor` says what a frame is, `docs/add-a-vendor.md` how to add one.
"""

from collections.abc import Callable, Iterable

from hami_scheduler.values.vendor import VendorFrame
from hami_scheduler.values.vendors import (
    amd,
    ascend,
    awsneuron,
    biren,
    cambricon,
    enflame,
    hygon,
    iluvatar,
    kunlun,
    metax_gpu,
    metax_sgpu,
    mthreads,
    nvidia,
    vastai,
)
from hamicommon.config import DeviceConfig

_VENDORS: tuple[Callable[[DeviceConfig], Iterable[VendorFrame]], ...] = (
    nvidia.frames,
    ascend.frames,
    cambricon.frames,
    hygon.frames,
    iluvatar.frames,
    mthreads.frames,
    metax_gpu.frames,
    metax_sgpu.frames,
    enflame.frames,
    kunlun.frames,
    awsneuron.frames,
    amd.frames,
    vastai.frames,
    biren.frames,
)


def vendor_frames(config: DeviceConfig) -> tuple[VendorFrame, ...]:
    """Return every vendor under the names of *config*, in the order their devices are listed on a Node."""
    return tuple(frame for frames in _VENDORS for frame in frames(config))
