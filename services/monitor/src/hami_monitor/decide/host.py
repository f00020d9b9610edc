"""
What the driver says about the Node's devices and about the processes on them.

Only values: `hami_monitor.adapters.nvml` reads them, `hami_monitor.metrics.families` shows them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class DeviceProcess:
    """One process with a context on a device."""

    pid: int
    """In the Node's pid namespace."""
    used_bytes: int | None
    """Device memory that the driver counts for it; None if it does not say."""
    busy_percent: float | None = None
    """Share of time in which its kernels ran since the last reading; None if the driver has no sample of it."""
    computes_alone: bool = False
    """Whether it computes and is no client of MPS."""


@dataclass(frozen=True, slots=True)
class HostDevice:
    """One physical device as the driver reports it; None if the driver does not know a value."""

    index: int
    uuid: str
    name: str
    memory_used_bytes: int | None = None
    utilization_percent: int | None = None
    memory_utilization_percent: int | None = None
    """Share of time in which the memory controller was busy."""
    encoder_percent: int | None = None
    decoder_percent: int | None = None
    memory_total_bytes: int | None = None
    memory_reserved_bytes: int | None = None
    """What the driver and the firmware keep for themselves."""
    temperature_celsius: int | None = None
    memory_temperature_celsius: int | None = None
    power_milliwatts: int | None = None
    power_limit_milliwatts: int | None = None
    energy_millijoules: int | None = None
    """Since the driver was loaded."""
    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    clock_reasons: int | None = None
    """NVML's bits for what holds the clocks down."""
    ecc_corrected: int | None = None
    """Over the life of the device, as all counters of memory errors here."""
    ecc_uncorrected: int | None = None
    remapped_rows: int | None = None
    retired_pages: int | None = None
    pcie_replays: int | None = None
    pcie_transmitted_bytes: int | None = None
    """Since the driver was loaded."""
    pcie_received_bytes: int | None = None
    nvlink_transmitted_kib: int | None = None
    """Over all links, since the driver was loaded."""
    nvlink_received_kib: int | None = None
    xid_errors: Mapping[int, int] = field(default_factory=dict, hash=False)
    """XID errors since the monitor opened the driver, by number."""
    processes: tuple[DeviceProcess, ...] = ()
    """Those with a context on the device or one of its MIG instances, by pid."""
