"""
What HAMi 2.10.0 answers to a filter, and what we answer: every case of every vendor.

Where we decide otherwise, `hami` turns the input into one on which both must agree, or has the rule that explains the
difference. HAMi chooses at random among equal 910C modules, networks, zones and cards; the first in the policy's order
wins here. HAMi names one vendor's reason at random if several of one container's vendors refuse; we name all of them.
"""

import json
from functools import cache
from typing import Any

import numpy as np
import pytest

from hami_scheduler.bind.plan import node_label, plan_bind
from hami_scheduler.search.bulk_reasons import bulk_reasons
from hami_scheduler.search.filter import filter_nodes
from hami_scheduler.search.node_rating import rating
from hami_scheduler.search.place_pod import try_node
from hami_scheduler.search.placement import Placement, grant_of
from hami_scheduler.search.prefilter import possible_nodes
from hami_scheduler.state.cluster import Cluster
from hami_scheduler.values.inventory import NodeInventory, read_inventory
from hami_scheduler.values.reasons import Misfit
from hamicommon.wire import keys
from hamicommon.wire.quantity import INT32_MAX, parse_quantity

from .support.builders import promises, vendors
from .support.hami_vectors import (
    Case,
    annotations_of_ours,
    answer_of,
    by_name,
    cases,
    cluster_of,
    is_ours_by_quota,
    kubelet_refuses,
    other_chips,
    request_of,
    says,
    unanswered,
)

UNIX_NANOSECONDS = 1_767_225_600_000_000_000
HALF_A_DECIMAL = 0.000_050_001
"""Scores in the vectors have four decimals."""
WRITTEN_AT_BIND = {keys.BIND_PHASE, keys.BIND_TIME}
"""HAMi's filter does not write these, its bind does."""

VENDOR_FILES = (
    "nvidia",
    "ascend",
    "cambricon",
    "hygon",
    "iluvatar",
    "mthreads",
    "metax-gpu",
    "metax-sgpu",
    "enflame",
    "kunlun",
    "awsneuron",
    "amd",
    "vastai",
    "biren",
    "mixed",
    "more",
)
FILTERS = [case for name in VENDOR_FILES for case in cases(name)]
HOSTILE = cases("hostile")


class Tried:
    """A case tried Node by Node."""

    def __init__(self, case: Case) -> None:
        """Try every Node of *case*."""
        self.cluster = cluster_of(case)
        self.request = request_of(case, self.cluster)
        view = self.cluster.view
        allowances = view.allowances(self.request)
        self.found = {name: try_node(self.request, name, view.ledger, allowances) for name in case["out"]["nodes"]}

    def inventory(self, name: str) -> NodeInventory:
        """Return what the Node *name* offers."""
        return self.cluster.view.inventory(name)


@cache
def _tried(name: str) -> Tried:
    return Tried(next(case for case in FILTERS if case["case"] == name))


def tried(case: Case) -> Tried:
    """Return what every Node of *case* answers."""
    return _tried(case["case"])


def decided(case: Case) -> bool:
    """Return whether HAMi looked at Nodes at all in *case*."""
    return case["form"] == "names" and "score_error" not in case["out"] and "no_request" not in case["out"]


DECIDED = [case for case in FILTERS if decided(case)]


def is_ours(case: Case, name: str) -> bool:
    """Return whether a rule explains that we answer otherwise than HAMi on the Node *name*."""
    there = tried(case)
    is_of_other_chip = bool(other_chips(there.request, there.inventory(name)))
    return is_of_other_chip or is_ours_by_quota(there.found[name], case["pod"], case.get("quotas", []))


def agreed(case: Case) -> dict[str, Case]:
    """Return HAMi's answer on each Node where ours is the same, one of several that HAMi gives at random included."""
    return {name: node for name, node in case["out"]["nodes"].items() if not is_ours(case, name)}


def is_unstable(case: Case, name: str) -> bool:
    """Return whether HAMi itself answers differently from run to run on the Node *name*."""
    return name in case["out"].get("unstable_nodes", ())


@pytest.mark.parametrize("case", by_name(DECIDED))
def test_usage_of_existing_pods_is_what_hami_counts(case: Case) -> None:
    """Replicas, memory and compute promised of every device agree, whatever form the Pods' annotations have."""
    expected = {name: node.get("used", {}) for name, node in case["out"]["nodes"].items()}

    assert expected == {name: promises(tried(case).cluster, name) for name in expected}


