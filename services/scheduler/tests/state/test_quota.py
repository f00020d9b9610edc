"""What namespaces may hold."""

import json
from pathlib import Path
from typing import Any

import pytest

from hami_scheduler.search.place_pod import try_node
from hami_scheduler.search.placement import Placement
from hami_scheduler.state.cluster import Cluster
from hami_scheduler.state.quota import UNLIMITED, Quotas
from hami_scheduler.values.policies import Policies
from hami_scheduler.values.reasons import Misfit, Reason
from hami_scheduler.values.request import read_request

from ..support.builders import a_grant, a_share, vendors

LIMITS = json.loads(
    (Path(__file__).parents[4] / "libs/hamicommon/vectors/resource-quotas/limits.json").read_text(encoding="utf-8")
)


def a_quota(name: str = "q", namespace: str = "default", **hard: str) -> dict[str, Any]:
    """Return a ResourceQuota limiting `gpumem` and `gpucores`."""
    limits = {f"limits.nvidia.com/{key}": value for key, value in hard.items()}
    return {"metadata": {"name": name, "namespace": namespace}, "spec": {"hard": limits}}


def left(quotas: Quotas, namespace: str = "default") -> tuple[int | None, int | None]:
    """Return what is left of memory and compute."""
    found = quotas.allowance(namespace, quotas.vendors[0])
    return found.memory_mib, found.core_percent


def test_namespace_without_quota_is_unlimited() -> None:
    """No limit, or a limit of something else, limits nothing."""
    quotas = Quotas(vendors())
    quotas.put({**a_quota(), "spec": {"hard": {"limits.cpu": "1", "requests.nvidia.com/gpumem": "1"}}})

    assert UNLIMITED == quotas.allowance("default", vendors()[0])
    assert not UNLIMITED.is_exceeded_by(10**9, 10**9)


def test_explicit_zero_allows_nothing() -> None:
    """Zero is a limit, not the absence of one."""
    quotas = Quotas(vendors())
    quotas.put(a_quota(gpumem="0"))

    assert (0, None) == left(quotas)
    assert quotas.allowance("default", vendors()[0]).is_exceeded_by(1, 0)


def test_smallest_of_several_quotas_counts() -> None:
    """As for every resource Kubernetes limits itself; with the smallest gone the next counts."""
    quotas = Quotas(vendors())
    quotas.put(a_quota("small", gpumem="1000", gpucores="50"))
    quotas.put(a_quota("large", gpumem="8000"))
    assert (1000, 50) == left(quotas)

    quotas.drop(a_quota("small"))
    assert (8000, None) == left(quotas)
    quotas.drop(a_quota("large"))
    assert (None, None) == left(quotas)


@pytest.mark.parametrize("case", LIMITS, ids=lambda case: case["case"])
def test_limits_are_read_as_every_service_reads_them(case: dict[str, Any]) -> None:
    """Limits the webhook reads otherwise would be kept by one of the two only."""
    quotas = Quotas(vendors(case["config"]))
    quotas.put({"metadata": {"namespace": "default", "name": "q"}, "spec": case["spec"]})

    assert case["limits"] == {use.resource: use.limit for use in quotas.uses()}


def test_fraction_is_rounded_down() -> None:
    """Half a MiB is less than any device can give, which is no reason to give all of it."""
    quotas = Quotas(vendors())
    quotas.put(a_quota(gpumem="500m"))

    assert (0, None) == left(quotas)


def test_quota_with_scopes_limits_nothing() -> None:
    """Until it has none: what only the Pods that it selects hold is not known."""
    told: list[tuple[str, str]] = []
    quotas = Quotas(vendors(), lambda name, problem: told.append((name, problem.reason)))
    quota = a_quota(gpumem="0")
    for _ in range(2):
        quotas.put({**quota, "spec": {**quota["spec"], "scopes": ["Terminating"]}})
    assert (None, None) == left(quotas)
    text = "a quota with scopes limits nothing here; nvidia.com/gpumem is not limited by it"
    quotas.replace([{**quota, "spec": {**quota["spec"], "scopes": ["Terminating"]}}])
    assert [("default/q", text)] == told
    quotas.replace([])
    quotas.put({**quota, "spec": {**quota["spec"], "scopes": ["Terminating"]}})
    assert [("default/q", text)] * 2 == told

    quotas.put(quota)
    assert (0, None) == left(quotas)


