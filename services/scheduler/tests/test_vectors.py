"""
What HAMi 2.10.0 answers to generated inputs, and what we answer.

Every case of every file runs by name. Where we decided otherwise, `as_hami_counts` turns the input into one on which
both must agree, and the test of the decision itself is beside the module that made it: - HAMi does not count Pods
that were already terminating when it started, and counts finished init containers until the Pod's next event
(`test_cluster.py`: what the Pod says now counts). - HAMi counts the allocation of Pods that are not bound
(`test_cluster.py`: nothing is promised without a Node). - HAMi loses empty container entries of its own annotation
(issue #2899): the shares are compared, not the text. - HAMi counts app containers as init containers against a quota
(issue #3052): we refuse what would exceed it.
"""

import asyncio
import copy
import json
from typing import Any

import pytest

from hami_scheduler.bind import plan_bind
from hami_scheduler.cluster import Cluster
from hami_scheduler.extender import Clock, Extender, FilterAnswer, Settings
from hami_scheduler.filter import allowances_of, filter_nodes, try_node
from hami_scheduler.grant import make_grant
from hami_scheduler.placement import Placement
from hami_scheduler.reasons import Misfit, Reason
from hami_scheduler.request import ContainerRequest, PodRequest, Policies, read_containers, read_request
from hami_scheduler.score import node_scores
from hamicommon.wire.pod_devices import decode_pod_devices

from .builders import NOW, VECTORS, promises, vendors

Case = dict[str, Any]
LOST_EMPTY_ENTRIES, QUOTA_OF_INITS = 1, 2
NOT_YET: dict[str, list[int | str]] = json.loads((VECTORS / "not_yet.json").read_text(encoding="utf-8"))
"""Per reason, the cases we do not agree with yet."""


def cases(name: str) -> list[Case]:
    """Return the cases of one file."""
    found: list[Case] = json.loads((VECTORS / f"{name}.json").read_text(encoding="utf-8"))
    return found


def by_name(found: list[Case]) -> list[Any]:
    """Return *found* as parameters that carry their names."""
    return [pytest.param(case, id=str(case["case"])) for case in found]


OURS_IN_SEQUENCES: dict[str, tuple[int, dict[str, dict[str, list[int]]]]] = {
    # HAMi lost the empty entry of the init container (issue #2899), so it takes the app container's share for the init
    # container's and gives it away when that one ends.
    "sequence-036": (2, {"n1": {"GPU-e30e9c": [1, 6144, 10], "GPU-e75a89": [1, 8000, 0]}}),
    "sequence-047": (1, {"n1": {"GPU-5d01b4": [1, 4864, 14]}}),
    # HAMi counts one of the two MIG instances an init container holds on one device.
    "sequence-075": (0, {"n1": {"GPU-99429c": [2, 11904, 50]}}),
}
"""Per sequence the first step after which the sums differ, and ours."""

NVIDIA = cases("nvidia")
HOSTILE = cases("hostile")
SEQUENCES = cases("sequence")
REQUESTS = cases("requests")


def as_hami_counts(pod: dict[str, Any]) -> dict[str, Any] | None:
    """Return *pod* so that we count of it what HAMi counts when it first sees it, None where that is nothing."""
    if pod["metadata"].get("deletionTimestamp"):
        return None
    pod = copy.deepcopy(pod)
    pod["status"].pop("initContainerStatuses", None)
    chosen = pod["metadata"]["annotations"].get("hami.io/vgpu-node")
    if chosen:
        pod["spec"].setdefault("nodeName", chosen)
    return pod


def cluster_of(case: Case) -> Cluster:
    """Return the cluster of *case*, counting as HAMi counts."""
    cluster = Cluster(vendors(case["flags"]["config"]), lambda _kind, _name, _problem: None)
    cluster.replace_nodes(case["nodes"], NOW)
    cluster.quotas.replace(case.get("quotas", []))
    cluster.replace_pods([pod for pod in map(as_hami_counts, case.get("pods", [])) if pod], 0.0)
    return cluster


def request_of(case: Case, cluster: Cluster) -> PodRequest:
    """Return what the asking Pod of *case* asks."""
    return read_request(case["pod"], cluster.vendors, policies_of(case))


def policies_of(case: Case) -> Policies:
    """Return the flags of *case*."""
    return Policies(case["flags"]["node_scheduler_policy"], case["flags"]["gpu_scheduler_policy"])