@pytest.mark.parametrize("case", by_name(DECIDED))
def test_every_node_is_accepted_or_refused_as_by_hami(case: Case) -> None:
    """The devices, amounts and MIG places of each container, or the reasons and their counts, agree Node by Node."""
    for name, node in agreed(case).items():
        found = tried(case).found[name]
        if is_unstable(case, name):
            _check_one_of_many(case, name, found)
        elif isinstance(found, Misfit):
            assert (name, node.get("reason", "fits")) == (name, found.text)
        else:
            assert (name, _hami_devices(node)) == (name, _our_devices(found)), node.get("reason")


def _check_one_of_many(case: Case, name: str, found: Placement | Misfit) -> None:
    """Check *found* where HAMi itself answers differently from run to run."""
    variants = [case["out"]["nodes"][name], *case["out"]["variants"].get(name, ())]
    if isinstance(found, Misfit):
        told = set(found.text.split(", "))
        assert all(told >= set(variant["reason"].split(", ")) for variant in variants), found.text
    elif case["out"]["variants_complete"]:
        assert _our_devices(found) in [_hami_devices(variant) for variant in variants]
    else:
        amounts = [_without_uuids(_hami_devices(variant)) for variant in variants]
        assert _without_uuids(_our_devices(found)) in amounts


@pytest.mark.parametrize("case", by_name(DECIDED))
def test_arrays_rule_out_no_node_that_fits(case: Case) -> None:
    """What is looked at for all Nodes at once never says no where the exact walk says yes, whatever the vendor."""
    ledger = tried(case).cluster.ledger
    possible = possible_nodes(ledger, tried(case).request)
    fitting = [name for name, found in tried(case).found.items() if isinstance(found, Placement)]

    assert fitting == [name for name in fitting if (entry := ledger.node(name)) and possible[entry.index]]


@pytest.mark.parametrize("case", by_name(DECIDED))
def test_causes_told_at_once_are_those_of_each_node(case: Case) -> None:
    """Reasons for all Nodes at once equal those of trying each Node, for every vendor."""
    ledger, request = tried(case).cluster.ledger, tried(case).request
    causes = bulk_reasons(request, ledger, tried(case).cluster.view.allowances(request))
    told = {name: causes[entry.index] for name in tried(case).found if (entry := ledger.node(name))}

    assert {name: tried(case).found[name] for name, cause in told.items() if cause} == {
        name: cause for name, cause in told.items() if cause
    }


@pytest.mark.parametrize("case", by_name(DECIDED))
def test_node_scores_are_hamis(case: Case) -> None:
    """A Node's score, what vendors add to it included, is HAMi's in 32-bit floats."""
    ledger = tried(case).cluster.ledger
    scores = ledger.node_scores()

    for name, node in agreed(case).items():
        entry, found = ledger.node(name), tried(case).found[name]
        if node["fit"] and entry is not None and isinstance(found, Placement):
            ours = scores[entry.index] + np.float32(rating(tried(case).request, name, found, ledger))
            assert (name, node["score"]) == (name, pytest.approx(float(ours), rel=0, abs=HALF_A_DECIMAL))


@pytest.mark.parametrize("case", by_name(DECIDED))
def test_node_chosen_early_is_the_one_that_trying_all_would_find(case: Case) -> None:
    """The walk ends before Nodes that cannot win, whatever their vendors would say of them."""
    request, snapshot = tried(case).request, tried(case).cluster.view
    ledger, sign = snapshot.ledger, -1 if request.node_policy == "spread" else 1
    scores = ledger.node_scores()
    rated = {
        name: float(scores[entry.index] + np.float32(rating(request, name, found, ledger)))
        for name, found in tried(case).found.items()
        if isinstance(found, Placement) and (entry := ledger.node(name))
    }
    best = min(rated, key=lambda name: (-sign * rated[name], name), default=None)

    result = filter_nodes(request, list(tried(case).found), snapshot)
    assert (best, rated.get(best or "", 0.0)) == (result.node, result.score)


