"""
Quotas at admission: limits, what is held, and what a Pod adds at its peak.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hami_webhook.decide.admission import Policy
from hami_webhook.decide.quota import Amount, Holdings, NamespaceQuota, peak
from hamicommon.config import DeviceConfig
from hamicommon.wire.errors import DecodeError

VECTORS = Path(__file__).parents[3] / "libs" / "hamicommon" / "vectors"
LIMITS = json.loads((VECTORS / "resource-quotas" / "limits.json").read_text())


def a_quota(name: str = "q", namespace: str = "ns", **hard: str) -> dict[str, Any]:
    """Return a ResourceQuota on NVIDIA's resources."""
    limits = {f"limits.nvidia.com/{resource}": amount for resource, amount in hard.items()}
    return {"metadata": {"name": name, "namespace": namespace}, "spec": {"hard": limits}}


def a_bound_pod(granted: str, name: str = "p", **spec: Any) -> dict[str, Any]:
    """Return a running Pod of one container that was granted something."""
    return {
        "metadata": {"name": name, "namespace": "ns", "annotations": {"hami.io/vgpu-devices-allocated": granted}},
        "spec": {"nodeName": "n1", "containers": [{"name": "c"}], **spec},
        "status": {"phase": "Running"},
    }


@pytest.fixture
def holdings(policy: Policy) -> Holdings:
    """Nothing limited, nothing held."""
    return Holdings(policy.vendors)


def test_a_namespace_without_limits_has_room(policy: Policy, holdings: Holdings) -> None:
    """Another namespace's quota is another's."""
    holdings.put_quota(a_quota(namespace="other", gpumem="1"))
    holdings.put_pod(a_bound_pod("GPU-a,NVIDIA,3000,0:;"))

    assert NamespaceQuota() == holdings.of("ns")
    assert holdings.of("ns").excess(policy.vendors[0], Amount(10**9, 0)) is None


def test_the_smallest_of_several_limits_counts(holdings: Holdings) -> None:
    """As for every resource Kubernetes limits itself; dropping one leaves the other."""
    holdings.put_quota(a_quota("a", gpumem="1000"))
    holdings.put_quota(a_quota("b", gpumem="500", gpucores="100"))
    assert {"nvidia.com/gpumem": 500, "nvidia.com/gpucores": 100} == holdings.of("ns").limits
    holdings.drop_quota(a_quota("b"))
    assert {"nvidia.com/gpumem": 1000} == holdings.of("ns").limits


def test_limits_that_are_not_ours_are_passed_by(holdings: Holdings) -> None:
    """Only `limits.` of a managed resource is one, and 0 is one, too."""
    hard = {"limits.cpu": "1", "nvidia.com/gpumem": "1", "limits.example.com/gpumem": "1"}
    holdings.put_quota({"metadata": {"namespace": "ns"}, "spec": {"hard": hard}})
    assert not holdings.has_limits
    holdings.put_quota(a_quota(gpumem="0"))
    assert holdings.has_limits


@pytest.mark.parametrize(
    ("asked", "fits"),
    [(Amount(1000, 0), True), (Amount(1001, 0), False), (Amount(0, 50), True), (Amount(0, 51), False)],
)
def test_the_limit_itself_still_fits(policy: Policy, asked: Amount, fits: bool) -> None:
    """Held plus asked may reach the limit, not pass it."""
    quota = NamespaceQuota(
        {"nvidia.com/gpumem": 4000, "nvidia.com/gpucores": 100}, {"NVIDIA": Amount(3000, 50), "MLU": Amount(9999, 99)}
    )

    assert fits == (quota.excess(policy.vendors[0], asked) is None)


@pytest.mark.parametrize("case", LIMITS, ids=lambda case: case["case"])
def test_limits_are_read_as_every_service_reads_them(devices: dict[str, DeviceConfig], case: dict[str, Any]) -> None:
    """Limits the scheduler reads otherwise would be kept by one of the two only."""
    holdings = Holdings(Policy.of(devices[case["config"]], "").vendors)
    holdings.put_quota({"metadata": {"namespace": "ns", "name": "q"}, "spec": case["spec"]})

    assert case["limits"] == holdings.of("ns").limits


