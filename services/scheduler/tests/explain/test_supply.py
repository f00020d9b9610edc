"""What the cluster offers of a vendor, and what of it is free."""

from typing import Any

import pytest

from hami_scheduler.explain.report import Supply, supplies
from hami_scheduler.values.policies import Policies
from hami_scheduler.values.request import read_request

from ..support.builders import a_cluster, a_container, a_device, a_grant, a_node, a_pod, a_share, vendors


def supply(*nodes: dict[str, Any], held_mib: int = 0) -> Supply:
    """Return the supply of NVIDIA devices on *nodes*, of which a Pod holds a share of GPU-a."""
    cluster = a_cluster(*nodes)
    if held_mib:
        cluster.ledger.put(a_grant("u", "n1", a_share("GPU-a", held_mib)))
    request = read_request(a_pod("p", a_container(gpu=1, gpumem=1000)), vendors(), Policies())
    [found] = supplies(request, cluster.ledger)
    return found


def test_offered_is_the_largest_device_and_free_what_is_left_of_one() -> None:
    """Devices are counted, and amounts are those of one device."""
    found = supply(a_node("n1", a_device("GPU-a", memory_mib=40000)), a_node("n2", a_device("GPU-b")), held_mib=30000)

    assert (2, 40000) == (found.devices, found.memory_mib)
    assert (2, 16384) == (found.free_devices, found.free_memory_mib), "GPU-a has 10000 MiB left"


@pytest.mark.parametrize(
    "fields", [{"healthy": False}, {"count": 0}, {"id": "GPU-cordoned"}], ids=("failed", "full", "cordoned")
)
def test_device_that_takes_no_share_is_offered_and_not_free(fields: dict[str, Any]) -> None:
    """It is there, and nobody gets it."""
    node = a_node("n1", a_device(**{"uuid": fields.pop("id", "GPU-a"), **fields}))
    node["metadata"]["annotations"]["hami.io/device-cordon"] = "GPU-cordoned"

    found = supply(node)

    assert (1, 0, 0, 0) == (found.devices, found.free_devices, found.free_memory_mib, found.free_core_percent)


def test_vendor_that_offers_nothing_has_a_row_of_zeros() -> None:
    """The reader sees at once that there is no such device."""
    assert Supply("NVIDIA") == supply(a_node("n1"))
