"""
Make the metric families of the Node's devices and of shares that HAMi does not have.

Owns the names that start with `hami_device_` and `hami_share_`. They are in base units, and a `_ratio` is 0 to 1.
Neighbours: `families` has HAMi's names, `hami_monitor.decide.host` and `observation` the values.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from prometheus_client.core import GaugeMetricFamily, Metric

from hami_monitor.decide.host import HostDevice
from hami_monitor.decide.observation import Labels, ShownDevice
from hami_monitor.metrics.family import COUNTER, Family, Kind, filled, named

DEVICE: Labels = ("node", "device_index", "device_uuid")
SHARE: Labels = ("namespace", "pod", "container", "device_uuid")

CLOCK_REASONS = {
    "power-cap": 0x4,
    "hardware": 0x8,
    "sync-boost": 0x10,
    "software-thermal": 0x20,
    "hardware-thermal": 0x40,
    "power-brake": 0x80,
}
"""
Why a clock is lower than it could be, with NVML's bit. An idle device and a chosen clock are no such reason.

Source: https://docs.nvidia.com/deploy/nvml-api/group__nvmlClocksEventReasons.html
"""

Values = Iterable[tuple[Labels, float | None]]
"""Further label values, and the value; None if the driver does not know it."""


@dataclass(frozen=True, slots=True)
class DeviceFamily:
    """A family with samples for each physical device."""

    name: str
    documentation: str
    values: Callable[[HostDevice], Values]
    labels: Labels = ()
    """Those after the device's."""
    kind: Kind = GaugeMetricFamily


def _one(read: Callable[[HostDevice], float | None], unit: float = 1) -> Callable[[HostDevice], Values]:
    """Return the function that yields the value that *read* returns, times *unit*."""

    def values(device: HostDevice) -> Values:
        value = read(device)
        yield (), None if value is None else value * unit

    return values


DEVICE_FAMILIES = (
    DeviceFamily("hami_device_memory_total_bytes", "Memory of the device.", _one(lambda d: d.memory_total_bytes)),
    DeviceFamily(
        "hami_device_memory_reserved_bytes",
        "Memory that the driver and the firmware keep for themselves.",
        _one(lambda d: d.memory_reserved_bytes),
    ),
    DeviceFamily("hami_device_temperature_celsius", "Temperature.", _one(lambda d: d.temperature_celsius)),
    DeviceFamily(
        "hami_device_memory_temperature_celsius",
        "Temperature of the memory.",
        _one(lambda d: d.memory_temperature_celsius),
    ),
    DeviceFamily("hami_device_power_watts", "Power drawn.", _one(lambda d: d.power_milliwatts, 1e-3)),
    DeviceFamily(
        "hami_device_power_limit_watts",
        "Power that the device may draw.",
        _one(lambda d: d.power_limit_milliwatts, 1e-3),
    ),
    DeviceFamily(
        "hami_device_energy_joules",
        "Energy used since the driver was loaded.",
        _one(lambda d: d.energy_millijoules, 1e-3),
        kind=COUNTER,
    ),
    DeviceFamily("hami_device_sm_clock_hertz", "Clock of the processors.", _one(lambda d: d.sm_clock_mhz, 1e6)),
    DeviceFamily("hami_device_memory_clock_hertz", "Clock of the memory.", _one(lambda d: d.memory_clock_mhz, 1e6)),
    DeviceFamily(
        "hami_device_clock_held_down",
        "1 while the reason holds a clock down, else 0.",
        lambda d: (
            ((reason,), None if d.clock_reasons is None else int(bool(d.clock_reasons & bit)))
            for reason, bit in CLOCK_REASONS.items()
        ),
        labels=("reason",),
    ),
    DeviceFamily(
        "hami_device_encoder_ratio", "Time in which the encoder was busy.", _one(lambda d: d.encoder_percent, 1e-2)
    ),
    DeviceFamily(
        "hami_device_decoder_ratio", "Time in which the decoder was busy.", _one(lambda d: d.decoder_percent, 1e-2)
    ),
    DeviceFamily(
        "hami_device_ecc_errors",
        "Memory errors over the life of the device, by kind (corrected, uncorrected).",
        lambda d: ((("corrected",), d.ecc_corrected), (("uncorrected",), d.ecc_uncorrected)),
        labels=("kind",),
        kind=COUNTER,
    ),
    DeviceFamily(
        "hami_device_remapped_rows", "Rows of memory that were replaced by spare ones.", _one(lambda d: d.remapped_rows)
    ),
    DeviceFamily(
        "hami_device_retired_pages", "Pages of memory that are no longer used.", _one(lambda d: d.retired_pages)
    ),
    DeviceFamily(
        "hami_device_xid_errors",
        "XID errors since the monitor opened the driver, by number; none before the first.",
        lambda d: (((str(xid),), count) for xid, count in sorted(d.xid_errors.items())),
        labels=("xid",),
        kind=COUNTER,
    ),
    DeviceFamily(
        "hami_device_pcie_replays",
        "Transfers over PCIe that were repeated.",
        _one(lambda d: d.pcie_replays),
        kind=COUNTER,
    ),
    DeviceFamily(
        "hami_device_pcie_bytes",
        "Traffic over PCIe, by direction (transmitted, received).",
        lambda d: ((("transmitted",), d.pcie_transmitted_bytes), (("received",), d.pcie_received_bytes)),
        labels=("direction",),
        kind=COUNTER,
    ),
    DeviceFamily(
        "hami_device_nvlink_bytes",
        "Traffic over all NVLinks, by direction (transmitted, received).",
        lambda d: (
            (("transmitted",), _kib(d.nvlink_transmitted_kib)),
            (("received",), _kib(d.nvlink_received_kib)),
        ),
        labels=("direction",),
        kind=COUNTER,
    ),
)

