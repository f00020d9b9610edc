"""One device against one share: the boundaries, and the order of the reasons."""

from typing import Any

import pytest

from hami_scheduler.rules.fit import memory_asked, refusal_of_kind, refusal_of_share
from hami_scheduler.values.constraints import Constraints
from hami_scheduler.values.reasons import Reason

from ..support.builders import a_use, asks

ANYTHING = Constraints()


def refusal(
    use: object, memory_mib: int = 1000, core_percent: int = 0, constraints: Constraints = ANYTHING
) -> Reason | None:
    """Return why *use* cannot take a share that no quota limits."""
    return refusal_of_share(use, memory_mib, core_percent, constraints, lambda _uuid, _memory, _cores: True)  # type: ignore[arg-type]


def test_share_one_mib_too_large_is_a_memory_misfit() -> None:
    """The boundary belongs to the device: exactly full fits, one MiB more does not."""
    use = a_use(memory_mib=16384, promised=(1, 12000, 0))

    assert None is refusal(use, 4384)
    assert Reason.MEMORY is refusal(use, 4385)


def test_device_without_memory_takes_nothing() -> None:
    """A device that registered 0 MiB is not granted, not even 0 % of it."""
    assert Reason.MEMORY is refusal(a_use(memory_mib=0), 0)


def test_share_one_percent_too_large_is_a_core_misfit() -> None:
    """Compute is counted like memory."""
    use = a_use(promised=(1, 0, 70))

    assert None is refusal(use, core_percent=30)
    assert Reason.CORE is refusal(use, core_percent=31)


def test_whole_device_is_given_only_while_nobody_uses_it() -> None:
    """100 % means alone, also where the others were promised no compute."""
    assert None is refusal(a_use(), core_percent=100)
    assert Reason.EXCLUSIVE is refusal(a_use(promised=(1, 0, 0)), core_percent=100)


def test_whole_device_of_a_scaled_card_is_an_amount() -> None:
    """Where the plugin offers 200 %, a share of 100 % is half of it and needs no solitude."""
    assert None is refusal(a_use(core_percent=200, promised=(1, 0, 0)), core_percent=100)


def test_share_without_compute_needs_compute_left() -> None:
    """A share of 0 % runs in what is left over, so there must be something."""
    assert Reason.ZERO_CORE is refusal(a_use(promised=(1, 0, 100)), core_percent=0)
    assert None is refusal(a_use(promised=(1, 0, 99)), core_percent=0)
    assert None is refusal(a_use(core_percent=0), core_percent=0)


def test_last_replica_is_given_and_no_more() -> None:
    """The number of containers on a device is limited by its replicas."""
    assert None is refusal(a_use(count=2, promised=(1, 0, 0)))
    assert Reason.REPLICAS is refusal(a_use(count=2, promised=(2, 0, 0)))


def test_mutex_wants_an_unused_device() -> None:
    """Under the mutex policy a used device is a conflict, whatever room it has."""
    assert Reason.EXCLUSIVE is refusal(a_use(promised=(1, 0, 0)), constraints=Constraints(is_mutex=True))
    assert None is refusal(a_use(), constraints=Constraints(is_mutex=True))


def test_uuid_lists_are_asked_before_anything_that_changes() -> None:
    """A device that is not listed is told so even when it is full."""
    assert Reason.UUID is refusal(a_use(promised=(10, 16384, 100)), constraints=Constraints(use_uuids="GPU-b"))
    assert Reason.UUID is refusal(a_use(), constraints=Constraints(nouse_uuids="GPU-a"))


def test_quota_is_asked_before_memory() -> None:
    """HAMi tells the quota first, so that a Pod above its quota is not sent looking for larger devices."""
    reason = refusal_of_share(
        a_use(), 99999, 0, ANYTHING, lambda uuid, memory, cores: (uuid, memory, cores) == ("", 0, 0)
    )

    assert Reason.QUOTA is reason


@pytest.mark.parametrize(
    ("fields", "is_cordoned", "instances_known", "constraints", "expected"),
    [
        pytest.param({}, False, True, ANYTHING, None, id="nothing against it"),
        pytest.param({"healthy": False}, True, True, ANYTHING, Reason.UNHEALTHY, id="unhealthy before cordoned"),
        pytest.param({}, False, False, ANYTHING, Reason.UNHEALTHY, id="instances not all known"),
        pytest.param({}, True, True, Constraints(use_types="H100"), Reason.CORDONED, id="cordoned before type"),
        pytest.param({}, False, True, Constraints(use_types="H100"), Reason.TYPE, id="other model"),
        pytest.param({}, False, True, Constraints(nouse_types="a10"), Reason.TYPE, id="model refused, any case"),
        pytest.param({"mode": "mig"}, False, True, Constraints(modes="hami-core"), Reason.TYPE, id="other mode"),
        pytest.param({"mode": ""}, False, True, Constraints(modes="hami-core"), None, id="no mode registered"),
    ],
)
def test_kind_of_device_is_judged_before_its_room(
    fields: dict[str, Any], is_cordoned: bool, instances_known: bool, constraints: Constraints, expected: Reason | None
) -> None:
    """Health, cordon, model and mode, in this order."""
    use = a_use(**fields)
    use.is_cordoned, use.instances_known = is_cordoned, instances_known

    assert expected is refusal_of_kind(use, constraints)


@pytest.mark.parametrize(
    ("request_fields", "total", "expected"),
    [
        pytest.param({"memory_mib": 3000}, 24576, 3000, id="amount"),
        pytest.param({"memory_mib": 0, "memory_percent": 50}, 24576, 12288, id="half"),
        pytest.param({"memory_mib": 0, "memory_percent": 33}, 24576, 8110, id="cut to whole MiB"),
        pytest.param({"memory_mib": 0, "memory_percent": 100}, 40_000_000, 40_000_000, id="beyond 32 bits of percent"),
        pytest.param({"memory_mib": 2000, "memory_percent": 50}, 24576, 2000, id="amount wins"),
    ],
)
def test_memory_is_resolved_per_device(request_fields: dict[str, int], total: int, expected: int) -> None:
    """A percentage is of the device at hand, an amount of none."""
    assert expected == memory_asked(asks(**request_fields), total)


def test_more_than_one_device_of_compute_is_one_device() -> None:
    """HAMi's webhook lets 150 % through; it means all."""
    assert 100 == asks(core_percent=150).held_core_percent
