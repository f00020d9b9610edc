"""
Quotas at admission: limits, use, and what a Pod adds at its peak.
"""

import json
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hami_webhook.decide.admission import Policy
from hami_webhook.decide.quota import NamespaceQuota, Quotas, demanded_by_pod
from hamicommon.config.device_config import DeviceConfig
from hamicommon.pod.amounts import Amounts
from hamicommon.pod.containers import ContainerKind
from hamicommon.wire.errors import DecodeError

VECTORS = Path(__file__).parents[3] / "libs" / "hamicommon" / "vectors"
INIT, SIDECAR, APP = ContainerKind.INIT, ContainerKind.SIDECAR, ContainerKind.APP
LIMITS = json.loads((VECTORS / "resource-quotas" / "limits.json").read_text())


def a_quota(name: str = "q", namespace: str = "ns", **hard: str) -> dict[str, Any]:
    """Return a ResourceQuota on NVIDIA's resources."""
    limits = {f"limits.nvidia.com/{resource}": amount for resource, amount in hard.items()}
    return {"metadata": {"name": name, "namespace": namespace}, "spec": {"hard": limits}}


def a_bound_pod(granted: str, name: str = "p", **spec: Any) -> dict[str, Any]:
    """Return a running Pod of one container with this grant."""
    return {
        "metadata": {"name": name, "namespace": "ns", "annotations": {"hami.io/vgpu-devices-allocated": granted}},
        "spec": {"nodeName": "n1", "containers": [{"name": "c"}], **spec},
        "status": {"phase": "Running"},
    }


@pytest.fixture
def quotas(policy: Policy) -> Quotas:
    """Return quotas without limits and Pods."""
    return Quotas(policy.vendors)


def test_a_namespace_without_limits_has_room(policy: Policy, quotas: Quotas) -> None:
    """Quotas of other namespaces do not count."""
    quotas.put_quota(a_quota(namespace="other", gpumem="1"))
    quotas.put_pod(a_bound_pod("GPU-a,NVIDIA,3000,0:;"))

    assert NamespaceQuota() == quotas.of("ns")
    assert quotas.of("ns").excess(policy.vendors[0], Amounts(0, 10**9, 0)) is None


def test_the_smallest_of_several_limits_counts(quotas: Quotas) -> None:
    """As for every resource of Kubernetes; after one is deleted the other counts."""
    quotas.put_quota(a_quota("a", gpumem="1000"))
    quotas.put_quota(a_quota("b", gpumem="500", gpucores="100"))
    assert {"nvidia.com/gpumem": 500, "nvidia.com/gpucores": 100} == quotas.of("ns").limits
    quotas.drop_quota(a_quota("b"))
    assert {"nvidia.com/gpumem": 1000} == quotas.of("ns").limits


def test_limits_that_are_not_ours_are_passed_by(quotas: Quotas) -> None:
    """Only `limits.` of a managed resource counts, and 0 is a limit."""
    hard = {"limits.cpu": "1", "nvidia.com/gpumem": "1", "limits.example.com/gpumem": "1"}
    quotas.put_quota({"metadata": {"namespace": "ns"}, "spec": {"hard": hard}})
    assert not quotas.has_limits
    quotas.put_quota(a_quota(gpumem="0"))
    assert quotas.has_limits


@pytest.mark.parametrize(
    ("asked", "fits"),
    [(Amounts(0, 1000, 0), True), (Amounts(0, 1001, 0), False), (Amounts(0, 0, 50), True), (Amounts(0, 0, 51), False)],
)
def test_the_limit_itself_still_fits(policy: Policy, asked: Amounts, fits: bool) -> None:
    """Use plus request may equal the limit."""
    quota = NamespaceQuota(
        {"nvidia.com/gpumem": 4000, "nvidia.com/gpucores": 100},
        {"NVIDIA": Amounts(0, 3000, 50), "MLU": Amounts(0, 9999, 99)},
    )

    assert fits == (quota.excess(policy.vendors[0], asked) is None)


