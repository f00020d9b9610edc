"""What the cluster's events make of the ledger."""

from typing import Any

import pytest

from hami_scheduler.search.filter import filter_nodes
from hami_scheduler.state import cluster as cluster_module
from hami_scheduler.state.cluster import DELETED_PODS_REMEMBERED, Cluster
from hami_scheduler.state.reservation import RESERVATION_SECONDS
from hami_scheduler.values.inventory import Problem

from ..support.builders import (
    a_cluster,
    a_container,
    a_device,
    a_grant,
    a_node,
    a_pod,
    a_register,
    a_request,
    a_share,
    promises,
    vendors,
)

ALLOCATED_KEY = "hami.io/vgpu-devices-allocated"
SHARE = "GPU-a,NVIDIA,1000,10:;"
HELD = {"GPU-a": [1, 1000, 10]}


def test_pod_counts_from_its_bind_to_its_end() -> None:
    """Annotations alone promise nothing; an ended Pod holds nothing; a deleted one is forgotten."""
    cluster = a_cluster(a_node("n1", a_device()))

    cluster.put_pod(a_pod(allocated=SHARE))
    assert {} == promises(cluster, "n1")
    cluster.put_pod(a_pod(node="n1", allocated=SHARE))
    assert HELD == promises(cluster, "n1")
    cluster.put_pod(a_pod(node="n1", allocated=SHARE, phase="Succeeded"))
    assert {} == promises(cluster, "n1")


def test_only_the_pods_deleted_last_are_remembered() -> None:
    """A cluster deletes any number of Pods."""
    cluster = a_cluster(a_node("n1", a_device()))

    for number in range(DELETED_PODS_REMEMBERED + 1):
        cluster.drop_pod({"metadata": {"uid": f"uid-{number}"}})

    assert (False, True) == (cluster.is_deleted("uid-0"), cluster.is_deleted("uid-1"))


def test_terminating_pod_counts_until_it_is_gone() -> None:
    """Its containers may still run; HAMi forgets such Pods when it restarts, we do not."""
    cluster = a_cluster(a_node("n1", a_device()))
    pod = a_pod(node="n1", allocated=SHARE, phase="Running")
    pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"

    cluster.put_pod(pod)
    assert HELD == promises(cluster, "n1")
    cluster.drop_pod(pod)
    assert {} == promises(cluster, "n1")


def test_finished_init_containers_count_from_what_the_pod_says_now() -> None:
    """HAMi counts them at their peak until the next event after its start; the Pod already says they are done."""
    cluster = a_cluster(a_node("n1", a_device()))
    inits = [a_container("i", gpu=1)]
    pod = a_pod(node="n1", inits=inits, allocated="GPU-a,NVIDIA,9000,0:;GPU-a,NVIDIA,1000,10:;")
    pod["status"]["initContainerStatuses"] = [{"name": "i", "state": {"terminated": {"exitCode": 0}}}]

    cluster.replace_pods([pod], 0.0)

    assert HELD == promises(cluster, "n1")


def test_share_of_an_unknown_device_counts_once_the_device_is_known() -> None:
    """A Node that lost its annotation comes back with its Pods counted."""
    cluster = a_cluster()
    cluster.put_pod(a_pod(node="n1", allocated=SHARE))

    cluster.put_node(a_node("n1", a_device()))
    assert HELD == promises(cluster, "n1")
    cluster.put_node(a_node("n1", a_device("GPU-b")))
    assert {} == promises(cluster, "n1")


def test_edited_allocation_of_a_bound_pod_is_reported_and_not_believed() -> None:
    """A tenant who lowers the annotation of a running Pod gains no room."""
    reported: list[tuple[str, str, Problem]] = []
    cluster = Cluster(vendors(), lambda kind, name, problem: reported.append((kind, name, problem)))
    cluster.put_node(a_node("n1", a_device()))
    cluster.put_pod(a_pod(node="n1", allocated=SHARE))

    for _ in range(2):
        cluster.put_pod(a_pod(node="n1", allocated="GPU-a,NVIDIA,1,0:;"))
    cluster.put_pod(a_pod(node="n1"))

    assert HELD == promises(cluster, "n1")
    assert 1 == cluster.edited_pods
    assert [("Pod", "default/p")] == [(kind, name) for kind, name, _ in reported]