def test_a_quota_with_scopes_limits_nothing_and_is_known_for_it(holdings: Holdings) -> None:
    """Until it has none, or is gone; one that names no managed resource is nobody's concern."""
    quota = a_quota(gpumem="0")
    scoped = {**quota, "spec": {**quota["spec"], "scopes": ["BestEffort"]}}
    holdings.put_quota(scoped)
    holdings.put_quota({"metadata": {"namespace": "ns"}, "spec": {"hard": {"pods": "1"}, "scopes": ["BestEffort"]}})
    assert (False, {"ns/q": ("nvidia.com/gpumem",)}) == (holdings.has_limits, holdings.unapplied)

    holdings.put_quota(quota)
    assert (True, {}) == (holdings.has_limits, holdings.unapplied)
    holdings.replace_quotas([scoped])
    holdings.drop_quota(scoped)
    assert (False, {}) == (holdings.has_limits, holdings.unapplied)


def test_a_limit_counts_in_units_of_the_memory_factor(devices: dict[str, DeviceConfig]) -> None:
    """A quota is written in the unit users request in."""
    policy = Policy.of(devices["tuned"], "")
    nvidia, holdings = policy.vendors[0], Holdings(policy.vendors)
    holdings.put_quota(a_quota(gpumem="4"))
    quota = holdings.of("ns")

    assert quota.excess(nvidia, Amount(4096, 0)) is None
    assert "limits.nvidia.com/gpumem is 4096 MiB, 0 in use, 4097 asked" == quota.excess(nvidia, Amount(4097, 0))


def test_asking_for_nothing_fits_even_over_the_limit(policy: Policy) -> None:
    """A percentage has no MiB before it has a device."""
    quota = NamespaceQuota({"nvidia.com/gpumem": 1}, {"NVIDIA": Amount(5000, 0)})

    assert quota.excess(policy.vendors[0], Amount()) is None


@pytest.mark.parametrize(
    ("inits", "containers", "most"),
    [
        ([], [Amount(1, 2), Amount(3, 4)], Amount(4, 6)),
        ([(False, Amount(9, 1))], [Amount(1, 2)], Amount(9, 2)),
        ([(True, Amount(5, 5))], [Amount(1, 2)], Amount(6, 7)),
        ([(True, Amount(5, 0)), (False, Amount(7, 0))], [Amount(1, 0)], Amount(12, 0)),
        ([(False, Amount(7, 0)), (True, Amount(5, 0))], [Amount(1, 0)], Amount(7, 0)),
    ],
    ids=["sum", "init", "sidecar", "sidecar before init", "init before sidecar"],
)
def test_a_pod_counts_at_its_peak(inits: list[tuple[bool, Amount]], containers: list[Amount], most: Amount) -> None:
    """Init containers run one after the other, sidecars beside everything that follows."""
    assert most == peak(inits, containers)


def test_only_pods_that_run_hold_anything(holdings: Holdings) -> None:
    """An annotation counts with a node, until the Pod ends."""
    holdings.put_quota(a_quota(gpumem="10000"))
    holdings.put_pod(a_bound_pod("GPU-a,NVIDIA,3000,10:GPU-b,NVIDIA,1000,5:;"))
    holdings.put_pod(a_bound_pod("GPU-a,NVIDIA,500,0:;", "unbound", nodeName=""))
    holdings.put_pod({**a_bound_pod("GPU-a,NVIDIA,500,0:;", "ended"), "status": {"phase": "Succeeded"}})
    assert {"NVIDIA": Amount(4000, 15)} == holdings.of("ns").used

    holdings.put_pod({**a_bound_pod("GPU-a,NVIDIA,3000,10:;"), "status": {"phase": "Failed"}})
    assert {"NVIDIA": Amount()} == holdings.of("ns").used