@pytest.mark.parametrize("case", LIMITS, ids=lambda case: case["case"])
def test_limits_are_read_as_every_service_reads_them(devices: dict[str, DeviceConfig], case: dict[str, Any]) -> None:
    """The scheduler must read the same limit."""
    quotas = Quotas(Policy.of(devices[case["config"]], "").vendors)
    quotas.put_quota({"metadata": {"namespace": "ns", "name": "q"}, "spec": case["spec"]})

    assert case["limits"] == quotas.of("ns").limits


def test_a_quota_with_scopes_limits_nothing_and_is_known_for_it(quotas: Quotas) -> None:
    """Until its scopes are removed or it is deleted. A quota without managed resources is not reported."""
    quota = a_quota(gpumem="0")
    scoped = {**quota, "spec": {**quota["spec"], "scopes": ["BestEffort"]}}
    quotas.put_quota(scoped)
    quotas.put_quota({"metadata": {"namespace": "ns"}, "spec": {"hard": {"pods": "1"}, "scopes": ["BestEffort"]}})
    assert (False, {"ns/q": ("nvidia.com/gpumem",)}) == (quotas.has_limits, quotas.unapplied)

    quotas.put_quota(quota)
    assert (True, {}) == (quotas.has_limits, quotas.unapplied)
    quotas.replace_quotas([scoped])
    quotas.drop_quota(scoped)
    assert (False, {}) == (quotas.has_limits, quotas.unapplied)


def test_a_limit_counts_in_units_of_the_memory_factor(devices: dict[str, DeviceConfig]) -> None:
    """A quota has the unit of requests."""
    policy = Policy.of(devices["tuned"], "")
    nvidia, quotas = policy.vendors[0], Quotas(policy.vendors)
    quotas.put_quota(a_quota(gpumem="4"))
    quota = quotas.of("ns")

    assert quota.excess(nvidia, Amounts(0, 4096, 0)) is None
    assert "limits.nvidia.com/gpumem is 4096 MiB, 0 in use, 4097 asked" == quota.excess(nvidia, Amounts(0, 4097, 0))


def test_asking_for_nothing_fits_even_over_the_limit(policy: Policy) -> None:
    """An empty request always fits."""
    quota = NamespaceQuota({"nvidia.com/gpumem": 1}, {"NVIDIA": Amounts(0, 5000, 0)})

    assert quota.excess(policy.vendors[0], Amounts()) is None


@pytest.mark.parametrize(
    ("asked", "most"),
    [
        pytest.param([(APP, 1), (APP, 3)], 4, id="sum"),
        pytest.param([(INIT, 9), (APP, 1)], 9, id="init"),
        pytest.param([(SIDECAR, 5), (APP, 1)], 6, id="sidecar"),
        pytest.param([(SIDECAR, 5), (INIT, 7), (APP, 1)], 12, id="sidecar before init"),
        pytest.param([(INIT, 7), (SIDECAR, 5), (APP, 1)], 7, id="init before sidecar"),
    ],
)
def test_a_pod_counts_at_its_peak(policy: Policy, asked: list[tuple[ContainerKind, int]], most: int) -> None:
    """Init containers run one after the other, sidecars beside everything that follows."""
    containers = [
        (kind, {"limits": {"nvidia.com/gpu": 1, "nvidia.com/gpumem": memory, "nvidia.com/gpucores": memory}})
        for kind, memory in asked
    ]

    assert Amounts(0, most, most) == demanded_by_pod(containers, policy.vendors[0])


def test_only_pods_that_run_hold_anything(quotas: Quotas) -> None:
    """A grant counts from the binding to the end of the Pod."""
    quotas.put_quota(a_quota(gpumem="10000"))
    quotas.put_pod(a_bound_pod("GPU-a,NVIDIA,3000,10:GPU-b,NVIDIA,1000,5:;"))
    quotas.put_pod(a_bound_pod("GPU-a,NVIDIA,500,0:;", "unbound", nodeName=""))
    quotas.put_pod({**a_bound_pod("GPU-a,NVIDIA,500,0:;", "ended"), "status": {"phase": "Succeeded"}})
    assert {"NVIDIA": Amounts(0, 4000, 15)} == quotas.of("ns").used

    quotas.put_pod({**a_bound_pod("GPU-a,NVIDIA,3000,10:;"), "status": {"phase": "Failed"}})
    assert {"NVIDIA": Amounts()} == quotas.of("ns").used


