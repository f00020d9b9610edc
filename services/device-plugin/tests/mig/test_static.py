"""
What a MIG strategy offers of the instances that an administrator created.
"""

from dataclasses import replace
from typing import Any

import pytest
from device_plugin_mig import GPU, a_gpu

from hami_device_plugin.decide.inventory import SharingPolicy
from hami_device_plugin.decide.mig.geometry import MigMode
from hami_device_plugin.decide.mig.static import MIXED, SINGLE, MigDevice, MigStrategyError, static_offer

ALL = SharingPolicy(1)
OTHER = a_gpu(uuid="GPU-b", index=1)
PLAIN = a_gpu(uuid="GPU-c", index=2, mode=MigMode.OFF)
T4 = a_gpu(uuid="GPU-d", index=3, mode=MigMode.UNSUPPORTED, name="Tesla T4")


def a_mig_device(uuid: str = "MIG-1", **changes: Any) -> MigDevice:
    """Return an instance of 1g.5gb on the first GPU."""
    return replace(MigDevice(uuid, GPU, 0, "NVIDIA A100-SXM4-40GB MIG 1g.5gb", "1g.5gb", True, 4864), **changes)


def test_single_offers_equal_instances_under_the_usual_resource() -> None:
    """On several GPUs."""
    devices = [a_mig_device(), a_mig_device("MIG-2", gpu_uuid="GPU-b", gpu_index=1)]

    found = static_offer(SINGLE, [a_gpu(), OTHER], devices, ALL)

    assert (frozenset(), tuple(devices), ()) == (found.gpu_uuids, found.usual, found.by_resource)


def test_single_without_mig_offers_whole_gpus() -> None:
    """One setting serves a cluster of both kinds of Node."""
    assert {"GPU-c", "GPU-d"} == static_offer(SINGLE, [PLAIN, T4], [], ALL).gpu_uuids


@pytest.mark.parametrize(
    ("gpus", "devices", "message"),
    [
        pytest.param(
            [a_gpu()],
            [a_mig_device(), a_mig_device("MIG-2", profile="2g.10gb")],
            "different sizes: 1g.5gb, 2g.10gb",
            id="sizes",
        ),
        pytest.param([a_gpu(), PLAIN], [a_mig_device()], "in MIG mode and GPU GPU-c is not", id="with and without MIG"),
        pytest.param([a_gpu(), OTHER], [a_mig_device()], r"GPU-b .* has no instance", id="GPU without instances"),
    ],
)
def test_single_refuses_what_is_not_of_one_size_and_says_why(gpus: Any, devices: Any, message: str) -> None:
    """A Pod could not tell what it gets."""
    with pytest.raises(MigStrategyError, match=message):
        static_offer(SINGLE, gpus, devices, ALL)


def test_mixed_offers_each_size_under_its_resource() -> None:
    """GPUs without MIG keep the usual one."""
    devices = [a_mig_device("MIG-2", profile="2g.10gb"), a_mig_device(), a_mig_device("MIG-3", profile="1g.5gb+me")]

    found = static_offer(MIXED, [a_gpu(), PLAIN], devices, ALL)

    assert {"GPU-c"} == found.gpu_uuids
    assert (
        ("nvidia.com/mig-1g.5gb", (devices[1],)),
        ("nvidia.com/mig-1g.5gb.me", (devices[2],)),
        ("nvidia.com/mig-2g.10gb", (devices[0],)),
    ) == found.by_resource


def test_mixed_warns_of_what_it_leaves_out() -> None:
    """A GPU without instances, and an instance with only some compute slices."""
    part = a_mig_device(profile="1c.2g.10gb", is_whole=False)

    found = static_offer(MIXED, [a_gpu(), OTHER], [part], ALL)

    assert () == found.by_resource
    assert ["GPU-b", "MIG-1"] == [next(name for name in ("GPU-b", "MIG-1") if name in text) for text in found.warnings]


@pytest.mark.parametrize("strategy", [SINGLE, MIXED])
def test_excluded_gpu_is_not_offered_nor_are_its_instances(strategy: str) -> None:
    """By index or by UUID, as `filterdevices` names it."""
    for policy in (replace(ALL, excluded_indices=frozenset({0})), replace(ALL, excluded_uuids=frozenset({GPU}))):
        found = static_offer(strategy, [a_gpu(), T4], [a_mig_device()], policy)

        assert (frozenset({"GPU-d"}), (), ()) == (found.gpu_uuids, found.usual, found.by_resource)


def test_excluded_instance_is_not_offered() -> None:
    """By UUID."""
    devices = [a_mig_device(), a_mig_device("MIG-2")]

    policy = replace(ALL, excluded_uuids=frozenset({"MIG-1"}))
    assert (devices[1],) == static_offer(SINGLE, [a_gpu()], devices, policy).usual
