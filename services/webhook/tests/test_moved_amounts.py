"""With `--dra-extended-resource` the amounts of NVIDIA devices move from limits into an annotation."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from hami_webhook.decide.admission import Outcome, Policy, admit
from hami_webhook.decide.quota import NamespaceQuota
from hamicommon.config.device_config import DeviceConfig
from hamicommon.wire.keys import DEVICE_AMOUNTS

from .json_patch import applied

PodBuilder = Callable[..., dict[str, Any]]


@pytest.fixture
def moving(devices: dict[str, DeviceConfig]) -> Policy:
    """Return the policy of the chart's defaults with the flag."""
    return Policy.of(devices["default"], "hami-scheduler", has_tokens=True)


def moved(pod: dict[str, Any]) -> Any:
    """Return what was moved, by container."""
    return json.loads(pod["metadata"]["annotations"][DEVICE_AMOUNTS])


def test_count_stays_and_everything_else_moves(moving: Policy, a_pod: PodBuilder) -> None:
    """Requests too, which the API server would compare with limits that are gone."""
    pod = a_pod({"gpu": "1", "gpumem": "3000", "gpucores": "25"})
    resources = pod["spec"]["containers"][0]["resources"]
    resources["requests"] = {"nvidia.com/gpumem": "3000", "cpu": "1"}

    found = applied(pod, admit(pod, moving).patch)

    left = found["spec"]["containers"][0]["resources"]
    assert {"limits": {"nvidia.com/gpu": "1"}, "requests": {"cpu": "1"}} == left
    assert {"c0": {"nvidia.com/gpucores": "25", "nvidia.com/gpumem": "3000"}} == moved(found)


@pytest.mark.parametrize(
    ("resources", "left"),
    [
        (
            {"limits": {"nvidia.com/gpu": "1"}, "requests": {"nvidia.com/gpumem": "3000"}},
            {"limits": {"nvidia.com/gpu": "1"}, "requests": {}},
        ),
        (
            {"limits": {"nvidia.com/gpumem": "3000"}, "requests": {"nvidia.com/gpu": "1"}},
            {"limits": {"nvidia.com/gpu": "1"}, "requests": {"nvidia.com/gpu": "1"}},
        ),
        (
            {"limits": {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3000"}, "requests": {"nvidia.com/gpumem": "3000"}},
            {"limits": {"nvidia.com/gpu": "1"}, "requests": {}},
        ),
    ],
)
def test_nothing_that_moves_is_left_even_if_nothing_else_is_there(
    moving: Policy, a_pod: PodBuilder, resources: dict[str, Any], left: dict[str, Any]
) -> None:
    """The API server rejects a request for an extended resource without its limit."""
    for kind in ("containers", "initContainers"):
        pod = a_pod({"gpu": "1"})
        pod["spec"][kind] = [{"name": "c1", "resources": resources}]
        found = applied(pod, admit(pod, moving).patch)

        assert left == found["spec"][kind][0]["resources"]
        assert "3000" == moved(found)["c1"]["nvidia.com/gpumem"]


def test_cores_that_admission_adds_move_too(moving: Policy, a_pod: PodBuilder) -> None:
    """A whole device would fit no Node with ResourceClaims otherwise."""
    pod = a_pod({"gpu": "1"})
    found = applied(pod, admit(pod, moving).patch)

    assert {"nvidia.com/gpu": "1"} == found["spec"]["containers"][0]["resources"]["limits"]
    assert {"c0": {"nvidia.com/gpucores": "100"}} == moved(found)


def test_second_call_changes_nothing(moving: Policy, policy: Policy, a_pod: PodBuilder) -> None:
    """The API server calls again after other webhooks; so does a replica from before the flag."""
    for limits in ({"gpu": "1", "gpumem": "3000"}, {"gpu": "2"}, {"gpumem-percentage": "50"}):
        pod = a_pod(limits)
        once = applied(pod, admit(pod, moving).patch)

        assert (Outcome.UNCHANGED, Outcome.UNCHANGED) == (admit(once, moving).outcome, admit(once, policy).outcome)


def test_amount_that_another_webhook_sets_later_counts(moving: Policy, a_pod: PodBuilder) -> None:
    """The limit is newer than the annotation."""
    pod = a_pod({"gpu": "1", "gpumem": "3000"})
    once = applied(pod, admit(pod, moving).patch)
    once["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpumem"] = "500"

    found = applied(once, admit(once, moving).patch)

    assert "500" == moved(found)["c0"]["nvidia.com/gpumem"]
    assert {"nvidia.com/gpu": "1"} == found["spec"]["containers"][0]["resources"]["limits"]


def test_moved_amounts_count_against_the_quota(moving: Policy, a_pod: PodBuilder) -> None:
    """In the first call and in a later one: Kubernetes' own quota sees only the count."""
    pod, quota = a_pod({"gpu": "1", "gpumem": "3000"}), NamespaceQuota({"nvidia.com/gpumem": 2999})
    once = applied(pod, admit(pod, moving).patch)

    assert [Outcome.OVER_QUOTA] * 2 == [admit(each, moving, "ns", quota).outcome for each in (pod, once)]


def test_bad_amount_is_rejected_although_it_moves(moving: Policy, a_pod: PodBuilder) -> None:
    """A person learns of it when the Pod is created."""
    assert Outcome.BAD_AMOUNT is admit(a_pod({"gpu": "1", "gpucores": "-1"}), moving).outcome


def test_annotation_that_cannot_be_read_is_rejected(policy: Policy, a_pod: PodBuilder) -> None:
    """It would make a Pod ask for whole devices."""
    pod = a_pod({"gpu": "1"})
    pod["metadata"]["annotations"] = {DEVICE_AMOUNTS: "{"}

    admission = admit(pod, policy)

    assert (Outcome.MALFORMED, False) == (admission.outcome, admission.allowed)
    assert f"metadata.annotations: {DEVICE_AMOUNTS}" in admission.message


def test_nothing_moves_without_the_flag_or_for_other_vendors(moving: Policy, policy: Policy, a_pod: PodBuilder) -> None:
    """A cluster without Nodes of kind `dra` is as before."""
    share, other = a_pod({"gpu": "1", "gpumem": "3000"}), a_pod({})
    other["spec"]["containers"][0]["resources"]["limits"] = {"hygon.com/dcunum": "1", "hygon.com/dcumem": "2000"}

    for pod, used in ((share, policy), (other, moving)):
        found = applied(pod, admit(pod, used).patch)
        assert DEVICE_AMOUNTS not in (found["metadata"].get("annotations") or {})
