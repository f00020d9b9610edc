"""
How many Pods fit is what becomes of them when they are created, one after the other.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hami_scheduler import cli
from hami_scheduler.cli import FITS, FITS_NOT, UNKNOWN
from hami_scheduler.explain import planning
from hami_scheduler.explain.kube_filters import KubeNode, KubeView
from hami_scheduler.explain.planning import AdditionError, simulate
from hami_scheduler.explain.remedies import as_new
from hami_scheduler.explain.report import Report, finish, shape
from hami_scheduler.search.filter import filter_nodes
from hami_scheduler.search.placement import grant_of
from hami_scheduler.state.cluster import Cluster
from hami_scheduler.values.policies import Policies
from hamicommon.cli.explanation import page
from hamicommon.cli.manifests import ManifestError, pods_of
from hamicommon.model import Object
from hamicommon.pod.shape import COUNT_LIMIT

from ..support.builders import (
    QUOTA,
    VECTORS,
    a_cluster,
    a_container,
    a_device,
    a_grant,
    a_node,
    a_pod,
    a_request,
    a_share,
    only_devices,
)
from ..support.hypothesis_profiles import profile

MANY = COUNT_LIMIT


def planned(
    cluster: Cluster,
    *pods: Object,
    counts: tuple[int, ...] = (),
    add: tuple[str, ...] = (),
    kube: KubeView | None = None,
) -> tuple[Report, ...]:
    """Return the reports of *pods*, of each as many as *counts* says."""
    questions = as_new(pods, cluster.vendors, Policies())
    return finish(simulate(questions, cluster.view, kube or only_devices(cluster), counts, add))


def places(report: Report) -> dict[str, int]:
    """Return how many Pods each Node gets."""
    return {place.node: place.count for place in report.places}


def shown(report: Report, **options: Any) -> str:
    """Return *report* as a person sees it, without line ends."""
    return " ".join(page(shape(report), columns=100, is_coloured=False, **options).split())


def test_replicas_that_all_fit_have_their_nodes() -> None:
    """Binpack fills one Node before the next."""
    cluster = a_cluster(a_node("a", a_device("GPU-a")), a_node("b", a_device("GPU-b")))

    [report] = planned(cluster, a_pod("web", a_container(gpu=1, gpumem=4000)), counts=(5,))

    assert ("fits", 5, 5, {"a": 4, "b": 1}) == (report.verdict, report.count, report.placed, places(report))
    assert shown(report).startswith("all 5 Pods of default/web fit (nodes binpack, devices spread) the first one: ")
    assert "NODE PODS a 4 b 1 " in shown(report)


def test_what_stops_the_next_replica_is_told_with_what_would_help() -> None:
    """The report is about the Pod after those that fit."""
    cluster = a_cluster(a_node("a", a_device("GPU-a")))

    [report] = planned(cluster, a_pod("web", a_container(gpu=1, gpumem=6000)), counts=(50,))

    assert ("refused", 50, 2) == (report.verdict, report.count, report.placed)
    assert "0 of 1 nodes: 1 lacks 6000 MiB on any NVIDIA device (best has 4384)" == report.summary
    assert "with nvidia.com/gpumem 4384 instead of 6000 in container app" in [one.what for one in report.changes]
    assert shown(report).startswith(
        "2 of 50 Pods of default/web fit (nodes binpack, devices spread) the next one: 0 of 1 nodes: 1 lacks 6000 MiB"
    )


def test_no_simulated_pod_is_named_as_one_that_would_have_to_end() -> None:
    """Only what exists can end."""
    cluster = a_cluster(a_node("a", a_device("GPU-a")), a_node("b", a_device("GPU-b")))
    cluster.ledger.put(a_grant("u", "b", a_share("GPU-b", 12000)))

    [report] = planned(cluster, a_pod("web", a_container(gpu=1, gpumem=6000)), counts=(50,))

    assert ["when default/pod-u ends"] == [one.what for one in report.changes if one.kind == "pods"]


def test_objects_of_a_manifest_take_room_from_each_other() -> None:
    """A second Deployment gets what the first leaves, and the cluster stays as it is."""
    cluster = a_cluster(a_node("a", a_device("GPU-a")))
    version = cluster.view.version
    pods = (a_pod("one", a_container(gpu=1, gpumem=6000)), a_pod("two", a_container(gpu=1, gpumem=2000)))

    first, second = planned(cluster, *pods, counts=(2, 9))

    assert (2, 2) == (first.placed, second.placed)
    assert version == cluster.view.version


def test_quota_ends_what_devices_would_take() -> None:
    """It counts each simulated Pod."""
    cluster = a_cluster(a_node("a", a_device("GPU-a")))
    cluster.quotas.put(QUOTA)

    [report] = planned(cluster, a_pod("p", a_container(gpu=1, gpumem=2000)), counts=(MANY,))

    assert 2 == report.placed
    assert "quota (1000 MiB left)" in report.summary


def test_processors_end_what_devices_would_take() -> None:
    """On each Node by what its Pods leave."""
    cluster = a_cluster(a_node("a", a_device("GPU-a")), a_node("b", a_device("GPU-b")))
    kube = KubeView(
        {
            "a": KubeNode("a", allocatable={"cpu": 16000, "pods": 3}, requested={"cpu": 9000}, pods=1),
            "b": KubeNode("b", allocatable={"cpu": 4000, "pods": 110}),
        }
    )
    container = a_container(gpu=1, gpumem=1000)
    container["resources"]["requests"] = {"cpu": "3"}

    [report] = planned(cluster, a_pod("p", container), counts=(MANY,), kube=kube)

    assert {"a": 2, "b": 1} == places(report)
    assert "kube-scheduler rules out 2: 1 lacks 3 cpu (best has 1), 1 has no place for another Pod" in report.summary


def test_search_is_bounded_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred thousand Pods are not placed for one question."""
    monkeypatch.setattr(planning, "PLACED_LIMIT", 7)
    cluster = a_cluster(a_node("a", a_device("GPU-a", count=100, memory_mib=10**6)))

    [report] = planned(cluster, a_pod("p", a_container(gpu=1, gpumem=1)), counts=(MANY,))

    assert ("unfinished", 7) == (report.verdict, report.placed)
    assert "7 Pods fit, and the search ends there: it places at most 7 Pods for one question" == report.summary
    assert shown(report, asks_how_many=True).startswith("at least 7 more Pods like default/p fit")


