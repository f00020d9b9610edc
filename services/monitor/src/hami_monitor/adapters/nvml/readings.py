"""
Read the values of one device: memory, use, temperature, power, clocks, errors and throughput.

A value that a device does not have is None; any other error makes the device unreadable. The calls that wait for a
sample, such as `nvmlDeviceGetPcieThroughput` for 20 ms, are not used: counters say the same.
Source: https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html, group__nvmlFieldValueEnums.html
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pynvml

from hami_monitor.decide.host import HostDevice
from hamicommon.runtime.host.nvml import text

_UNKNOWN = frozenset(
    {
        pynvml.NVML_ERROR_NOT_SUPPORTED,
        pynvml.NVML_ERROR_NO_PERMISSION,
        pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
    }
)
"""Errors for a value that a device or its driver does not have, as a device in MIG mode has no utilization."""
_ALL_LINKS = 0xFFFFFFFF
_FIELDS: Mapping[str, int | tuple[int, int]] = {
    "memory_temperature_celsius": pynvml.NVML_FI_DEV_MEMORY_TEMP,
    "ecc_corrected": pynvml.NVML_FI_DEV_ECC_SBE_AGG_TOTAL,
    "ecc_uncorrected": pynvml.NVML_FI_DEV_ECC_DBE_AGG_TOTAL,
    "pcie_replays": pynvml.NVML_FI_DEV_PCIE_REPLAY_COUNTER,
    "pcie_transmitted_bytes": pynvml.NVML_FI_DEV_PCIE_COUNT_TX_BYTES,
    "pcie_received_bytes": pynvml.NVML_FI_DEV_PCIE_COUNT_RX_BYTES,
    "nvlink_transmitted_kib": (pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, _ALL_LINKS),
    "nvlink_received_kib": (pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, _ALL_LINKS),
}
"""Values that one call reads together, by their name in HostDevice."""
_SUMS = {
    "remapped_rows": (pynvml.NVML_FI_DEV_REMAPPED_COR, pynvml.NVML_FI_DEV_REMAPPED_UNC),
    "retired_pages": (pynvml.NVML_FI_DEV_RETIRED_SBE, pynvml.NVML_FI_DEV_RETIRED_DBE),
}
"""Values that are the sum of two."""
_MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
"""Where the value of a field is, by the number of its type."""
_XIDS_MAX = 256
"""Most events that one reading takes from the driver's queue; the next reading takes the rest."""


def read_device(handle: Any, index: int) -> HostDevice:
    """
    Return the device of *handle*, which the driver lists at *index*.

    Raises:
        NVMLError: the device cannot be read.
    """
    memory = _memory(handle)
    utilization = known(pynvml.nvmlDeviceGetUtilizationRates, handle)
    encoder = known(pynvml.nvmlDeviceGetEncoderUtilization, handle)
    decoder = known(pynvml.nvmlDeviceGetDecoderUtilization, handle)
    return HostDevice(
        index=index,
        uuid=text(pynvml.nvmlDeviceGetUUID(handle)),
        name=text(pynvml.nvmlDeviceGetName(handle)),
        memory_used_bytes=_member(memory, "used"),
        memory_total_bytes=_member(memory, "total"),
        memory_reserved_bytes=_member(memory, "reserved"),
        utilization_percent=_member(utilization, "gpu"),
        memory_utilization_percent=_member(utilization, "memory"),
        encoder_percent=None if encoder is None else int(encoder[0]),
        decoder_percent=None if decoder is None else int(decoder[0]),
        temperature_celsius=known(pynvml.nvmlDeviceGetTemperature, handle, pynvml.NVML_TEMPERATURE_GPU),
        power_milliwatts=known(pynvml.nvmlDeviceGetPowerUsage, handle),
        power_limit_milliwatts=known(pynvml.nvmlDeviceGetEnforcedPowerLimit, handle),
        energy_millijoules=known(pynvml.nvmlDeviceGetTotalEnergyConsumption, handle),
        sm_clock_mhz=known(pynvml.nvmlDeviceGetClockInfo, handle, pynvml.NVML_CLOCK_SM),
        memory_clock_mhz=known(pynvml.nvmlDeviceGetClockInfo, handle, pynvml.NVML_CLOCK_MEM),
        clock_reasons=known(pynvml.nvmlDeviceGetCurrentClocksEventReasons, handle),
        **_fields(handle),
    )


def known(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return what *function* returns; None if the device has no such value."""
    try:
        return function(*arguments)
    except pynvml.NVMLError as error:
        if error.value in _UNKNOWN:
            return None
        raise


class XidErrors:
    """
    The XID errors of each device since NVML was opened.

    Each device has an event set, because waiting on a set fails as soon as one of its devices is lost. The driver keeps
    events until they are read.
    """

    def __init__(self) -> None:
        """Subscribe to each device's events at its first reading."""
        self._sets: dict[str, Any] = {}
        """By UUID; None for a device without events."""
        self._counts: dict[str, Counter[int]] = {}

    def read(self, handle: Any, uuid: str) -> Mapping[int, int]:
        """Return how often each XID error of the device has been reported, by number."""
        if uuid not in self._sets:
            self._sets[uuid] = known(_subscribe, handle)
            self._counts[uuid] = Counter()
        events, counts = self._sets[uuid], self._counts[uuid]
        for _ in range(_XIDS_MAX if events is not None else 0):
            try:
                event = pynvml.nvmlEventSetWait_v2(events, 0)
            except pynvml.NVMLError_Timeout:
                break
            counts[int(event.eventData)] += 1
        return dict(counts)


def _subscribe(handle: Any) -> Any:
    events = pynvml.nvmlEventSetCreate()
    try:
        pynvml.nvmlDeviceRegisterEvents(handle, pynvml.nvmlEventTypeXidCriticalError, events)
    except pynvml.NVMLError:
        pynvml.nvmlEventSetFree(events)
        raise
    return events


def _memory(handle: Any) -> Any:
    """Return the device's memory in the newest form that the driver has; only that one says what is reserved."""
    memory = known(pynvml.nvmlDeviceGetMemoryInfo, handle)
    newest = known(pynvml.nvmlDeviceGetMemoryInfo, handle, pynvml.nvmlMemory_v2)
    if memory is None or newest is None:
        return memory or newest
    # HAMi shows the used bytes of the first form, in which they include the reserved ones.
    newest.used = memory.used
    return newest


def _member(value: Any, name: str) -> int | None:
    found = getattr(value, name, None)
    return None if found is None else int(found)


def _fields(handle: Any) -> dict[str, Any]:
    """Return the values of _FIELDS and _SUMS by name: integers, or None."""
    wanted = [*_FIELDS.values(), *(field for pair in _SUMS.values() for field in pair)]
    found = known(pynvml.nvmlDeviceGetFieldValues, handle, wanted)
    values = [None] * len(wanted) if found is None else [_field_value(field) for field in found]
    pairs = iter(values[len(_FIELDS) :])
    sums: dict[str, int | None] = {name: _sum((next(pairs), next(pairs))) for name in _SUMS}
    return dict(zip(_FIELDS, values, strict=False)) | sums


def _sum(values: Sequence[int | None]) -> int | None:
    given = [value for value in values if value is not None]
    return sum(given) if given else None


def _field_value(field: Any) -> int | None:
    """Return the value of *field*; None if the device does not have it."""
    if field.nvmlReturn != pynvml.NVML_SUCCESS or field.valueType >= len(_MEMBERS):
        return None
    return int(getattr(field.value, _MEMBERS[field.valueType]))
