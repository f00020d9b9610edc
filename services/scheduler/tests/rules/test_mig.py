"""Where MIG instances go, and when a device is closed to them."""

from hami_scheduler.rules.mig import free_instances, mig_state
from hami_scheduler.state.ledger import Ledger, shortfall
from hamicommon.model import MigAllocation, MigPlacement

from ..support.builders import a_device, a_grant, a_mig_device, a_share, an_inventory


def choices(memory_mib: int, *occupied: tuple[int, int], preference: tuple[str, ...] = ()) -> list[tuple[str, int]]:
    """Return profile and start of the instances to try on an A100, in order."""
    found = free_instances(a_mig_device(), memory_mib, [MigPlacement(*place) for place in occupied], preference)
    return [(each.profile.name, each.placement.start) for each in found]


def chosen(memory_mib: int, *occupied: tuple[int, int]) -> tuple[str, int] | None:
    """Return the first of them."""
    return next(iter(choices(memory_mib, *occupied)), None)


def test_smallest_profile_with_enough_memory_is_taken() -> None:
    """Exactly enough is enough; one MiB more takes the next."""
    assert ("1g.5gb", 6) == chosen(4864)
    assert ("2g.10gb", 0) == chosen(4865)
    assert ("7g.40gb", 0) == chosen(40192)
    assert None is chosen(40193)


def test_larger_profile_is_taken_when_the_smallest_has_no_place() -> None:
    """More than asked is better than nothing."""
    places = [(start, 1) for start in range(4, 7)]

    assert ("1g.5gb", 3) == chosen(4864, *places)
    assert None is chosen(4864, (0, 8))
    assert ("2g.10gb", 2) == chosen(9000, (0, 1))


def test_preferred_profiles_are_tried_first() -> None:
    """By name or by slices, in the Pod's order; then the others, the smallest first."""
    names = [name for name, _ in choices(4864)]

    assert ["3g.20gb", "2g.10gb"] == [name for name, _ in choices(4864, preference=("3g", "2g.10gb"))][:2]
    assert sorted(names) == sorted(name for name, _ in choices(4864, preference=("3g", "2g.10gb")))
    assert names == [name for name, _ in choices(4864, preference=("3", "g", "3g.40gb"))]


def test_preferred_profile_without_room_or_memory_is_passed_over() -> None:
    """A preference is no requirement."""
    assert "3g.20gb" == choices(10000, preference=("2g", "1g.5gb"))[0][0]
    assert "1g.5gb" == choices(4864, (0, 4), preference=("7g",))[0][0]


def allocation(uuid: str, start: int = 6) -> MigAllocation:
    """Return one instance on *uuid*."""
    return MigAllocation(0, 0, uuid, "1g.5gb", MigPlacement(start, 1))


def test_known_instances_occupy_their_place() -> None:
    """A share with its instance leaves the device open."""
    state = mig_state([a_mig_device()], [a_grant("u", "n", a_share("GPU-m"), mig=(allocation("GPU-m"),))])

    assert {"GPU-m": [MigPlacement(6, 1)]} == state.occupied
    assert set() == state.incomplete


def test_instance_is_refused_where_another_has_taken_its_place() -> None:
    """The device has memory and instances left for both, but not where this one was to be."""
    ledger = Ledger()
    ledger.put_node(an_inventory("n", a_mig_device()))
    ours = a_grant("ours", "n", a_share("GPU-m", 4864), mig=(allocation("GPU-m"),))
    ledger.put(ours)
    ledger.put(a_grant("beside", "n", a_share("GPU-m", 4864), mig=(allocation("GPU-m", start=5),)))
    assert {} == shortfall(ledger, ours)

    for theirs in ((allocation("GPU-m"),), ()):
        ledger.put(a_grant("theirs", "n", a_share("GPU-m", 4864), mig=theirs))
        assert {"GPU-m": "has no free place for the chosen MIG instance"} == shortfall(ledger, ours)


def test_share_without_instance_closes_its_device() -> None:
    """Nobody knows which part is in use, and a slot of an old version says it in a way nobody reads any more."""
    assert {"GPU-m"} == mig_state([a_mig_device()], [a_grant("u", "n", a_share("GPU-m"))]).incomplete
    assert {"GPU-m"} == mig_state([a_mig_device()], [a_grant("u", "n", a_share("GPU-m[1-0]"))]).incomplete


def test_instance_on_a_device_that_is_not_cut_closes_it() -> None:
    """The device was switched back while the Pod ran."""
    state = mig_state([a_device("GPU-a")], [a_grant("u", "n", a_share("GPU-a"), mig=(allocation("GPU-a"),))])

    assert {"GPU-a"} == state.incomplete


def test_instance_left_over_still_takes_its_place() -> None:
    """Better a place unused than one used twice."""
    state = mig_state([a_mig_device()], [a_grant("u", "n", a_share("GPU-x"), mig=(allocation("GPU-m"),))])

    assert {"GPU-m": [MigPlacement(6, 1)]} == state.occupied