@pytest.mark.parametrize(
    ("limit", "asked", "fits"),
    [
        ("16", {"gcu-memory": "8"}, True),
        ("8", {"gcu-memory": "8192"}, True),
        ("8192", {"gcu-memory": "8"}, True),
        ("8192", {"gcu-memory": "10"}, False),
        ("8191", {"drs-gcu": "1"}, False),
        ("8192", {"drs-gcu": "2"}, False),
        ("16", {"drs-gcu": "2"}, True),
    ],
)
def test_limit_on_enflame_memory_bounds_the_profiles(limit: str, asked: dict[str, str], fits: bool) -> None:
    """A limit is in GiB or in MiB by its size, as a request is, and what counts under it is the whole profile."""
    cluster = Cluster(vendors(), lambda _kind, _name, _problem: None)
    capacity = {
        "devices": [{"index": "0", "minor": "0", "capacity": 2}],
        "profiles": {"1g.8gb": "0", "2g.16gb": "1"},
    }
    annotations = {"enflame.com/gcu-drs-capacity": json.dumps(capacity)}
    node = {
        "metadata": {"name": "n1", "annotations": annotations},
        "status": {"allocatable": {"enflame.com/drs-gcu": "2"}},
    }
    cluster.put_node(node)
    hard = {"limits.enflame.com/gcu-memory": limit}
    cluster.quotas.put({"metadata": {"name": "q", "namespace": "default"}, "spec": {"hard": hard}})
    limits = {f"enflame.com/{name}": amount for name, amount in asked.items()}
    pod = {
        "metadata": {"name": "p", "namespace": "default", "uid": "u"},
        "spec": {"containers": [{"name": "c", "resources": {"limits": limits}}]},
    }
    request = read_request(pod, cluster.vendors, Policies())
    found = try_node(request, "n1", cluster.ledger, cluster.view.allowances(request))

    assert fits == isinstance(found, Placement)
    assert fits or (isinstance(found, Misfit) and [Reason.QUOTA] == list(found.reasons))


def test_limit_is_in_the_units_of_the_resource() -> None:
    """With a memory factor of 1024 a limit of 2 is 2 GiB."""
    quotas = Quotas(vendors("tuned"))
    quotas.put(a_quota(gpumem="2"))

    assert (2048, None) == left(quotas)


def test_what_is_held_is_taken_off_and_given_back() -> None:
    """Per namespace, for every Pod."""
    quotas = Quotas(vendors())
    quotas.put(a_quota(gpumem="5000", gpucores="100"))
    grant = a_grant("u1", "n1", a_share(memory_mib=2000, core_percent=30))

    quotas.count(grant, 1)
    assert (3000, 70) == left(quotas)
    quotas.count(grant, -1)
    assert (5000, 100) == left(quotas)


def test_new_list_of_quotas_is_all_there_are() -> None:
    """A quota missing from it limits nothing any more."""
    quotas = Quotas(vendors())
    quotas.put(a_quota("old", "a", gpumem="1"))

    quotas.replace([a_quota("new", "b", gpumem="2")])

    assert ((None, None), (2, None)) == (left(quotas, "a"), left(quotas, "b"))


def test_uses_are_told_with_and_without_limit() -> None:
    """A namespace that holds something is told even where nothing limits it."""
    quotas = Quotas(vendors())
    quotas.put(a_quota(namespace="a", gpumem="5"))
    quotas.count(a_grant("u", "n", a_share(memory_mib=3), namespace="b"), 1)

    found = [(use.namespace, use.resource, use.used, use.limit) for use in quotas.uses()]
    assert [("a", "nvidia.com/gpumem", 0, 5), ("b", "nvidia.com/gpumem", 3, None)] == found


def test_recount_finds_what_was_not_given_back() -> None:
    """Sums without a Pod behind them are put right."""
    quotas = Quotas(vendors())
    quotas.count(a_grant("u", "n", a_share(memory_mib=3, core_percent=1)), 1)

    assert 2 == quotas.recount([])
    assert 0 == quotas.recount([])