def test_init_containers_that_have_ended_hold_nothing(holdings: Holdings) -> None:
    """A sidecar goes on; one that failed is run again."""
    holdings.put_quota(a_quota(gpumem="10000"))
    inits = [{"name": "i"}, {"name": "s", "restartPolicy": "Always"}]
    pod = a_bound_pod("G,NVIDIA,5000,0:;G,NVIDIA,300,0:;G,NVIDIA,20,0:;", initContainers=inits)
    ended = [{"name": name, "state": {"terminated": {"exitCode": 0}}} for name in "is"]
    failed = [{"name": "i", "state": {"terminated": {"exitCode": 1}}}]

    for statuses, held in (([], 5000), (failed, 5000), (ended, 320)):
        holdings.put_pod({**pod, "status": {"phase": "Running", "initContainerStatuses": statuses}})
        assert {"NVIDIA": Amount(held, 0)} == holdings.of("ns").used


def test_cores_that_are_granted_in_another_unit_than_asked_do_not_count(policy: Policy) -> None:
    """AMD grants compute units, AWS names each core by a bit; what is asked is still looked at."""
    holdings = Holdings(policy.vendors)
    holdings.put_quota({"metadata": {"namespace": "ns"}, "spec": {"hard": {"limits.amd.com/gpucores": "100"}}})
    pod = a_bound_pod("")
    pod["metadata"]["annotations"] = {
        "hami.io/amd-devices-allocated": "A,AMD MI300X,1000,304:;",
        "hami.io/aws-neuron-devices-allocated": "N,AWSNeuron,0,3:;",
    }
    holdings.put_pod(pod)

    assert {"AMD": Amount(1000, 0), "AWSNeuron": Amount(0, 0)} == holdings.of("ns").used


def test_a_grant_that_cannot_be_read_is_reported_and_holds_nothing(holdings: Holdings) -> None:
    """One bad annotation must not hide the others."""
    holdings.put_quota(a_quota(gpumem="10000"))
    holdings.put_pod(a_bound_pod("GPU-a,NVIDIA,3000,10:;"))
    with pytest.raises(DecodeError):
        holdings.put_pod(a_bound_pod("GPU-a,NVIDIA,lots,10:;"))

    assert {"NVIDIA": Amount()} == holdings.of("ns").used


EVENTS = st.tuples(st.sampled_from("abc"), st.sampled_from(["", "G,NVIDIA,7,1:;", "G,NVIDIA,20,5:;"]))


@pytest.mark.property
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(events=st.lists(EVENTS, max_size=12))
def test_sums_are_those_of_the_pods_that_are_there(policy: Policy, events: list[tuple[str, str]]) -> None:
    """Whatever came and went before, in whatever order, twice or for nothing."""
    holdings, held = Holdings(policy.vendors), dict.fromkeys("abc", "")
    holdings.put_quota(a_quota(gpumem="10000"))
    for name, grant in events:
        held[name] = grant
        if grant:
            holdings.put_pod(a_bound_pod(grant, name))
        else:
            holdings.drop_pod(a_bound_pod("", name))

    amounts = {"G,NVIDIA,7,1:;": Amount(7, 1), "G,NVIDIA,20,5:;": Amount(20, 5), "": Amount()}
    assert sum((amounts[grant] for grant in held.values()), start=Amount()) == holdings.of("ns").used.get(
        "NVIDIA", Amount()
    )


def test_quota_that_is_deleted_limits_nothing(holdings: Holdings) -> None:
    """The namespace is as if it had never been."""
    holdings.put_quota(a_quota(gpumem="1"))
    holdings.drop_quota(a_quota())

    assert (NamespaceQuota(), False) == (holdings.of("ns"), holdings.has_limits)


def test_pods_that_are_forgotten_hold_nothing(holdings: Holdings) -> None:
    """Before a new list is taken over, the old one goes."""
    holdings.put_quota(a_quota(gpumem="10000"))
    holdings.put_pod(a_bound_pod("GPU-a,NVIDIA,3000,0:;"))
    holdings.forget_pods()

    assert {} == holdings.of("ns").used