def test_unreadable_allocation_is_reported_once_and_costs_nothing_known() -> None:
    """What was read before stays; what never was cannot be counted."""
    reported: list[tuple[str, Problem]] = []
    cluster = Cluster(vendors(), lambda _kind, name, problem: reported.append((name, problem)))
    cluster.put_node(a_node("n1", a_device()))
    cluster.put_pod(a_pod("known", node="n1", allocated=SHARE))

    for _ in range(2):
        cluster.put_pod(a_pod("known", node="n1", allocated="GPU-a,NVIDIA"))
        cluster.put_pod(a_pod("new", node="n1", allocated="GPU-a,NVIDIA"))

    assert HELD == promises(cluster, "n1")
    assert ["default/known", "default/new"] == [name for name, _ in reported]
    assert "hami.io/vgpu-devices-allocated" == reported[0][1].key, "a label of a metric: the annotation and no more"
    assert "container 0, device 0: 'GPU-a,NVIDIA' has 2 fields" in reported[0][1].reason


def test_broken_register_annotation_keeps_what_the_node_offered() -> None:
    """A writer's slip does not end what runs there; the problem is told once."""
    reported: list[str] = []
    cluster = Cluster(vendors(), lambda _kind, name, _problem: reported.append(name))
    cluster.put_node(a_node("n1", a_device()))
    broken: dict[str, Any] = {"hami_io__node_nvidia_register": "{"}

    for _ in range(2):
        cluster.put_node(a_node("n1", **broken))

    assert cluster.ledger.node("n1") is not None
    assert ["n1"] == reported


def test_devices_are_hidden_while_the_kubelet_offers_none_of_them() -> None:
    """Allocatable 0 after more than 0 means the device plugin died; its inventory is believed again with its return."""
    cluster = a_cluster(a_node("n1", a_device(), replicas=10))

    cluster.put_node(a_node("n1", a_device(), replicas=0))
    assert None is cluster.ledger.node("n1")
    cluster.put_node(a_node("n1", a_device(), replicas=10))
    assert None is not cluster.ledger.node("n1")


@pytest.mark.parametrize("allocatable", [{"nvidia.com/gpu": "0"}, {}])
@pytest.mark.parametrize("handshake", ["Requesting_2099-01-01 00:00:00", "Reported 2026-01-01 00:00:00", ""])
def test_devices_that_no_kubelet_offers_are_not_offered(handshake: str, allocatable: dict[str, str]) -> None:
    """Also by a scheduler that has just started: what a plugin was before is written nowhere, and no sign of life."""
    node = a_node("n1", a_device(), hami_io__node_handshake=handshake)
    node["status"]["allocatable"] = allocatable
    cluster = a_cluster(node)

    assert None is cluster.ledger.node("n1")
    assert ["n1"] == list(cluster.ledger.silent)
    assert {"n1": "node unregistered"} == filter_nodes(a_request(), ["n1"], cluster.view).refusal.failed_nodes


@pytest.mark.parametrize("replicas", [0, 10])
def test_node_that_gives_claims_is_rejected_with_a_reason_of_its_own(replicas: int) -> None:
    """Whatever its annotation lists, and whatever its kubelet still counts."""
    node = a_node("n1", a_device(), replicas=replicas, hami_io__node_kind="dra")
    cluster = a_cluster(node, a_node("n2", a_device("GPU-b")))

    found = filter_nodes(a_request(), ["n1", "n2"], cluster.view, explain_all=True)

    assert ("n2", {"n1": "node gives devices by ResourceClaims"}) == (found.node, found.refusal.failed_nodes)


def test_node_offers_its_devices_again_once_it_gives_no_claims() -> None:
    """Its device plugin removes the kind when it stops."""
    cluster = a_cluster(a_node("n1", a_device(), hami_io__node_kind="dra"))

    cluster.put_node(a_node("n1", a_device()))

    assert "n1" == filter_nodes(a_request(), ["n1"], cluster.view).node


