"""
Names, labels and values of the exported families.
"""

from typing import Any

import pytest

from hami_monitor.decide.containers import ContainerKey
from hami_monitor.decide.driver_use import DeviceUses, DriverUse
from hami_monitor.decide.host import HostDevice
from hami_monitor.decide.observation import Observation
from hami_monitor.decide.pods import MonitoredPod
from hami_monitor.decide.usage import ContainerUsage
from hami_monitor.metrics.families import families
from hamicommon.model import MigAllocation, MigPlacement, Share
from hamicommon.wire.region.records import DeviceRecords, Unreached, WaitRecord
from hamicommon.wire.region.sums import DeviceSums

MIB = 1 << 20
NOW = 1000.5
SHARE_LABELS = {
    "zone": "vGPU",
    "namespace": "ns",
    "pod": "p1",
    "container": "main",
    "vdevice_index": "0",
    "device_uuid": "GPU-a",
}
LEGACY_LABELS = {
    "zone": "vGPU",
    "podnamespace": "ns",
    "podname": "p1",
    "ctrname": "main",
    "vdeviceid": "0",
    "deviceuuid": "GPU-a",
}
KEY = ContainerKey("u1", "main")


def a_pod(**more: Any) -> MonitoredPod:
    """Return a Pod of one container that is shown."""
    defaults: dict[str, Any] = {
        "uid": "u1",
        "namespace": "ns",
        "name": "p1",
        "containers": ("main",),
        "shown": frozenset({"main"}),
        "shares": {"main": (Share("GPU-a", "NVIDIA", 3000, 25),)},
    }
    return MonitoredPod(**(defaults | more))


def a_usage(*, last_kernel_seconds: int | None = 900) -> ContainerUsage:
    """Return the usage of a container with one device."""
    sums = DeviceSums(context=60, module=10, data=25, total=100, sm=40)
    return ContainerUsage({"GPU-a": sums}, 2, frozenset({7, 8}), last_kernel_seconds)


def a_host_device(**more: Any) -> HostDevice:
    """Return a device of the host."""
    defaults: dict[str, Any] = {"index": 0, "uuid": "GPU-a", "name": "NVIDIA T4", "memory_used_bytes": 500}
    return HostDevice(**(defaults | {"utilization_percent": 70, "memory_utilization_percent": 30} | more))


def an_observation(**more: Any) -> Observation:
    """Return what a scrape shows of one Pod that uses its device."""
    defaults: dict[str, Any] = {"node_name": "n1", "now_seconds": NOW, "pods": (a_pod(),), "usages": {KEY: a_usage()}}
    return Observation(**(defaults | more))


def samples(
    observation: Observation, *, has_legacy_names: bool = False
) -> dict[str, list[tuple[dict[str, str], float]]]:
    """Return {name: [(labels, value), ...]} of all families."""
    found = {}
    for family in families(observation, has_legacy_names=has_legacy_names):
        found[family.name] = [(sample.labels, sample.value) for sample in family.samples]
    return found


def test_share_families_are_hamis() -> None:
    """Names, labels and values of a container with one device."""
    expected = {
        "hami_vgpu_memory_used_bytes": 100,
        "hami_vgpu_memory_limit_bytes": 3000 * MIB,
        "hami_container_device_memory_bytes": 100,
        "hami_container_device_utilization_ratio": 40,
        "hami_container_last_kernel_elapsed_seconds": 100.5,
        "hami_vgpu_memory_context_bytes": 60,
        "hami_vgpu_memory_module_bytes": 10,
        "hami_vgpu_memory_buffer_bytes": 25,
    }

    found = samples(an_observation())

    assert {name: [(SHARE_LABELS, value)] for name, value in expected.items()} == {
        name: found[name] for name in expected
    }


def test_host_families_are_hamis() -> None:
    """The vendor precedes the driver's name, and the memory controller's family has no node."""
    labels = {"zone": "vGPU", "device_index": "0", "device_uuid": "GPU-a", "device_type": "NVIDIA-NVIDIA T4"}

    found = samples(an_observation(host_devices=(a_host_device(),)))

    assert {
        "hami_host_gpu_memory_used_bytes": [(labels | {"node": "n1"}, 500)],
        "hami_host_gpu_utilization_ratio": [(labels | {"node": "n1"}, 70)],
        "hami_host_gpu_memory_controller_utilization_ratio": [(labels, 30)],
    } == {name: found[name] for name in found if "host" in name}