def an_extender(case: Case, cluster: Cluster) -> Extender:
    """Return an extender that cannot write: a filter must not need to."""
    clock = Clock(lambda: NOW, lambda: 0.0)
    silent: Any = type("Silent", (), {"tell": lambda *_args, **_kinds: None})()
    locks: Any = None
    return Extender(cluster, silent, locks, clock, Settings(policies_of(case)), lambda: None)


def answer_of(case: Case) -> FilterAnswer:
    """Return the answer to the call of *case*."""
    extender = an_extender(case, cluster_of(case))
    if case["form"] == "nodes":
        return asyncio.run(extender.filter(case["pod"], None, case["nodes"]))
    return asyncio.run(extender.filter(case["pod"], case["node_names"], None))


def decided(case: Case) -> bool:
    """Return whether HAMi looked at Nodes at all in *case*."""
    return case["form"] == "names" and "score_error" not in case["out"] and "no_request" not in case["out"]


def accepts_by_wrong_quota(case: Case) -> bool:
    """Return whether HAMi accepts *case* only because it counts the quota wrongly."""
    return QUOTA_OF_INITS in (case.get("defect") or ())


@pytest.mark.parametrize("case", by_name([case for case in NVIDIA if decided(case)]))
def test_usage_of_existing_pods_is_what_hami_counts(case: Case) -> None:
    """Replicas, memory and compute promised of every device agree, whatever form the Pods' annotations have."""
    cluster = cluster_of(case)

    expected = {name: node.get("used", {}) for name, node in case["out"]["nodes"].items()}

    assert expected == {name: promises(cluster, name) for name in expected}


@pytest.mark.parametrize("case", by_name([c for c in NVIDIA if decided(c) and not accepts_by_wrong_quota(c)]))
def test_every_node_is_accepted_or_refused_as_by_hami(case: Case) -> None:
    """The devices, amounts and MIG places of each container, or the reasons and their counts, agree Node by Node."""
    cluster = cluster_of(case)
    request = request_of(case, cluster)
    snapshot = cluster.snapshot
    allowances = allowances_of(request, snapshot.quotas)

    for name, node in case["out"]["nodes"].items():
        found = try_node(request, name, snapshot.ledger, allowances)
        if isinstance(found, Misfit):
            assert (name, node.get("reason", "fits")) == (name, found.text)
        else:
            assert (name, _hami_devices(case, name)) == (name, _our_devices(found)), node.get("reason")


@pytest.mark.parametrize("case", by_name([case for case in NVIDIA if decided(case)]))
def test_node_scores_agree_to_four_decimals(case: Case) -> None:
    """A Node's score is HAMi's."""
    ledger = cluster_of(case).ledger
    scores = node_scores(ledger.node_promised[: ledger.node_count], ledger.node_capacity[: ledger.node_count])

    for name, node in case["out"]["nodes"].items():
        entry = ledger.node(name)
        if node["fit"] and entry is not None:
            assert (name, node["score"]) == (name, pytest.approx(float(scores[entry.index]), abs=1e-4))


@pytest.mark.parametrize("case", by_name([c for c in NVIDIA if decided(c) and not accepts_by_wrong_quota(c)]))
def test_chosen_node_is_one_of_the_best(case: Case) -> None:
    """One Node is answered, among those HAMi ties for the best; without one, every candidate's reason."""
    answer = answer_of(case)

    if case["out"]["best"]:
        assert answer.node_names is not None
        assert 1 == len(answer.node_names)
        assert answer.node_names[0] in case["out"]["best"]
        assert answer.failed_nodes is None
    else:
        assert answer.node_names is None
        assert case["out"]["filter"]["failed_nodes"] == answer.failed_nodes


@pytest.mark.parametrize("case", by_name([case for case in NVIDIA if accepts_by_wrong_quota(case)]))
def test_containers_that_exceed_a_quota_together_are_refused(case: Case) -> None:
    """HAMi counts the first app containers as if they ran alone; we count them together."""
    cluster = cluster_of(case)
    result = filter_nodes(request_of(case, cluster), case["node_names"], cluster.snapshot)

    assert case["out"]["best"]
    assert result.node is None
    assert {Reason.QUOTA} <= {reason for misfit in result.misfits.values() for reason in misfit.reasons}