def test_node_that_gives_claims_offers_the_devices_of_other_vendors() -> None:
    """Only NVIDIA devices are given by claims."""
    dcu = a_device("DCU-a", type="DCU")
    node = a_node("n1", a_device(), hami_io__node_kind="dra", hami_io__node_dcu_register=a_register(dcu))
    node["status"]["allocatable"]["hygon.com/dcunum"] = "10"
    cluster = a_cluster(node)
    entry = cluster.ledger.node("n1")

    assert entry is not None
    assert ["DCU-a"] == [device.id for device in entry.inventory.devices]
    refusal = filter_nodes(a_request(), ["n1"], cluster.view).refusal
    assert {"n1": "node gives devices by ResourceClaims"} == refusal.failed_nodes


def test_one_dead_plugin_hides_its_own_devices_only() -> None:
    """A Node with devices of two vendors goes on with the other."""
    node = a_node("n1", a_device(), hami_io__node_dcu_register=a_register(a_device("DCU-a", type="DCU")))
    node["status"]["allocatable"]["hygon.com/dcunum"] = "0"
    entry = a_cluster(node).ledger.node("n1")

    assert entry is not None
    assert ["GPU-a"] == [device.id for device in entry.inventory.devices]
    assert ("hygon.com/dcunum",) == entry.inventory.silent


def test_request_of_another_scheduler_hides_nothing_while_the_kubelet_offers_devices() -> None:
    """Plugins since HAMi 2.8 answer no request."""
    node = a_node("n1", a_device(), replicas=1, hami_io__node_handshake="Requesting_2020-01-01 00:00:00")

    assert None is not a_cluster(node).ledger.node("n1")


def test_new_list_of_nodes_is_all_there_are() -> None:
    """A Node missing from it is forgotten."""
    cluster = a_cluster(a_node("n1", a_device()), a_node("n2", a_device("GPU-b")))

    cluster.replace_nodes([a_node("n2", a_device("GPU-b"))])

    assert (None, "n2") == (cluster.ledger.node("n1"), cluster.ledger.node_name(cluster.ledger.node("n2").index))  # type: ignore[union-attr]


def test_new_list_of_pods_is_all_that_are_bound() -> None:
    """A bound Pod missing from it has gone while we did not look."""
    cluster = a_cluster(a_node("n1", a_device()))
    cluster.put_pod(a_pod("gone", node="n1", allocated=SHARE))

    cluster.replace_pods([a_pod("here", node="n1", allocated=SHARE)], 0.0)

    assert HELD == promises(cluster, "n1")


def test_reservation_survives_a_list_that_is_older_than_it() -> None:
    """A list that was on its way when the Pod was decided cannot know it."""
    cluster = a_cluster(a_node("n1", a_device()))
    cluster.reserve(a_grant("u1", "n1", a_share(core_percent=10)), 0.0)

    cluster.replace_pods([], 1.0)

    assert HELD == promises(cluster, "n1")


def test_written_reservation_of_a_vanished_pod_expires() -> None:
    """A list without the Pod starts the clock; the Pod's own events would have stopped it."""
    cluster = a_cluster(a_node("n1", a_device()))
    cluster.reserve(a_grant("u1", "n1", a_share(core_percent=10)), 0.0)
    cluster.reservations.begin_bind("u1")
    cluster.reservations.written("u1")

    assert [] == cluster.expire(1e9), "a written Binding never expires by itself"
    cluster.replace_pods([], 100.0)
    assert [] == cluster.expire(159.9)
    assert ["u1"] == cluster.expire(160.0)
    assert {} == promises(cluster, "n1")


def test_pod_that_only_the_view_before_has_seen_bound_is_held_for_until_its_own_watch_tells() -> None:
    """What a view with a new device config lists may be older than what the old one's watch has brought."""
    old, fresh = (a_cluster(a_node("n1", a_device(count=1))) for _ in range(2))
    pod = a_pod(node="n1", allocated=SHARE)
    old.put_pod(pod)

    fresh.take_over(old, 100.0)
    assert HELD == promises(fresh, "n1")
    fresh.put_pod(pod)
    assert (HELD, 0) == (promises(fresh, "n1"), len(fresh.reservations))
    assert [] == fresh.expire(1e6)


