"""
What the author of a Pod probably did not mean is admitted with a warning that says what is likely.
"""

from collections.abc import Callable
from typing import Any

import pytest

from hami_webhook.decide.admission import Policy, admit
from hami_webhook.decide.advice import NAMES_CHECKED, Vocabulary
from hamicommon.config.device_config import DeviceConfig

PodBuilder = Callable[..., dict[str, Any]]


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("gpumemory", "gpumem"),
        ("gpu-memory", "gpumem"),
        ("gpucore", "gpucores"),
        ("gpus", "gpu"),
        ("gpumem-percent", "gpumem-percentage"),
    ],
)
def test_resource_that_nothing_grants_is_named_with_the_one_that_is_meant(
    wrong: str, meant: str, policy: Policy, a_pod: PodBuilder
) -> None:
    """The Pod would wait for ever, because no Node offers the resource."""
    admission = admit(a_pod({"gpu": "1", wrong: "3000"}), policy)

    expected = f"container c0: nvidia.com/{wrong} is no resource of the device config; did you mean nvidia.com/{meant}?"
    assert (True, (expected,)) == (admission.allowed, admission.warnings)


@pytest.mark.parametrize("other", ["mig-1g.5gb", "gpu.shared", "mofed", "x" * 300])
def test_resource_of_other_software_is_left_alone(other: str, policy: Policy, a_pod: PodBuilder) -> None:
    """NVIDIA's plugin offers more in the same domain."""
    assert () == admit(a_pod({"gpu": "1", other: "1"}), policy).warnings


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("nvidia.com/use-gpu-uuid", "nvidia.com/use-gpuuuid"),
        ("hami.io/gpu-scheduler-polic", "hami.io/gpu-scheduler-policy"),
        ("nvidia.com/vgpu_mode", "nvidia.com/vgpu-mode"),
        ("metax-tech.com/sgpu_qos_policy", "metax-tech.com/sgpu-qos-policy"),
        ("huawei.com/vnpu_mode", "huawei.com/vnpu-mode"),
    ],
)
def test_annotation_that_nothing_reads_is_named_with_the_one_that_is_meant(
    wrong: str, meant: str, policy: Policy, a_pod: PodBuilder
) -> None:
    """It would be without effect, and nobody would say so."""
    pod = a_pod({"gpu": "1"})
    pod["metadata"]["annotations"] = {wrong: "x"}

    assert (f"annotation {wrong}: nothing reads it; did you mean {meant}?",) == admit(pod, policy).warnings


def test_every_annotation_that_is_read_passes_without_a_warning(
    devices: dict[str, DeviceConfig], policy: Policy, a_pod: PodBuilder
) -> None:
    """Those that services write too: templates are copied from running Pods."""
    vocabulary = Vocabulary.of(devices["default"].vendors())
    pod = a_pod({"gpu": "1"})
    pod["metadata"]["annotations"] = dict.fromkeys(vocabulary.annotations - policy.granted_keys, "")

    assert len(vocabulary.author_annotations) > 20
    assert () == admit(pod, policy).warnings


@pytest.mark.parametrize(("cores", "is_warned"), [("100", False), ("101", True), ("150", True)])
def test_cores_above_a_whole_device_are_said_to_count_as_one(
    cores: str, is_warned: bool, policy: Policy, a_pod: PodBuilder
) -> None:
    """HAMi reduces them too, and says nothing."""
    expected = (f"container c0: nvidia.com/gpucores: {cores} counts as 100, a whole device",) if is_warned else ()

    assert expected == admit(a_pod({"gpu": "1", "gpucores": cores}), policy).warnings


def test_pod_with_thousands_of_strange_names_costs_as_much_as_one_with_a_few(policy: Policy, a_pod: PodBuilder) -> None:
    """Only the first few are compared with what they could mean."""
    pod = a_pod({"gpu": "1", **{f"gpumem{number}": "1" for number in range(5000)}})
    pod["metadata"]["annotations"] = {f"hami.io/gpu-scheduler-policy{number}": "" for number in range(5000)}

    assert 2 * NAMES_CHECKED == len(admit(pod, policy).warnings)


@pytest.mark.parametrize(("value", "is_known"), [("driver", True), ("", True), ("Driver", False), ("library", False)])
def test_unknown_word_for_who_limits_memory_is_named(
    value: str, is_known: bool, policy: Policy, a_pod: PodBuilder
) -> None:
    """The device plugin would refuse to start the Pod's containers."""
    pod = a_pod({"gpu": "1"})
    pod["metadata"]["annotations"] = {"hami.io/enforcement": value}

    expected = (
        f"annotation hami.io/enforcement: is {value!r}, it must be 'driver' or absent; no container with a share will "
        "start"
    )
    assert (() if is_known else (expected,)) == admit(pod, policy).warnings
