"""What arrays rule out, and what they must leave to the exact walk."""

import pytest

from hami_scheduler.search.prefilter import acceptable_devices, belonging_devices
from hami_scheduler.state.ledger import Ledger
from hami_scheduler.values.constraints import Constraints

from ..support.builders import a_device, an_inventory, asks


@pytest.fixture
def ledger() -> Ledger:
    """One Node with two devices."""
    ledger = Ledger()
    ledger.put_node(an_inventory("n1", a_device("GPU-a"), a_device("GPU-b")))
    return ledger


def test_devices_of_another_vendor_are_out_of_the_question(ledger: Ledger) -> None:
    """Whatever their model."""
    assert not belonging_devices(ledger, "Other", Constraints()).any()


@pytest.mark.parametrize(("use_uuids", "count"), [("GPU-a", 1), ("GPU-a, GPU-b", 2), ("GPU-x", 0), (",", 0), (" ", 2)])
def test_list_of_devices_rules_out_as_the_exact_walk_does(ledger: Ledger, use_uuids: str, count: int) -> None:
    """An empty list is none; one of separators names no device."""
    constraints = Constraints(use_uuids=use_uuids)

    assert [count] == acceptable_devices(ledger, asks(), constraints).tolist()
    assert count == sum(constraints.accepts_uuid(uuid) for uuid in ("GPU-a", "GPU-b"))