@pytest.mark.parametrize("case", by_name([c for c in NVIDIA if decided(c) and not accepts_by_wrong_quota(c)]))
def test_annotations_of_the_bind_are_what_hami_patches(case: Case) -> None:
    """The text is HAMi's, except where HAMi's own lost the entries of containers without devices."""
    cluster = cluster_of(case)
    request = request_of(case, cluster)
    allowances = allowances_of(request, cluster.quotas)
    containers = read_containers(case["pod"], cluster.vendors)
    for name, expected in case["out"].get("annotations", {}).items():
        found = try_node(request, name, cluster.ledger, allowances)
        assert isinstance(found, Placement)
        grant = make_grant(("u", "ns", "p"), name, request.kinds, found.shares, mig=found.mig)
        written = plan_bind(grant, cluster.vendors, 1).annotations
        for key in ("hami.io/vgpu-node", "hami.io/vgpu-devices-allocated", "hami.io/vgpu-devices-to-allocate"):
            text = expected[key]
            if LOST_EMPTY_ENTRIES in (case.get("defect") or ()) and key.endswith(("allocated", "to-allocate")):
                text = _with_empty_entries(text, containers)
            assert (key, text) == (key, written[key])


@pytest.mark.parametrize("case", by_name([case for case in NVIDIA if not decided(case)]))
def test_other_answers_are_hamis(case: Case) -> None:
    """Unreadable weights are an error, a Pod that asks for nothing passes, Node objects are judged as if idle."""
    answer = answer_of(case)
    out = case["out"]

    if "score_error" in out:
        assert "hami.io/device-scoring-weights" in answer.error
    elif case.get("defect") == [3]:
        assert case["nodes"] == answer.nodes, "a Pod that asks for nothing keeps all its Nodes (HAMi #2838)"
    elif "no_request" in out:
        assert out["filter"]["node_names"] == answer.node_names
    else:
        chosen = [node["metadata"]["name"] for node in answer.nodes or ()]
        assert (chosen or [None])[0] in (out["nodes_seen"] or [None])
        assert out["filter"].get("failed_nodes", {}) == answer.failed_nodes


@pytest.mark.parametrize("case", by_name(HOSTILE))
def test_hostile_objects_cost_only_themselves(case: Case) -> None:
    """Nothing raises, a Node beside a broken one stays usable, and no amount is negative or wrapped."""
    cluster = cluster_of(case)
    answer = answer_of(case)
    healthy = filter_nodes(request_of(case, cluster), ["n2"], cluster.snapshot)

    assert "" == answer.error
    for name in ("n1", "n2"):
        for amounts in promises(cluster, name).values():
            assert min(amounts) >= 0
    if case["out"].get("nodes", {}).get("n2", {}).get("fit") and "4294967297" not in json.dumps(case["pod"]):
        assert "n2" == healthy.node, "HAMi reads a count of 4294967297 as 1; every other Pod that fits there still does"
    for result in (healthy, filter_nodes(request_of(case, cluster), ["n1", "n2"], cluster.snapshot)):
        shares = [s for v in (result.placement.shares if result.placement else {}).values() for c in v for s in c]
        assert all(share.memory_mib > 0 and 0 <= share.core_percent <= 100 and share.uuid for share in shares)


def requested(case: Case) -> list[dict[str, tuple[int, int, int | None, int]]]:
    """Return per container and vendor what we read: count, MiB, percent where it decides, cores."""
    return [
        {
            r.vendor: (r.count, r.memory_mib, None if r.memory_mib else r.memory_percent, r.core_percent)
            for r in c.requests
        }
        for c in read_containers(case["pod"], vendors(case["config"]))
    ]


def hami_requested(case: Case) -> list[dict[str, tuple[int, int, int | None, int]]]:
    """Return the same as HAMi reads it."""
    return [
        {
            vendor: (r["count"], r["mem"], None if r["mem"] else r["mem_percentage"], r["cores"])
            for vendor, r in container.items()
        }
        for container in case["out"]
    ]


def _is_pending(case: Case) -> bool:
    return any(case["case"] in names for names in NOT_YET.values())


@pytest.mark.parametrize("case", by_name([c for c in REQUESTS if not _is_pending(c) and "note" not in c]))
def test_requests_are_read_as_hami_reads_them(case: Case) -> None:
    """Count, memory, percentage and cores of every container agree."""
    assert hami_requested(case) == requested(case)


@pytest.mark.parametrize("case", by_name([c for c in REQUESTS if not _is_pending(c) and "note" in c]))
def test_amounts_that_wrap_in_hami_stay_large_or_become_zero(case: Case) -> None:
    """An amount beyond 32 bits never becomes a small one, a negative one never counts."""
    for container in requested(case):
        for count, memory_mib, _percent, cores in container.values():
            assert count >= 1
            assert memory_mib >= 0
            assert cores >= 0
            assert (count, cores) not in {(1, -5), (1, 100)} or "4294967396" in json.dumps(case["pod"])