@pytest.mark.parametrize(
    ("unknown", "left_out"),
    [
        ("memory_used_bytes", "hami_host_gpu_memory_used_bytes"),
        ("utilization_percent", "hami_host_gpu_utilization_ratio"),
        ("memory_utilization_percent", "hami_host_gpu_memory_controller_utilization_ratio"),
    ],
)
def test_value_the_driver_cannot_tell_is_left_out(unknown: str, left_out: str) -> None:
    """The device's other families stay."""
    found = samples(an_observation(host_devices=(a_host_device(**{unknown: None}),)))

    assert [left_out] == [name for name in found if "host" in name and not found[name]]


def test_legacy_families_are_hamis() -> None:
    """HAMi's old names, with a memory family whose labels are amounts."""
    host = {"zone": "vGPU", "nodeid": "n1", "deviceidx": "0", "deviceuuid": "GPU-a", "devicetype": "NVIDIA-NVIDIA T4"}
    amounts = {"context": "60", "module": "10", "data": "25", "offset": "5"}
    observation = an_observation(host_devices=(a_host_device(),))

    found = samples(observation, has_legacy_names=True)

    assert {
        "HostGPUMemoryUsage": [(host, 500)],
        "HostCoreUtilization": [(host, 70)],
        "vGPU_device_memory_usage_in_bytes": [(LEGACY_LABELS, 100)],
        "vGPU_device_memory_limit_in_bytes": [(LEGACY_LABELS, 3000 * MIB)],
        "Device_utilization_desc_of_container": [(LEGACY_LABELS, 40)],
        "Device_last_kernel_of_container": [(LEGACY_LABELS, 100.5)],
        "Device_memory_desc_of_container": [(LEGACY_LABELS | amounts, 100)],
        "MigInfo": [],
    } == {name: rows for name, rows in found.items() if not name.startswith("hami_")}
    assert samples(observation) == {name: rows for name, rows in found.items() if name.startswith("hami_")}


@pytest.mark.parametrize(
    ("last_kernel_seconds", "expected"),
    [
        pytest.param(None, [], id="never"),
        pytest.param(900, [100.5], id="before"),
        pytest.param(2000, [0.0], id="later"),
    ],
)
def test_idle_time_counts_from_the_last_launch(last_kernel_seconds: int | None, expected: list[float]) -> None:
    """There is none before the first launch, and a clock that goes back does not make it negative."""
    usages = {KEY: a_usage(last_kernel_seconds=last_kernel_seconds)}

    found = samples(an_observation(usages=usages))

    assert expected == [value for _, value in found["hami_container_last_kernel_elapsed_seconds"]]


@pytest.mark.parametrize(
    "usages", [pytest.param({}, id="no-region"), pytest.param({KEY: ContainerUsage()}, id="region-without-devices")]
)
def test_container_that_has_not_touched_a_device_has_its_grant_as_limit(
    usages: dict[ContainerKey, ContainerUsage],
) -> None:
    """Series start with the grant: use 0, devices in the driver's order."""
    shares = {"main": (Share("GPU-b", "NVIDIA", 2000, 0), Share("GPU-a", "NVIDIA", 1000, 0))}
    order = {"GPU-a": 0, "GPU-b": 1}

    found = samples(an_observation(usages=usages, pods=(a_pod(shares=shares),), device_order=order))

    assert [("0", "GPU-a", 1000 * MIB), ("1", "GPU-b", 2000 * MIB)] == [
        (labels["vdevice_index"], labels["device_uuid"], value)
        for labels, value in found["hami_vgpu_memory_limit_bytes"]
    ]
    assert [0, 0] == [value for _, value in found["hami_vgpu_memory_used_bytes"]]
    assert [] == found["hami_container_last_kernel_elapsed_seconds"]


def test_use_of_a_region_that_cannot_be_read_is_not_shown() -> None:
    """What the container was granted is."""
    found = samples(an_observation(usages={}, refused=frozenset({KEY})))

    assert [(SHARE_LABELS, 3000 * MIB)] == found["hami_vgpu_memory_limit_bytes"]
    assert [] == found["hami_vgpu_memory_used_bytes"]


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(a_pod(shown=frozenset()), id="container-not-shown"),
        pytest.param(a_pod(shares={}), id="nothing-granted"),
        pytest.param(a_pod(shares={"other": (Share("GPU-a", "NVIDIA", 1, 0),)}), id="granted-to-another"),
    ],
)
def test_container_without_a_grant_is_not_shown(pod: MonitoredPod) -> None:
    """Whatever its region says."""
    assert [] == samples(an_observation(pods=(pod,)))["hami_vgpu_memory_used_bytes"]