SHARE_FAMILIES: tuple[Family[ShownDevice], ...] = (
    Family(
        "hami_share_core_limit_ratio",
        "Device time that was granted to the container; 0 is no limit.",
        lambda shown: shown.share.core_percent / 100,
    ),
    Family(
        "hami_share_processes",
        "Processes of the container that use its devices, as its library counts them.",
        lambda shown: shown.processes,
    ),
    Family(
        "hami_share_driver_memory_bytes",
        "Device memory of the container's processes, as the driver counts it.",
        lambda shown: None if shown.driver is None else shown.driver.used_bytes,
    ),
    Family(
        "hami_share_driver_processes",
        "Processes of the container that use the device, as the driver lists them.",
        lambda shown: None if shown.driver is None else shown.driver.processes,
    ),
    Family(
        "hami_share_busy_ratio",
        "Device time of the container's kernels over the last interval, as the driver samples it.",
        lambda shown: None if shown.driver is None else shown.driver.busy_ratio,
    ),
    Family(
        "hami_share_memory_peak_bytes",
        "Most device memory that the container has used since it started.",
        lambda shown: None if shown.records is None else shown.records.peak_bytes,
    ),
    Family(
        "hami_share_waiting_launches",
        "Launches that wait now for the container's share of the device's time.",
        lambda shown: None if shown.records is None or shown.sums is None else shown.sums.waiting,
    ),
    Family(
        "hami_share_throttled_launches",
        "Launches that had to wait for the container's share of the device's time.",
        lambda shown: None if shown.records is None else shown.records.waited_launches,
        kind=COUNTER,
    ),
    Family(
        "hami_share_throttled_seconds",
        "Time that these launches have waited, summed over them.",
        lambda shown: None if shown.records is None else shown.records.waited_nanoseconds * 1e-9,
        kind=COUNTER,
    ),
    Family(
        "hami_share_blocked",
        "1 while launches wait for a container of higher priority, else 0.",
        lambda shown: shown.is_blocked,
    ),
)


def device_families(node_name: str, devices: Iterable[HostDevice]) -> Iterator[Metric]:
    """Yield every family of *devices*, those of the Node *node_name*."""
    places = [(device, named(DEVICE, (node_name, str(device.index), device.uuid))) for device in devices]
    for family in DEVICE_FAMILIES:
        rows = (
            (place | named(family.labels, more) if more else place, value)
            for device, place in places
            for more, value in family.values(device)
        )
        yield filled(family.name, family.documentation, (*DEVICE, *family.labels), rows, family.kind)


def share_families(shown: Iterable[ShownDevice]) -> Iterator[Metric]:
    """Yield every family of the devices *shown* of containers."""
    places = [(named(SHARE, (*one.labels[:3], one.labels[4])), one) for one in shown]
    yield from (family.of(SHARE, places) for family in SHARE_FAMILIES)
    yield filled(
        "hami_share_memory_enforcement",
        "1 for who limits the container's memory (library, driver); none for a whole device.",
        (*SHARE, "by"),
        ((place | {"by": by}, 1) for place, one in places for by in one.memory_limiters),
    )


def _kib(amount: int | None) -> int | None:
    return None if amount is None else amount * 1024
