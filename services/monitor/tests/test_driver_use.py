"""
What the driver counts for each container.
"""

import pytest

from hami_monitor.decide.containers import ContainerKey
from hami_monitor.decide.driver_use import DriverUse, driver_uses
from hami_monitor.decide.host import DeviceProcess, HostDevice

from .watchdog.values import a_place, a_process, an_owner

MAIN, SIDE, OTHER = ContainerKey("u1", "main"), ContainerKey("u1", "side"), ContainerKey("u2", "main")
OWNERS = {"u1": an_owner("u1", "main", "side"), "u2": an_owner("u2")}
PROCESSES = {1: a_process(1), 2: a_process(2), 3: a_process(3, container="side"), 4: a_process(4, pod_uid="u9")}


def a_device(*processes: DeviceProcess, uuid: str = "GPU-a", utilization_percent: int | None = 50) -> HostDevice:
    """Return a device with *processes*."""
    return HostDevice(0, uuid, "NVIDIA T4", utilization_percent=utilization_percent, processes=processes)


def test_processes_of_a_container_add_up_on_each_device() -> None:
    """Those of the Node, of Pods that are gone and of other containers do not count."""
    first = a_device(
        DeviceProcess(1, 100, 25.0),
        DeviceProcess(2, 50, 5.0),
        DeviceProcess(3, 7, 40.0),
        DeviceProcess(4, 1000, 30.0),
        DeviceProcess(5, 2000),
    )
    second = a_device(DeviceProcess(1, 11, 1.0), uuid="GPU-b")

    found = driver_uses((first, second), PROCESSES, OWNERS)

    assert [DriverUse(2, 150, 0.3), DriverUse(1, 7, 0.4), DriverUse(0, 0, 0.0)] == [
        found["GPU-a"].of(key) for key in (MAIN, SIDE, OTHER)
    ]
    assert DriverUse(1, 11, 0.01) == found["GPU-b"].of(MAIN)


@pytest.mark.parametrize(
    ("processes", "expected"),
    [
        pytest.param((DeviceProcess(1, None), DeviceProcess(2, None)), None, id="of-none"),
        pytest.param((DeviceProcess(1, None), DeviceProcess(2, 50)), 50, id="of-one"),
    ],
)
def test_memory_that_the_driver_does_not_say_is_unknown(
    processes: tuple[DeviceProcess, ...], expected: int | None
) -> None:
    """It is not 0."""
    assert expected == driver_uses((a_device(*processes),), PROCESSES, OWNERS)["GPU-a"].of(MAIN).used_bytes


@pytest.mark.parametrize(("listed", "expected"), [(None, 80), (50, 80), (100, 100)])
def test_memory_is_that_of_the_control_group_if_it_has_more(listed: int | None, expected: int) -> None:
    """The driver may list no process of it, or not say how much one has; managed memory is counted by process only."""
    grouped = {a_place(): 80, a_place(container="side"): 9}
    device = a_device(DeviceProcess(1, listed))

    found = driver_uses((device,), PROCESSES, OWNERS, grouped)["GPU-a"]

    assert (expected, 9) == (found.of(MAIN).used_bytes, found.of(SIDE).used_bytes)


def test_driver_limits_whom_it_counts_by_control_group() -> None:
    """Also one that has no memory yet."""
    found = driver_uses((a_device(DeviceProcess(1, 50)),), PROCESSES, OWNERS, {a_place(container="side"): 0})["GPU-a"]

    assert (False, True, False) == tuple(found.of(key).is_limited for key in (MAIN, SIDE, OTHER))


def test_device_time_is_unknown_on_a_device_without_samples() -> None:
    """A device in MIG mode has none; elsewhere a process without a sample did not run."""
    sampled, unsampled = a_device(DeviceProcess(1, 100)), a_device(DeviceProcess(1, 100), utilization_percent=None)
    idle, unknown = (driver_uses((device,), PROCESSES, OWNERS)["GPU-a"] for device in (sampled, unsampled))

    assert [0.0, 0.0] == [idle.of(key).busy_ratio for key in (MAIN, OTHER)]
    assert [None, None] == [unknown.of(key).busy_ratio for key in (MAIN, OTHER)]