def test_pod_that_the_view_before_does_not_know_to_be_gone_is_held_for_a_while_only() -> None:
    """Otherwise its devices would be blocked for good."""
    old, fresh = (a_cluster(a_node("n1", a_device(count=1))) for _ in range(2))
    old.put_pod(a_pod(node="n1", allocated=SHARE))

    fresh.take_over(old, 100.0)
    assert [] == fresh.expire(100.0 + RESERVATION_SECONDS - 1)
    assert ["uid-p"] == fresh.expire(100.0 + RESERVATION_SECONDS)
    assert {} == promises(fresh, "n1")


def test_reservation_that_is_not_bound_in_time_is_given_back() -> None:
    """Sixty seconds, and the room is free again."""
    cluster = a_cluster(a_node("n1", a_device()))
    cluster.reserve(a_grant("u1", "n1"), 0.0)

    assert [] == cluster.expire(59.9)
    assert ["u1"] == cluster.expire(60.0)
    assert {} == promises(cluster, "n1")


def test_bound_pod_takes_the_place_of_its_reservation() -> None:
    """It is counted once, by what its annotations say."""
    cluster = a_cluster(a_node("n1", a_device()))
    cluster.reserve(a_grant("uid-p", "n1", a_share(memory_mib=9000)), 0.0)

    cluster.put_pod(a_pod(node="n1", allocated=SHARE))

    assert HELD == promises(cluster, "n1")
    assert 0 == len(cluster.reservations)


@pytest.mark.parametrize("said", [SHARE, "GPU-a,NVIDIA,9000,10:;"])
def test_pod_whose_binding_we_write_counts_by_what_it_says_once_it_is_bound(said: str) -> None:
    """That what we wrote need not be read makes no difference, also where somebody else wrote something else."""
    node = a_node("n1", a_device())
    cluster, reader = a_cluster(node), a_cluster(node)
    cluster.reserve(a_grant("uid-p", "n1", a_share(core_percent=10)), 0.0)
    cluster.begin_bind("uid-p", {ALLOCATED_KEY: SHARE, "hami.io/bind-time": "1"})
    pod = a_pod(node="n1", allocated=said)

    for each in (cluster, reader):
        each.put_pod(pod)

    assert promises(reader, "n1") == promises(cluster, "n1") != {}
    assert 0 == len(cluster.reservations)


@pytest.mark.parametrize("deleted", [True, False])
def test_given_up_binding_leaves_nothing_of_what_it_would_have_written(deleted: bool) -> None:
    """A Pod that another scheduler binds after it, with the same words, counts, and counts once."""
    cluster = a_cluster(a_node("n1", a_device()))
    cluster.reserve(a_grant("uid-p", "n1", a_share(core_percent=10)), 0.0)
    cluster.begin_bind("uid-p", {ALLOCATED_KEY: SHARE})
    pod = a_pod(node="n1", allocated=SHARE)

    cluster.drop_pod(pod) if deleted else cluster.unreserve("uid-p")
    assert {} == promises(cluster, "n1")
    cluster.put_pod(pod)

    assert HELD == promises(cluster, "n1")


def test_reserved_pod_that_is_bound_unreadably_is_counted_as_reserved() -> None:
    """What we granted is known even if somebody broke the annotation before we saw it."""
    cluster = a_cluster(a_node("n1", a_device()))
    cluster.reserve(a_grant("uid-p", "n1", a_share(core_percent=10)), 0.0)

    cluster.put_pod(a_pod(node="n1", allocated="GPU-a,NVIDIA"))

    assert HELD == promises(cluster, "n1")
    assert 0 == len(cluster.reservations)


def test_reserved_pod_bound_unreadably_elsewhere_gives_its_room_back() -> None:
    """It does not run where we reserved."""
    cluster = a_cluster(a_node("n1", a_device()))
    cluster.reserve(a_grant("uid-p", "n1"), 0.0)

    cluster.put_pod(a_pod(node="n2", allocated="GPU-a,NVIDIA"))

    assert {} == promises(cluster, "n1")


def test_reserved_pod_bound_by_another_scheduler_holds_nothing_of_ours() -> None:
    """Without an allocation there is nothing to count."""
    cluster = a_cluster(a_node("n1", a_device()))
    cluster.reserve(a_grant("uid-p", "n1"), 0.0)

    cluster.put_pod(a_pod(node="n1"))

    assert {} == promises(cluster, "n1")