def test_added_nodes_take_pods_like_those_of_their_model() -> None:
    """Of what is not said, a device is as those of the same model, else of the vendor, in the cluster."""
    cluster = a_cluster(a_node("a", a_device("GPU-a", count=2)))
    pod = a_pod("p", a_container(gpu=1, gpumem=4000))

    [now] = planned(cluster, pod, counts=(MANY,))
    [later] = planned(cluster, pod, counts=(MANY,), add=("2x8 NVIDIA-L40S:49140",))
    [other] = planned(cluster, pod, counts=(MANY,), add=("1x1 NVIDIA A10:16384", "1x2 NVIDIA A10:3999"))

    assert (2, 2 + 2 * 8 * 2, 2 + 2) == (now.placed, later.placed, other.placed)
    assert {"a": 2, "added/1": 16, "added/2": 16} == places(later)
    assert later.added == (
        "2 Nodes with 8 NVIDIA-L40S of 49140 MiB each, 2 replicas, 100 % compute, mode hami-core; "
        "only devices are judged there",
    )
    assert "added: 2 Nodes with 8 NVIDIA-L40S" in shown(later, asks_how_many=True)


def test_added_nodes_of_an_empty_cluster_have_the_usual_replicas() -> None:
    """Before the first Node is bought."""
    [report] = planned(
        a_cluster(), a_pod("p", a_container(gpu=1, gpumem=1)), counts=(MANY,), add=("1x1 NVIDIA-T4:16384",)
    )

    assert 10 == report.placed


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("8 L40S", "must be NODESxDEVICES MODEL:MIB, such as '2x8 NVIDIA-L40S:49140'", id="form"),
        pytest.param("0x8 NVIDIA-L40S:49140", "the number of Nodes must be between 1 and 1000", id="no Node"),
        pytest.param(
            "999999999x8 NVIDIA-L40S:49140", "the number of Nodes must be between 1 and 1000", id="many Nodes"
        ),
        pytest.param("1x65 NVIDIA-L40S:49140", "the number of devices must be between 1 and 64", id="many devices"),
        pytest.param("1x8 NVIDIA-L40S:999999999999999999", "the number of MiB must be between", id="much memory"),
        pytest.param("\ud800x8 " * 20, "must be NODESxDEVICES", id="no text"),
    ],
)
def test_nodes_that_cannot_be_imagined_are_one_sentence(text: str, words: str) -> None:
    """With what would be right."""
    with pytest.raises(AdditionError) as caught:
        planned(a_cluster(), a_pod(), add=(text,))

    assert words in str(caught.value)


