"""
Read how devices are connected: PCIe ancestors and NVLinks.

Source: https://docs.nvidia.com/deploy/nvml-api/group__NvLink.html
"""

from collections.abc import Callable, Sequence
from typing import Any

import pynvml

from hami_device_plugin.adapters.nvml.devices import UNSUPPORTED
from hami_device_plugin.decide.probe.links import LinkedDevice
from hamicommon.runtime.host.nvml import Nvml, text

_ABSENT = (*UNSUPPORTED, pynvml.NVMLError_InvalidArgument)
"""Errors for a link number, or a pair, that a device does not have."""


async def find_links(nvml: Nvml, uuid: str, others: Sequence[str]) -> LinkedDevice:
    """
    Return the links of the device *uuid*, and its PCIe ancestors with *others*.

    Raises:
        NvmlError: the device does not answer.
    """
    return await nvml.call(_linked_device, uuid, others)


def _linked_device(uuid: str, others: Sequence[str]) -> LinkedDevice:
    device = pynvml.nvmlDeviceGetHandleByUUID(uuid)
    links = [
        number
        for number in range(pynvml.NVML_NVLINK_MAX_LINKS)
        if _present(pynvml.nvmlDeviceGetNvLinkState, device, number) == pynvml.NVML_FEATURE_ENABLED
    ]
    remote = [_present(pynvml.nvmlDeviceGetNvLinkRemotePciInfo, device, number) for number in links]
    kinds = [_present(pynvml.nvmlDeviceGetNvLinkRemoteDeviceType, device, number) for number in links]
    return LinkedDevice(
        uuid=uuid,
        bus_id=text(pynvml.nvmlDeviceGetPciInfo(device).busId),
        ancestors={other: level for other in others if (level := _ancestor(device, other)) is not None},
        remote_bus_ids=tuple(text(found.busId) for found in remote if found is not None),
        switch_links=kinds.count(pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH),
    )


def _ancestor(device: Any, other: str) -> int | None:
    """Return the level of the nearest common ancestor; None if the other device does not answer either."""
    try:
        handle = pynvml.nvmlDeviceGetHandleByUUID(other)
    except pynvml.NVMLError:
        return None
    level: int | None = _present(pynvml.nvmlDeviceGetTopologyCommonAncestor, device, handle)
    return level


def _present(read: Callable[..., Any], *arguments: Any) -> Any:
    """Return what *read* returns for *arguments*, None if the device does not have it."""
    try:
        return read(*arguments)
    except _ABSENT:
        return None