def test_cases_not_agreed_with_yet_exist_and_fail() -> None:
    """The list of what is missing holds no case that already works, and none that is not there."""
    listed = [name for names in NOT_YET.values() for name in names]
    known = {case["case"]: case for case in REQUESTS}

    assert len(listed) == len(set(listed))
    assert [] == [name for name in listed if name not in known]
    assert [] == [name for name in listed if hami_requested(known[name]) == requested(known[name])]


@pytest.mark.parametrize("case", by_name(SEQUENCES))
def test_pods_one_after_the_other_are_placed_as_by_hami(case: Case) -> None:
    """Every filter of a sequence, with Pods ending in between, gives the Node, the shares and the sums of HAMi."""
    cluster = cluster_of(case)
    extender = an_extender(case, cluster)
    pods: dict[str, dict[str, Any]] = {}
    for number, step in enumerate(case["steps"]):
        if step["do"] == "filter":
            answer = asyncio.run(extender.filter(step["pod"], case["node_names"], None))
            if _differs_by_quota(case, step, answer):
                return
            assert (number, step["out"].get("failed_nodes")) == (number, answer.failed_nodes)
            assert (number, step["out"].get("node_names")) == (number, answer.node_names)
            pod = _bound(step["pod"], cluster)
            pods[f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"] = pod
        elif step["ref"] in pods:
            _change(pods[step["ref"]], step["do"], cluster)
        if number == OURS_IN_SEQUENCES.get(case["case"], (None, {}))[0]:
            assert OURS_IN_SEQUENCES[case["case"]][1] == {name: promises(cluster, name) for name in step["out"]["used"]}
            return
        expected = step["out"]["used"]
        assert (number, expected) == (number, {name: promises(cluster, name) for name in expected})


def _differs_by_quota(case: Case, step: Case, answer: FilterAnswer) -> bool:
    """Return whether HAMi's wrong sum (issue #3052) decided this step; from here on the two clusters differ."""
    if QUOTA_OF_INITS not in (case.get("defect") or ()) or step["out"].get("node_names") == answer.node_names:
        return False
    assert Reason.QUOTA in str(answer.failed_nodes)
    return True


def _bound(pod: dict[str, Any], cluster: Cluster) -> dict[str, Any]:
    """Return *pod* as it is once its reservation is bound, and let the cluster see it."""
    pod = copy.deepcopy(pod)
    grant = cluster.ledger.grant(pod["metadata"]["uid"])
    if grant is not None:
        pod["spec"]["nodeName"] = grant.node
        pod["metadata"].setdefault("annotations", {}).update(plan_bind(grant, cluster.vendors, 1).annotations)
    cluster.put_pod(pod)
    return pod


def _change(pod: dict[str, Any], event: str, cluster: Cluster) -> None:
    if event == "delete":
        cluster.drop_pod(pod)
        return
    if event == "terminating":
        pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    elif event == "init-done":
        pod["status"]["initContainerStatuses"] = [
            {"name": container["name"], "state": {"terminated": {"exitCode": 0}}}
            for container in pod["spec"].get("initContainers", ())
        ]
    else:
        pod["status"]["phase"] = event.capitalize()
    cluster.put_pod(pod)


def _hami_devices(case: Case, node: str) -> list[list[tuple[str, int, int, Any]]]:
    """Return the shares HAMi gives on *node*, requesting containers only, for it loses the entries of the others."""
    found = case["out"]["nodes"][node].get("devices", {}).get("NVIDIA", [])
    return [
        [(d["uuid"], d["mem"], d["cores"], json.dumps(d.get("mig"), sort_keys=True)) for d in container]
        for container in found
        if container
    ]


def _our_devices(found: Placement) -> list[list[tuple[str, int, int, Any]]]:
    instances = {
        (allocation.container_index, allocation.device_index): {
            "placement": {"start": allocation.placement.start, "size": allocation.placement.size},
            "profile": allocation.profile,
        }
        for allocation in found.mig
    }
    return [
        [
            (s.uuid, s.memory_mib, s.core_percent, json.dumps(instances.get((position, index)), sort_keys=True))
            for index, s in enumerate(container)
        ]
        for position, container in enumerate(found.shares["NVIDIA"])
        if container
    ]


def _with_empty_entries(text: str, containers: tuple[ContainerRequest, ...]) -> str:
    """Return *text* with the n-th entry at the n-th container that asks for devices."""
    entries = iter([part for part in text.split(";") if part])
    restored = "".join(f"{next(entries) if container.requests else ''};" for container in containers)
    assert len(decode_pod_devices(restored)) == len(containers) + 1
    return restored
