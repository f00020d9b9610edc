"""
Pure descriptions of the vendors: resource names, annotation keys, and how a container's resources become a request.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from hamicommon.config import DeviceConfig
from hamicommon.model import Request
from hamicommon.vendors import (
    amd,
    ascend,
    awsneuron,
    biren,
    cambricon,
    enflame,
    hygon,
    iluvatar,
    kunlun,
    metax,
    mthreads,
    nvidia,
    vastai,
)
from hamicommon.vendors.description import Vendor, limit_readers

__all__ = [
    "RequestParser",
    "Vendor",
    "all_vendors",
    "amd",
    "ascend",
    "awsneuron",
    "biren",
    "cambricon",
    "enflame",
    "hygon",
    "iluvatar",
    "kunlun",
    "limit_readers",
    "metax",
    "mthreads",
    "nvidia",
    "request_parsers",
    "vastai",
]

RequestParser = Callable[[Mapping[str, Any]], Request | None]
"""From a container's `resources` to what it asks of one vendor, None where that is nothing."""


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
        enflame.gcu_vendor(config.enflame),
        enflame.drs_vendor(config.enflame),
        kunlun.vendor(config.kunlun),
        kunlun.xpu_vendor(config.kunlun),
        awsneuron.vendor(config.awsneuron),
        amd.vendor(config.amd),
        vastai.vendor(config.vastai),
        biren.vendor(config.biren),
    )


def request_parsers(config: DeviceConfig) -> dict[str, RequestParser]:
    """
    Return how the requests of every vendor of the device config are read, by the vendor's key.

    >>> parsers = request_parsers(DeviceConfig())
    >>> [key for key, parse in parsers.items() if parse({"limits": {"nvidia.com/gpu": "1"}}) is not None]
    []
    """
    return {
        nvidia.KEY: partial(nvidia.parse_request, config=config.nvidia),
        **{chip.common_word: partial(ascend.parse_request, chip=chip) for chip in config.ascend.chips},
        cambricon.KEY: partial(cambricon.parse_request, config=config.cambricon),
        hygon.KEY: partial(hygon.parse_request, config=config.hygon),
        **{chip.common_word: partial(iluvatar.parse_request, chip=chip) for chip in config.iluvatars},
        mthreads.KEY: partial(mthreads.parse_request, config=config.mthreads),
        metax.GPU_KEY: partial(metax.parse_gpu_request, config=config.metax),
        metax.SGPU_KEY: partial(metax.parse_sgpu_request, config=config.metax),
        enflame.GCU_KEY: partial(enflame.parse_gcu_request, config=config.enflame),
        enflame.DRS_KEY: partial(enflame.parse_drs_request, config=config.enflame),
        kunlun.KEY: partial(kunlun.parse_request, config=config.kunlun),
        kunlun.XPU_KEY: partial(kunlun.parse_xpu_request, config=config.kunlun),
        awsneuron.KEY: partial(awsneuron.parse_request, config=config.awsneuron),
        amd.KEY: partial(amd.parse_request, config=config.amd),
        vastai.KEY: partial(vastai.parse_request, config=config.vastai),
        biren.KEY: partial(biren.parse_request, config=config.biren),
    }
