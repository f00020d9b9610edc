"""The arrays: who is where, and what stays when Nodes come and go."""

from hami_scheduler.state.ledger import Excess, Ledger, above_capacity, shortfall

from ..support.builders import (
    a_cluster,
    a_device,
    a_grant,
    a_mig_device,
    a_node,
    a_pod,
    a_share,
    an_inventory,
    promise_of,
)


def test_node_without_devices_is_not_there() -> None:
    """Offering nothing is the same as not existing."""
    ledger = Ledger()
    ledger.put_node(an_inventory("n1"))
    ledger.put_node(an_inventory("n1", a_device()).__class__("n1"))

    assert None is ledger.node("n1")
    assert [] == list(ledger.nodes())


def test_rows_of_nodes_that_left_are_used_again() -> None:
    """Nodes that come and go for years do not grow the arrays."""
    ledger = Ledger()
    for number in range(500):
        ledger.put_node(an_inventory("stays", a_device("GPU-s")))
        ledger.put_node(an_inventory(f"n{number}", *(a_device(f"GPU-{number}-{i}") for i in range(4))))
        ledger.put(a_grant(f"u{number}", f"n{number}", a_share(f"GPU-{number}-1")))
        if number >= 5:
            ledger.drop_node(f"n{number - 5}")
            ledger.drop(f"u{number - 5}")

    assert len(ledger.capacity) <= 256
    assert ledger.node_count <= 8
    assert 0 == ledger.recount()
    assert 1000 == promise_of(ledger, "n499", "GPU-499-1").memory_mib
    entry = ledger.node("n499")
    assert entry is not None
    assert {entry.start + 1} == ledger.rows_of_uuid("GPU-499-1")
    assert 16384 == ledger.capacity[entry.start + 1, 1]
    assert frozenset() == ledger.rows_of_uuid("GPU-0-1")


def test_growing_keeps_what_is_promised() -> None:
    """More Nodes than the first arrays hold."""
    ledger = Ledger()
    for number in range(200):
        ledger.put_node(an_inventory(f"n{number}", a_device(f"GPU-{number}")))
        ledger.put(a_grant(f"u{number}", f"n{number}", a_share(f"GPU-{number}")))

    assert 0 == ledger.recount()
    assert 200 == sum(promise_of(ledger, f"n{n}", f"GPU-{n}").replicas for n in range(200))


def test_same_uuid_on_two_nodes_is_two_devices() -> None:
    """A cloned machine must not let one Node's Pods fill the other."""
    ledger = Ledger()
    ledger.put_node(an_inventory("n1"))
    ledger.put_node(an_inventory("n2"))
    ledger.put(a_grant("u1", "n1"))

    assert (1, 0) == (promise_of(ledger, "n1", "GPU-a").replicas, promise_of(ledger, "n2", "GPU-a").replicas)
    assert 2 == len(ledger.rows_of_uuid("GPU-a"))
    ledger.drop_node("n1")
    assert 1 == len(ledger.rows_of_uuid("GPU-a"))


def test_shortfall_is_empty_while_promises_can_be_kept() -> None:
    """A device that is full to the last MiB is not short."""
    ledger = Ledger()
    ledger.put_node(an_inventory("n1"))
    grant = a_grant("u1", "n1", a_share(memory_mib=16384, core_percent=100))
    ledger.put(grant)

    assert {} == shortfall(ledger, grant)


def test_shortfall_tells_what_became_of_a_device() -> None:
    """Gone, cordoned, taken by others, or in use by others although the Pod, or one of them, needs it alone."""
    ledger = Ledger()
    whole = a_grant("u1", "n1", a_share(core_percent=100))
    ledger.put(whole)
    assert {"GPU-a": "is no longer offered"} == shortfall(ledger, whole)

    ledger.put_node(an_inventory("n1", a_device(), cordoned=frozenset({"GPU-a"})))
    assert {"GPU-a": "is unhealthy or cordoned"} == shortfall(ledger, whole)

    ledger.put_node(an_inventory("n1"))
    ledger.put(a_grant("u2", "n1"))
    assert {"GPU-a": "is in use by others, and the Pod needs it alone"} == shortfall(ledger, whole)
    assert {"GPU-a": "is in use by a Pod that needs it alone"} == shortfall(ledger, a_grant("u2", "n1"))

    ledger.put(a_grant("u3", "n1", a_share(memory_mib=16000, core_percent=1)))
    assert {"GPU-a": "is short of 0 replicas, 1616 MiB and 1 % compute"} == shortfall(ledger, whole)


def test_mig_instances_of_pods_take_their_place() -> None:
    """What a Pod holds of a device in MIG mode is known, or the device is closed."""
    ledger = Ledger()
    ledger.put_node(an_inventory("n1", a_mig_device("GPU-m"), a_mig_device("GPU-u")))
    ledger.put(a_grant("u1", "n1", a_share("GPU-u")))

    uses = {use.device.id: use for use in ledger.device_uses("n1")}
    assert (True, False) == (uses["GPU-m"].instances_known, uses["GPU-u"].instances_known)


def test_same_grant_again_changes_nothing() -> None:
    """A repeated event is no event; what was refused stays refused without a look."""
    ledger = Ledger()
    ledger.put_node(an_inventory())
    ledger.put(a_grant())
    version = ledger.version

    ledger.put(a_grant())

    assert version == ledger.version


def test_device_of_which_more_is_granted_than_it_offers_is_named_with_its_pods() -> None:
    """A capacity that was lowered, a forged grant or another scheduler can cause it. Exactly full is not above."""
    cluster = a_cluster(a_node("n1", a_device("GPU-a", memory_mib=10000), a_device("GPU-b", memory_mib=10000)))
    for name, uuid, memory_mib in (("p", "GPU-a", 10000), ("q", "GPU-b", 9000), ("r", "GPU-b", 2000)):
        cluster.put_pod(a_pod(name, node="n1", allocated=f"{uuid},NVIDIA,{memory_mib},0:;"))

    assert [Excess("n1", "GPU-b", 0, 1000, 0, ("default/q", "default/r"))] == above_capacity(
        cluster.ledger, cluster.vendors
    )
    cluster.drop_pod(a_pod("r"))
    assert [] == above_capacity(cluster.ledger, cluster.vendors)
