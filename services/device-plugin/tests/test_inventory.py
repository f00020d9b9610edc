"""
What a Node offers of the devices that its driver reports.
"""

import pytest

from hami_device_plugin.decide.inventory import (
    FoundDevice,
    SharingPolicy,
    inventory,
    with_doubled_vendor,
)


def a_device(index: int = 0, *, name: str = "Tesla T4", memory_mib: int | None = 16384, numa: int = 0) -> FoundDevice:
    """Return a device as the driver reports it."""
    memory_bytes = None if memory_mib is None else memory_mib * 2**20
    return FoundDevice(f"GPU-{index}", index, name, memory_bytes, numa)


def a_policy(**changes: object) -> SharingPolicy:
    """Return a policy of two replicas."""
    return SharingPolicy(**({"split_count": 2} | changes))  # type: ignore[arg-type]


def test_devices_are_offered_by_index() -> None:
    """The annotation's order does not depend on the driver's."""
    offered = inventory([a_device(2), a_device(0), a_device(1)], a_policy())

    assert [0, 1, 2] == [device.index for device in offered]


@pytest.mark.parametrize(
    ("scaling", "memory_mib", "expected"),
    [
        pytest.param(1.0, 16384, 16384, id="as it is"),
        pytest.param(1.5, 16384, 24576, id="oversubscribed"),
        pytest.param(0.1, 16384, 1638, id="truncated"),
        pytest.param(1.15, 100, 114, id="binary floating point, as HAMi"),
        pytest.param(1000.0, 2**31 - 1, 2**31 - 1, id="saturated at 32 bits"),
    ],
)
def test_memory_is_scaled(scaling: float, memory_mib: int, expected: int) -> None:
    """Scaled memory is whole MiB and fits the annotation's 32 bits."""
    [device] = inventory([a_device(memory_mib=memory_mib)], a_policy(memory_scaling=scaling))

    assert expected == device.memory_mib


def test_partial_mib_is_not_offered() -> None:
    """A device of one MiB minus a byte has 0 MiB."""
    assert () == inventory([FoundDevice("GPU-0", 0, "T4", 2**20 - 1)], a_policy())


def test_compute_is_scaled() -> None:
    """100 percent is a whole device."""
    assert [150] == [device.core_percent for device in inventory([a_device()], a_policy(core_scaling=1.5))]


@pytest.mark.parametrize(
    ("name", "type_"),
    [("Tesla T4", "NVIDIA-Tesla T4"), ("NVIDIA A100", "NVIDIA A100")],
)
def test_type_names_the_vendor_once(name: str, type_: str) -> None:
    """Since HAMi 2.8 the prefix is added only if the driver's name lacks it."""
    assert [type_] == [device.type for device in inventory([a_device(name=name)], a_policy())]


@pytest.mark.parametrize(
    ("name", "type_"),
    [("Tesla T4", "NVIDIA-Tesla T4"), ("NVIDIA A100", "NVIDIA-NVIDIA A100")],
)
def test_type_for_old_schedulers_is_always_prefixed(name: str, type_: str) -> None:
    """Up to HAMi 2.7.1 the prefix was added to every name."""
    assert [type_] == [device.type for device in with_doubled_vendor(inventory([a_device(name=name)], a_policy()))]


def test_device_without_known_memory_is_left_out_unless_configured() -> None:
    """The driver does not know the memory of devices that share the host's."""
    unknown = [a_device(memory_mib=None)]

    assert () == inventory(unknown, a_policy())
    assert [4096] == [device.memory_mib for device in inventory(unknown, a_policy(preconfigured_memory_mib=4096))]


def test_filtered_devices_are_left_out() -> None:
    """By UUID or by index; the others keep their index."""
    found = [a_device(0), a_device(1), a_device(2)]
    policy = a_policy(excluded_uuids=frozenset({"GPU-0"}), excluded_indices=frozenset({2}))

    assert [("GPU-1", 1)] == [(device.id, device.index) for device in inventory(found, policy)]