def test_mig_instance_is_shown_once_it_exists() -> None:
    """An allocation without an instance is not shown, and neither is its container's grant."""
    promised = MigAllocation(0, 0, "GPU-a", "1g.5gb", MigPlacement(0, 1))
    existing = MigAllocation(0, 1, "GPU-b", "2g.10gb", MigPlacement(2, 2), "MIG-x", 4, 0)
    pod = a_pod(
        mig_allocations=(("main", promised), ("main", existing)), shares={"main": (Share("GPU-a", "NVIDIA", 1, 0),)}
    )
    instance = {"vdevice_index": "1", "device_uuid": "GPU-b", "mig_uuid": "MIG-x", "profile": "2g.10gb"}
    ids = {"gpu_instance_id": "4", "compute_instance_id": "0"}
    legacy = LEGACY_LABELS | {"vdeviceid": "1", "deviceuuid": "GPU-b", "instanceid": "4"}

    found = samples(an_observation(usages={}, pods=(pod,)), has_legacy_names=True)

    assert [(SHARE_LABELS | instance | ids, 1)] == found["hami_mig_device_info"]
    assert [(legacy, 1)] == found["MigInfo"]
    assert [] == found["hami_vgpu_memory_limit_bytes"]


def test_values_of_a_device_are_in_base_units() -> None:
    """Watts, joules, hertz, bytes and ratios, with the device's labels alone."""
    device = a_host_device(
        power_milliwatts=250_000,
        energy_millijoules=1_500,
        sm_clock_mhz=1410,
        encoder_percent=50,
        nvlink_received_kib=3,
        ecc_corrected=7,
        xid_errors={79: 2},
        clock_reasons=0x4,
    )
    labels = {"node": "n1", "device_index": "0", "device_uuid": "GPU-a"}

    found = samples(an_observation(host_devices=(device,)))

    assert {
        "hami_device_power_watts": [(labels, 250)],
        "hami_device_energy_joules": [(labels, 1.5)],
        "hami_device_sm_clock_hertz": [(labels, 1.41e9)],
        "hami_device_encoder_ratio": [(labels, 0.5)],
        "hami_device_nvlink_bytes": [(labels | {"direction": "received"}, 3072)],
        "hami_device_ecc_errors": [(labels | {"kind": "corrected"}, 7)],
        "hami_device_xid_errors": [(labels | {"xid": "79"}, 2)],
        "hami_device_decoder_ratio": [],
        "hami_device_temperature_celsius": [],
    } == {name: found[name] for name in found if name in EXPECTED_DEVICE}
    held = {row["reason"]: value for row, value in found["hami_device_clock_held_down"]}
    assert {"power-cap": 1} == {reason: value for reason, value in held.items() if value}
    assert len(held) == 6


EXPECTED_DEVICE = {
    f"hami_device_{name}"
    for name in (
        "power_watts",
        "energy_joules",
        "sm_clock_hertz",
        "encoder_ratio",
        "nvlink_bytes",
        "ecc_errors",
        "xid_errors",
        "decoder_ratio",
        "temperature_celsius",
    )
}


OWN_LABELS = {name: SHARE_LABELS[name] for name in ("namespace", "pod", "container", "device_uuid")}


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        pytest.param({"GPU-a": DeviceRecords(700, 3, 2_500_000_000)}, [700, 2, 3, 2.5], id="recorded"),
        pytest.param({"GPU-a": DeviceRecords(0, 0, 0)}, [0, 2, 0, 0], id="nothing-happened-yet"),
        pytest.param({}, [None] * 4, id="library-without-records"),
    ],
)
def test_records_are_shown_in_base_units_or_not_at_all(
    records: dict[str, DeviceRecords], expected: list[float | None]
) -> None:
    """What a library does not record is unknown and not 0."""
    sums = DeviceSums(total=100, waiting=2)
    names = ("memory_peak_bytes", "waiting_launches", "throttled_launches", "throttled_seconds")

    found = samples(an_observation(usages={KEY: ContainerUsage({"GPU-a": sums}, records=records)}))

    rows = [[] if value is None else [(OWN_LABELS, value)] for value in expected]
    assert rows == [found[f"hami_share_{name}"] for name in names]


def test_what_the_library_does_not_reach_is_shown_by_kind() -> None:
    """For each container, and only what was counted."""
    usages = {KEY: ContainerUsage(unreached=Unreached(namespaces=3))}

    container = {name: OWN_LABELS[name] for name in ("namespace", "pod", "container")}
    assert [(container | {"kind": "dlmopen"}, 3)] == samples(an_observation(usages=usages))["hami_library_unreached"]