@pytest.mark.parametrize("case", by_name(DECIDED))
def test_chosen_node_is_one_of_the_best(case: Case) -> None:
    """One Node is answered and labelled, among those HAMi ties for the best; without one, every candidate's reason."""
    answer, told = answer_of(case)
    best = [name for name in case["out"]["best"] if not is_ours(case, name)]
    failed = case["out"]["filter"].get("failed_nodes", {})

    if answer.node_names:
        (chosen,) = answer.node_names
        assert chosen in best if best else any(is_ours(case, name) for name in case["out"]["nodes"])
        assert answer.failed_nodes is None
        assert [] == told.warnings
        for name in best:
            if case["out"]["filter"]["node_names"] == [name]:
                assert case["out"]["filter"]["labels"] == {keys.POD_NODE: node_label(name)}
        return
    assert [] == best
    assert answer.node_names is None
    ours = answer.failed_nodes or {}
    assert not failed or set(failed) == set(ours)
    stable = [name for name in failed if not (name in case["out"]["nodes"] and is_ours(case, name))]
    for name in stable:
        if not is_unstable(case, name):
            assert (name, failed[name]) == (name, ours[name])
    if len(stable) == len(failed) and failed and not case["out"].get("unstable_nodes"):
        ((reason, message),) = told.warnings
        events = [event.removeprefix(f"Warning {reason} ") for event in case["out"]["filter"]["events"]]
        sentences = message.split("; ")
        assert [] == [event for event in events if not says(sentences, event)]


@pytest.mark.parametrize("case", by_name(DECIDED))
def test_devices_of_another_chip_are_not_granted(case: Case) -> None:
    """HAMi gives an `Ascend910B4` a device of an `Ascend910B4-1`, or says it fits and gives none."""
    request = tried(case).request
    for name, found in tried(case).found.items():
        owners = {device.id: device.vendor for device in tried(case).inventory(name).devices}
        if isinstance(found, Misfit):
            continue
        for position, container in enumerate(request.containers):
            for asked in container.requests:
                shares = found.shares[asked.vendor][position]
                assert asked.count == len(shares)
                assert {asked.vendor} == {owners[share.uuid] for share in shares}


UNANSWERED = [case for case in DECIDED if any(unanswered(node, case["flags"]["config"]) for node in case["nodes"])]


@pytest.mark.parametrize("case", by_name(UNANSWERED))
def test_devices_are_offered_while_the_kubelet_offers_them_whoever_was_asked(case: Case) -> None:
    """HAMi leaves out the devices of a plugin that a scheduler before it has asked; the kubelet knows it is alive."""
    config = case["flags"]["config"]
    cluster = Cluster(vendors(config), lambda _kind, _name, _problem: None)
    cluster.replace_nodes(case["nodes"])

    for node in case["nodes"]:
        keys_left_out = unanswered(node, config)
        asked = [rules for rules in vendors(config) if rules.vendor.register_key in keys_left_out]
        for rules in asked:
            entry = cluster.ledger.node(node["metadata"]["name"])
            offered = bool(entry and entry.inventory.devices_of(rules.key))
            replicas = read_inventory(node, (rules,))[0].replicas or {}
            assert offered is (replicas.get(rules.kubelet_resources[0], 0) > 0)


@pytest.mark.parametrize("case", by_name(DECIDED))
def test_kubelet_has_the_last_word_where_hami_says_that_a_pod_fits(case: Case) -> None:
    """A Node refuses, too, if its kubelet would; nothing else changes because kubelets are counted."""
    cluster = cluster_of(case, counts_kubelets=True)
    request, view = request_of(case, cluster), cluster.view
    for name, devices_say in tried(case).found.items():
        found = try_node(request, name, view.ledger, view.allowances(request))
        if kubelet_refuses(case, name, request.constraints):
            assert isinstance(found, Misfit)
        else:
            assert (name, devices_say) == (name, found)


@pytest.mark.parametrize("case", by_name(DECIDED))
def test_annotations_of_the_bind_are_what_hami_patches(case: Case) -> None:
    """The texts are HAMi's, those of MIG instances included, with the entries that HAMi's own lost."""
    cluster, request = tried(case).cluster, tried(case).request
    for name, expected in case["out"].get("annotations", {}).items():
        found = tried(case).found[name]
        if is_ours(case, name) or is_unstable(case, name):
            continue
        assert isinstance(found, Placement)
        grant = grant_of(request, tried(case).inventory(name), found, UNIX_NANOSECONDS)
        annotations = plan_bind(grant, cluster.vendors, 1).annotations
        written = {key: text for key, text in annotations.items() if key not in WRITTEN_AT_BIND}

        assert (name, annotations_of_ours(expected, request, case["flags"]["config"], written)) == (name, written)