def test_nodes_for_a_pod_without_devices_cannot_be_imagined() -> None:
    """The vendor is unknown."""
    with pytest.raises(AdditionError, match="'L40S' is no model of a vendor that the Pod asks: it asks for no device"):
        planned(a_cluster(), a_pod("p", a_container()), add=("1x8 L40S:49140",))


# Against brute force


@profile(60)
@given(
    st.lists(
        st.lists(st.tuples(st.integers(1, 4), st.integers(0, 12), st.integers(0, 100)), min_size=1, max_size=3),
        min_size=1,
        max_size=3,
    ),
    st.integers(1, 8),
    st.sampled_from((0, 10, 30, 50)),
    st.sampled_from(("binpack", "spread")),
)
@pytest.mark.property
def test_pods_with_one_device_fit_as_often_as_arithmetic_says(
    nodes: list[list[tuple[int, int, int]]], gib: int, cores: int, policy: str
) -> None:
    """Each device takes as many as the scarcest of replicas, memory and compute; nothing is left over."""
    cluster = a_cluster(
        *(
            a_node(
                f"n{n}",
                *(a_device(f"GPU-{n}-{d}", count=count) for d, (count, _, _) in enumerate(devices)),
                replicas=99,
            )
            for n, devices in enumerate(nodes)
        )
    )
    expected: dict[str, int] = {}
    for n, devices in enumerate(nodes):
        for d, (replicas, used_gib, used_cores) in enumerate(devices):
            count = replicas - bool(used_gib or used_cores)
            if used_gib or used_cores:
                share = a_share(f"GPU-{n}-{d}", used_gib * 1024, used_cores)
                cluster.ledger.put(a_grant(f"u{n}-{d}", f"n{n}", share))
            by_cores = (100 - used_cores) // cores if cores else count * (used_cores < 100)
            expected[f"n{n}"] = expected.get(f"n{n}", 0) + max(0, min(count, (16 - used_gib) // gib, by_cores))
    pod = a_pod(
        "p",
        a_container(gpu=1, gpumem=gib * 1024, gpucores=cores),
        annotations={"hami.io/node-scheduler-policy": policy},
    )

    [report] = planned(cluster, pod, counts=(MANY,))

    assert {name: count for name, count in expected.items() if count} == places(report)


@profile(40)
@given(
    st.lists(st.lists(st.integers(0, 12000), min_size=1, max_size=4), min_size=1, max_size=3),
    st.lists(st.tuples(st.integers(1, 2), st.integers(500, 9000)), min_size=1, max_size=2),
    st.sampled_from((1, 3, MANY)),
    st.booleans(),
)
@pytest.mark.property
def test_pods_are_placed_as_if_each_were_created_and_filtered(
    nodes: list[list[int]], asks: list[tuple[int, int]], count: int, has_quota: bool
) -> None:
    """By the search that remembers nothing, with each grant counted before the next question."""

    def fresh() -> Cluster:
        cluster = a_cluster(
            *(
                a_node(f"n{n}", *(a_device(f"GPU-{n}-{d}") for d in range(len(used))), replicas=99)
                for n, used in enumerate(nodes)
            )
        )
        for n, used in enumerate(nodes):
            for d, mib in enumerate(used):
                cluster.ledger.put(a_grant(f"u{n}-{d}", f"n{n}", a_share(f"GPU-{n}-{d}", mib), namespace="other"))
        if has_quota:
            cluster.quotas.put({**QUOTA, "spec": {"hard": {"limits.nvidia.com/gpumem": "20000"}}})
        return cluster

    containers = [a_container(f"c{n}", gpu=gpu, gpumem=mib) for n, (gpu, mib) in enumerate(asks)]
    created, expected = fresh(), dict[str, int]()
    for number in range(count):
        request = a_request(a_pod("p", *containers, uid=f"created-{number}"))
        found = filter_nodes(request, [f"n{n}" for n in range(len(nodes))], created.view)
        if found.node is None or found.placement is None:
            break
        grant = grant_of(request, created.view.inventory(found.node), found.placement, 0)
        created.reserve(grant, 0.0)
        expected[found.node] = expected.get(found.node, 0) + 1

    [report] = planned(fresh(), a_pod("p", *containers), counts=(count,))

    if count > 1:
        assert expected == places(report)
        assert (sum(expected.values()), "fits" if sum(expected.values()) == count else "refused") == (
            report.placed,
            report.verdict,
        )
    else:
        assert bool(expected) == (report.verdict == "fits")


# Manifests and commands


def a_controller(kind: str, spec: Object, name: str = "web") -> Object:
    """Return a controller of Pods with 4000 MiB."""
    template = {"spec": {"containers": [a_container(gpu=1, gpumem=4000)]}}
    return {"kind": kind, "metadata": {"name": name}, "spec": {**spec, "template": template}}


@pytest.mark.parametrize(
    ("document", "counts"),
    [
        pytest.param(a_controller("Deployment", {"replicas": 50}), [50], id="Deployment"),
        pytest.param(a_controller("Deployment", {}), [1], id="default"),
        pytest.param(a_controller("StatefulSet", {"replicas": 3}), [3], id="StatefulSet"),
        pytest.param(a_controller("Deployment", {"replicas": 0}), [], id="none"),
        pytest.param(a_controller("Job", {"parallelism": 8, "completions": 5}), [5], id="Job"),
        pytest.param(a_controller("Job", {"completions": 5}), [1], id="Job in turn"),
        pytest.param(
            {
                "kind": "CronJob",
                "metadata": {"name": "c"},
                "spec": {"jobTemplate": a_controller("Job", {"parallelism": 2})},
            },
            [2],
            id="CronJob",
        ),
        pytest.param(
            {"kind": "List", "items": [a_controller("Deployment", {"replicas": 2}), a_pod() | {"kind": "Pod"}]},
            [2, 1],
            id="List",
        ),
        pytest.param(a_controller("DaemonSet", {}), [1], id="DaemonSet"),
    ],
)
def test_controllers_count_as_many_pods_as_they_create(document: Object, counts: list[int]) -> None:
    """At one time."""
    assert counts == [pod.get("count", 1) for pod in pods_of([document], "f")]


@pytest.mark.parametrize("replicas", [10**9, -1, "many", True, 1.5])
def test_number_of_replicas_that_cannot_be_is_one_sentence(replicas: Any) -> None:
    """With the object, the field and what would be right."""
    with pytest.raises(
        ManifestError, match=r"^f: Deployment web: replicas is .{1,40}; it must be between 0 and 100000$"
    ):
        pods_of([a_controller("Deployment", {"replicas": replicas})], "f")


@pytest.fixture
def snapshot(tmp_path: Path) -> str:
    """A file with one Node of one device, and the device config."""
    config = (VECTORS / "device-config-default.yaml").read_text()
    settings_map = {"kind": "ConfigMap", "metadata": {"name": "x"}, "data": {"device-config.yaml": config}}
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps({"kind": "List", "items": [a_node("n1", a_device()) | {"kind": "Node"}, settings_map]}))
    return str(path)


def test_fits_says_how_many_more_now_and_after_buying(
    snapshot: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The replicas of the manifest do not matter: it is asked about Pods like these."""
    manifest = tmp_path / "web.json"
    manifest.write_text(json.dumps(a_controller("Deployment", {"replicas": 1})))
    arguments = ["fits", "-f", str(manifest), "--snapshot", snapshot]

    assert FITS == cli.main(arguments)
    assert capsys.readouterr().out.startswith(
        "4 more Pods like default/web fit (nodes binpack, devices spread)\nthe next one: 0 of 1 nodes: 1 lacks 4000 MiB"
    )
    assert FITS == cli.main([*arguments, "--add", "1x2 NVIDIA-L40S:49140", "-o", "json"])
    report = json.loads(capsys.readouterr().out)
    assert (24, [{"node": "added/1", "count": 20}, {"node": "n1", "count": 4}]) == (report["placed"], report["places"])
    assert UNKNOWN == cli.main([*arguments, "--add", "one"])
    assert "hami-scheduler fits: 'one' must be NODESxDEVICES MODEL:MIB" in capsys.readouterr().err
    assert UNKNOWN == cli.main([*arguments, "-f", str(manifest)])
    assert "creates 2 kinds of Pods; fits counts one" in capsys.readouterr().err


def test_fits_of_a_pod_without_room_is_bad_news(
    snapshot: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 1, and why."""
    manifest = tmp_path / "large.json"
    manifest.write_text(json.dumps(a_pod("large", a_container(gpu=1, gpumem=99999)) | {"kind": "Pod"}))

    assert FITS_NOT == cli.main(["fits", "-f", str(manifest), "--snapshot", snapshot])

    assert capsys.readouterr().out.startswith(
        "0 more Pods like default/large fit (nodes binpack, devices spread)\n0 of 1 nodes: "
    )