def test_waits_of_the_library_are_shown_by_reason() -> None:
    """In base units, for each container and not for each device."""
    waits = (WaitRecord("share", 3, 2_500_000_000, 750_000), WaitRecord("pool", 1, 1_000_000, 1000))

    found = samples(an_observation(usages={KEY: ContainerUsage(waits=waits)}))

    container = {name: OWN_LABELS[name] for name in ("namespace", "pod", "container")}
    share, pool = (container | {"reason": reason} for reason in ("share", "pool"))
    assert [(share, 3), (pool, 1)] == found["hami_library_waits"]
    assert [(share, 2.5), (pool, 0.001)] == found["hami_library_wait_seconds"]
    assert [(share, 0.75), (pool, 0.001)] == found["hami_library_wait_longest_seconds"]


@pytest.mark.parametrize(
    ("observation", "expected"),
    [
        pytest.param(an_observation(usages={KEY: ContainerUsage(is_blocked=True)}), [1], id="blocked"),
        pytest.param(an_observation(), [0], id="running"),
        pytest.param(an_observation(usages={}, refused=frozenset({KEY})), [], id="unreadable"),
    ],
)
def test_block_for_a_higher_priority_is_shown(observation: Observation, expected: list[float]) -> None:
    """While the monitor holds the launches of a container back."""
    assert expected == [value for _, value in samples(observation)["hami_share_blocked"]]


@pytest.mark.parametrize(
    ("uses", "expected"),
    [
        pytest.param({"GPU-a": DeviceUses({KEY: DriverUse(3, 700, 0.25)})}, [700, 3, 0.25], id="counted"),
        pytest.param({"GPU-a": DeviceUses()}, [0, 0, 0], id="not-used"),
        pytest.param({"GPU-a": DeviceUses({KEY: DriverUse(1, None, None)})}, [None, 1, None], id="not-said"),
        pytest.param({"GPU-b": DeviceUses()}, [None] * 3, id="device-that-cannot-be-read"),
    ],
)
def test_driver_and_library_are_shown_beside_each_other(
    uses: dict[str, DeviceUses], expected: list[float | None]
) -> None:
    """The driver's numbers have names of their own, and what it does not say is left out."""
    names = ("driver_memory_bytes", "driver_processes", "busy_ratio")

    found = samples(an_observation(driver_uses=uses))

    rows = [[] if value is None else [(OWN_LABELS, value)] for value in expected]
    assert rows == [found[f"hami_share_{name}"] for name in names]
    assert [(SHARE_LABELS, 100)] == found["hami_vgpu_memory_used_bytes"]


def test_share_shows_its_grant_and_its_processes() -> None:
    """Compute that was granted is beside what is used; labels are those of the share, without a zone."""
    labels = OWN_LABELS

    found = samples(an_observation())

    assert [(labels, 0.25)] == found["hami_share_core_limit_ratio"]
    assert [(labels, 2)] == found["hami_share_processes"]


@pytest.mark.parametrize(
    ("unpreloaded", "is_limited", "expected"),
    [
        pytest.param(frozenset(), False, ["library"], id="library"),
        pytest.param(frozenset(), True, ["library", "driver"], id="both"),
        pytest.param(frozenset({KEY}), True, ["driver"], id="driver"),
        pytest.param(frozenset({KEY}), False, [], id="whole-device"),
    ],
)
def test_share_shows_who_limits_its_memory(
    unpreloaded: frozenset[ContainerKey], is_limited: bool, expected: list[str]
) -> None:
    """The driver is believed about its own limits, whatever the Node's mode is."""
    uses = {"GPU-a": DeviceUses({KEY: DriverUse(1, 100, 0.5, is_limited=is_limited)})}

    found = samples(an_observation(unpreloaded=unpreloaded, driver_uses=uses))

    assert [(OWN_LABELS | {"by": by}, 1) for by in expected] == found["hami_share_memory_enforcement"]


@pytest.mark.parametrize(
    ("use", "expected"),
    [
        pytest.param(DriverUse(2, 300, 0.5), [(SHARE_LABELS, 300), (SHARE_LABELS, 50)], id="counted"),
        pytest.param(DriverUse(2, None, 0.5), [], id="not-said"),
        pytest.param(None, [], id="unknown"),
    ],
)
def test_use_without_the_library_is_what_the_driver_counts(
    use: DriverUse | None, expected: list[tuple[dict[str, str], float]]
) -> None:
    """Never 0 because nobody counts. Only a library knows the parts, the processes and what launches wait for."""
    uses = {} if use is None else {"GPU-a": DeviceUses({KEY: use})}

    found = samples(an_observation(unpreloaded=frozenset({KEY}), usages={}, driver_uses=uses))

    assert expected == [*found["hami_vgpu_memory_used_bytes"], *found["hami_container_device_utilization_ratio"]]
    for name in ("hami_vgpu_memory_context_bytes", "hami_share_processes", "hami_share_blocked"):
        assert [] == found[name]