@pytest.mark.parametrize("case", by_name([case for case in FILTERS if not decided(case)]))
def test_other_answers_are_hamis(case: Case) -> None:
    """Unreadable weights are an error, a Pod that asks for nothing passes, Node objects are judged as if idle."""
    answer, told = answer_of(case)
    out = case["out"]

    if "score_error" in out:
        assert "hami.io/device-scoring-weights" in answer.error
        assert ["FilteringFailed"] == [reason for reason, _ in told.warnings]
        return
    assert [] == told.warnings
    if not request_of(case, cluster_of(case)).asks_for_devices:
        # HAMi answers no Node if it was given objects (issue #2838).
        given = (case["node_names"], None) if case["form"] == "names" else (None, case["nodes"])
        assert given == (answer.node_names, answer.nodes)
    else:
        chosen = [node["metadata"]["name"] for node in answer.nodes or ()]
        assert (chosen or [None])[0] in (out["nodes_seen"] or [None])
        assert out["filter"].get("failed_nodes", {}) == answer.failed_nodes


def asks_beyond_32_bits(pod: dict[str, Any]) -> bool:
    """Return whether an amount of a container of *pod* is one that HAMi wraps to a small one."""
    return any(
        parse_quantity(amount) > INT32_MAX
        for container in pod["spec"]["containers"]
        for amounts in (container.get("resources") or {}).values()
        for name, amount in amounts.items()
        if name not in {"cpu", "memory"}
    )


@pytest.mark.parametrize("case", by_name(HOSTILE))
def test_hostile_objects_cost_only_themselves(case: Case) -> None:
    """Nothing raises, a Node beside a broken one stays usable, and no amount is negative or wrapped."""
    cluster = cluster_of(case)
    answer, _ = answer_of(case)
    healthy = filter_nodes(request_of(case, cluster), ["n2"], cluster.view)

    assert "" == answer.error
    for name in ("n1", "n2"):
        for amounts in promises(cluster, name).values():
            assert min(amounts) >= 0
    if case["out"].get("nodes", {}).get("n2", {}).get("fit") and not asks_beyond_32_bits(case["pod"]):
        assert "n2" == healthy.node
    for result in (healthy, filter_nodes(request_of(case, cluster), ["n1", "n2"], cluster.view)):
        shares = [s for v in (result.placement.shares if result.placement else {}).values() for c in v for s in c]
        assert all(share.memory_mib > 0 and 0 <= share.core_percent <= 100 and share.uuid for share in shares)


Given = dict[str, list[list[tuple[str, int, int, Any]]]]
"""Per vendor and requesting container: UUID, MiB, cores and MIG instance of each share."""


def _hami_devices(node: dict[str, Any]) -> Given:
    """Return the shares HAMi gives on *node*, requesting containers only, for it loses the entries of the others."""
    found = {
        vendor: [
            [(d["uuid"], d["mem"], d["cores"], json.dumps(d.get("mig"), sort_keys=True)) for d in container]
            for container in containers
            if container
        ]
        for vendor, containers in node.get("devices", {}).items()
    }
    return {vendor: containers for vendor, containers in found.items() if containers}


def _our_devices(found: Placement) -> Given:
    instances = {
        (allocation.container_index, allocation.device_index): {
            "placement": {"start": allocation.placement.start, "size": allocation.placement.size},
            "profile": allocation.profile,
        }
        for allocation in found.mig
    }
    return {
        vendor: [
            [
                (s.uuid, s.memory_mib, s.core_percent, json.dumps(instances.get((position, index)), sort_keys=True))
                for index, s in enumerate(container)
            ]
            for position, container in enumerate(containers)
            if container
        ]
        for vendor, containers in found.shares.items()
        if any(containers)
    }


def _without_uuids(given: Given) -> dict[str, list[list[tuple[int, int]]]]:
    return {
        vendor: [[(memory_mib, cores) for _, memory_mib, cores, _ in container] for container in containers]
        for vendor, containers in given.items()
    }
