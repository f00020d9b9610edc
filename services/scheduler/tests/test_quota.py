"""What namespaces may hold."""

from typing import Any

from hami_scheduler.quota import UNLIMITED, Quotas

from .builders import a_grant, a_share, vendors


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
    assert UNLIMITED.allows(10**9, 10**9)


def test_explicit_zero_allows_nothing() -> None:
    """Zero is a limit, not the absence of one."""
    quotas = Quotas(vendors())
    quotas.put(a_quota(gpumem="0"))

    assert (0, None) == left(quotas)
    assert not quotas.allowance("default", vendors()[0]).allows(1, 0)


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


def test_unreadable_limit_is_no_limit() -> None:
    """A fraction is not an amount of MiB; kube-apiserver lets it through."""
    quotas = Quotas(vendors())
    quotas.put(a_quota(gpumem="0.5"))

    assert (None, None) == left(quotas)


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

    quotas.hold(grant, 1)
    assert (3000, 70) == left(quotas)
    quotas.hold(grant, -1)
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
    quotas.hold(a_grant("u", "n", a_share(memory_mib=3), namespace="b"), 1)

    found = [(use.namespace, use.resource, use.used, use.limit) for use in quotas.uses()]
    assert [("a", "nvidia.com/gpumem", 0, 5), ("b", "nvidia.com/gpumem", 3, None)] == found


def test_recount_finds_what_was_not_given_back() -> None:
    """Sums without a Pod behind them are put right."""
    quotas = Quotas(vendors())
    quotas.hold(a_grant("u", "n", a_share(memory_mib=3, core_percent=1)), 1)

    assert 2 == quotas.recount([])
    assert 0 == quotas.recount([])