def test_quota_use_follows_the_grants() -> None:
    """What a namespace holds is what its Pods hold."""
    cluster = a_cluster(a_node("n1", a_device()))
    quota = {"metadata": {"name": "q", "namespace": "default"}, "spec": {"hard": {"limits.nvidia.com/gpumem": "1500"}}}
    cluster.quotas.put(quota)
    cluster.put_pod(a_pod(node="n1", allocated=SHARE))

    assert 500 == cluster.quotas.allowance("default", vendors()[0]).memory_mib
    cluster.put_pod(a_pod(node="n1", allocated=SHARE, phase="Failed"))
    assert 1500 == cluster.quotas.allowance("default", vendors()[0]).memory_mib


def test_recount_repairs_and_counts_what_was_wrong() -> None:
    """A number changed behind the ledger's back is put right and told."""
    cluster = a_cluster(a_node("n1", a_device()))
    cluster.put_pod(a_pod(node="n1", allocated=SHARE))
    entry = cluster.ledger.node("n1")
    assert entry is not None
    cluster.ledger.promised[entry.start, 1] += 7

    assert 1 == cluster.recount()
    assert 1 == cluster.drift
    assert HELD == promises(cluster, "n1")
    assert 0 == cluster.recount()


def test_cordon_and_identity_follow_the_node_annotation() -> None:
    """A change of annotations that leaves the devices keeps their promises."""
    cluster = a_cluster(a_node("n1", a_device()))
    cluster.put_pod(a_pod(node="n1", allocated=SHARE))

    cordoned: dict[str, Any] = {"hami_io__device_cordon": "GPU-a"}
    cluster.put_node(a_node("n1", a_device(finds_owners=True), **cordoned))

    entry = cluster.ledger.node("n1")
    assert entry is not None
    assert not entry.inventory.needs_lock
    assert not cluster.ledger.is_open[entry.start]
    assert HELD == promises(cluster, "n1")


def test_node_needs_the_lock_once_another_plugin_has_written_its_inventory() -> None:
    """Ours was killed, so it could not take its mark back; HAMi's writes the same devices without it."""
    cluster = a_cluster(a_node("n1", a_device(finds_owners=True)))
    cluster.put_pod(a_pod(node="n1", allocated=SHARE))

    cluster.put_node(a_node("n1", a_device()))

    entry = cluster.ledger.node("n1")
    assert entry is not None
    assert entry.inventory.needs_lock
    assert HELD == promises(cluster, "n1")


def test_events_that_change_nothing_of_it_are_not_decoded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Pod has several events in its life, a Node one every few seconds; most change nothing that is read."""
    decoded: list[str] = []

    def counted(module: str, name: str) -> None:
        """Let *decoded* hear of each call of what *module* calls *name*."""
        decode = getattr(cluster_module, name)

        def hearing(*given: Any) -> Any:
            decoded.append(module)
            return decode(*given)

        monkeypatch.setattr(cluster_module, name, hearing)

    counted("grant", "read_grant")
    counted("inventory", "read_inventory")
    cluster = a_cluster(a_node("n1", a_device()))
    for phase in ("Pending", "Running", "Running"):
        cluster.put_pod(a_pod(node="n1", allocated=SHARE, phase=phase))
        cluster.put_node({**a_node("n1", a_device()), "spec": {"phase": phase}})
    assert ["inventory", "grant"] == decoded

    cluster.put_pod(a_pod(node="n1", allocated=SHARE, annotations={"hami.io/bind-phase": "success"}))
    cluster.put_node(a_node("n1", a_device(healthy=False)))
    assert ["inventory", "grant", "grant", "inventory"] == decoded


def test_pod_that_comes_back_after_its_room_was_given_back_counts_again() -> None:
    """What was read of it once is no reason to look away when nothing is held for it."""
    cluster = a_cluster(a_node("n1", a_device()))
    for _ in range(2):
        cluster.put_pod(a_pod(node="n1", allocated=SHARE))
        assert HELD == promises(cluster, "n1")
        cluster.drop_pod(a_pod(node="n1", allocated=SHARE))
        assert {} == promises(cluster, "n1")