def test_init_containers_that_have_ended_hold_nothing(quotas: Quotas) -> None:
    """A sidecar keeps its grant, and so does a failed one, which runs again."""
    quotas.put_quota(a_quota(gpumem="10000"))
    inits = [{"name": "i"}, {"name": "s", "restartPolicy": "Always"}]
    pod = a_bound_pod("G,NVIDIA,5000,0:;G,NVIDIA,300,0:;G,NVIDIA,20,0:;", initContainers=inits)
    ended = [{"name": name, "state": {"terminated": {"exitCode": 0}}} for name in "is"]
    failed = [{"name": "i", "state": {"terminated": {"exitCode": 1}}}]

    for statuses, held in (([], 5000), (failed, 5000), (ended, 320)):
        quotas.put_pod({**pod, "status": {"phase": "Running", "initContainerStatuses": statuses}})
        assert {"NVIDIA": Amounts(0, held, 0)} == quotas.of("ns").used


def test_cores_that_are_granted_in_another_unit_than_asked_do_not_count(policy: Policy) -> None:
    """AMD grants compute units, AWS one bit for each core; requests still count."""
    quotas = Quotas(policy.vendors)
    quotas.put_quota({"metadata": {"namespace": "ns"}, "spec": {"hard": {"limits.amd.com/gpucores": "100"}}})
    pod = a_bound_pod("")
    pod["metadata"]["annotations"] = {
        "hami.io/amd-devices-allocated": "A,AMD MI300X,1000,304:;",
        "hami.io/aws-neuron-devices-allocated": "N,AWSNeuron,0,3:;",
    }
    quotas.put_pod(pod)

    assert {"AMD": Amounts(0, 1000, 0), "AWSNeuron": Amounts(0, 0, 0)} == quotas.of("ns").used


def test_a_grant_that_cannot_be_read_is_reported_and_holds_nothing(quotas: Quotas) -> None:
    """One bad annotation does not hide other Pods."""
    quotas.put_quota(a_quota(gpumem="10000"))
    quotas.put_pod(a_bound_pod("GPU-a,NVIDIA,3000,10:;"))
    with pytest.raises(DecodeError):
        quotas.put_pod(a_bound_pod("GPU-a,NVIDIA,lots,10:;"))

    assert {"NVIDIA": Amounts()} == quotas.of("ns").used


EVENTS = st.tuples(st.sampled_from("abc"), st.sampled_from(["", "G,NVIDIA,7,1:;", "G,NVIDIA,20,5:;"]))


@pytest.mark.property
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(events=st.lists(EVENTS, max_size=12))
def test_sums_are_those_of_the_pods_that_are_there(policy: Policy, events: list[tuple[str, str]]) -> None:
    """After any sequence of additions and removals, repeated ones included."""
    quotas, held = Quotas(policy.vendors), dict.fromkeys("abc", "")
    quotas.put_quota(a_quota(gpumem="10000"))
    for name, grant in events:
        held[name] = grant
        if grant:
            quotas.put_pod(a_bound_pod(grant, name))
        else:
            quotas.drop_pod(a_bound_pod("", name))

    amounts = {"G,NVIDIA,7,1:;": Amounts(0, 7, 1), "G,NVIDIA,20,5:;": Amounts(0, 20, 5), "": Amounts()}
    assert reduce(Amounts.plus, (amounts[grant] for grant in held.values()), Amounts()) == quotas.of("ns").used.get(
        "NVIDIA", Amounts()
    )


def test_quota_that_is_deleted_limits_nothing(quotas: Quotas) -> None:
    """The namespace has no limit again."""
    quotas.put_quota(a_quota(gpumem="1"))
    quotas.drop_quota(a_quota())

    assert (NamespaceQuota(), False) == (quotas.of("ns"), quotas.has_limits)


def test_pods_that_are_forgotten_hold_nothing(quotas: Quotas) -> None:
    """A new list replaces the old one."""
    quotas.put_quota(a_quota(gpumem="10000"))
    quotas.put_pod(a_bound_pod("GPU-a,NVIDIA,3000,0:;"))
    quotas.forget_pods()

    assert {} == quotas.of("ns").used
