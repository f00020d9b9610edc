"""What people ask: why a Pod is where it is, or nowhere, and what would change that."""

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hami_scheduler.explain.offline import Saved, SnapshotError, pruned
from hami_scheduler.explain.planning import simulate
from hami_scheduler.explain.remedies import Question, as_new
from hami_scheduler.explain.report import Report, explain, finish, shape
from hami_scheduler.search.filter import filter_nodes
from hami_scheduler.state.cluster import Cluster
from hami_scheduler.values.policies import Policies
from hamicommon.cli.explanation import page, table
from hamicommon.cli.manifests import ManifestError, pods_of
from hamicommon.model import Object

from ..support.builders import (
    QUOTA,
    a_cluster,
    a_container,
    a_device,
    a_grant,
    a_node,
    a_pod,
    a_request,
    a_share,
    only_devices,
    vendors,
)
from ..support.hypothesis_profiles import profile

A100 = a_device("GPU-a", memory_mib=40000, type="NVIDIA A100")


def asked(cluster: Cluster, pod: Object) -> Report:
    """Return the report of *pod*, for which kube-scheduler rules out no Node."""
    return finish(explain(Question(pod, cluster.vendors, Policies()), cluster.view, only_devices(cluster)))


def whats(report: Report) -> list[str]:
    """Return what would help, in words."""
    return [change.what for change in report.changes]


def test_report_says_who_limits_memory_on_the_node() -> None:
    """Of the Node that the Pod would get, and of the Node that it has."""
    node = a_node("n1", a_device("GPU-a"))
    node["metadata"]["annotations"]["hami.io/node-enforcement"] = "driver: the driver limits memory by cgroup"
    cluster, pod = a_cluster(node), a_pod("p", a_container(gpu=1, gpumem=1000))
    expected = ("node n1 limits memory by driver: the driver limits memory by cgroup",)

    assert expected == asked(cluster, pod).notes
    cluster.ledger.put(a_grant(pod["metadata"]["uid"], "n1", a_share("GPU-a", 1000)))
    assert expected == asked(cluster, pod).notes


def test_report_of_a_pod_that_fits_names_node_and_devices_and_why_not_the_others() -> None:
    """The chosen Node first, then those that fit, then those that do not."""
    full = a_node("b-small", a_device("GPU-s", memory_mib=500))
    cluster = a_cluster(a_node("c-idle", a_device("GPU-c")), a_node("a-busy", A100), full)
    cluster.ledger.put(a_grant("u", "a-busy", a_share("GPU-a", 1000)))

    report = asked(cluster, a_pod("p", a_container("train", gpu=1, gpumem=3000, gpucores=25)))

    assert ("fits", "a-busy") == (report.verdict, report.node)
    assert "nodes binpack, devices spread" == report.policy
    assert [("train", "GPU-a", "NVIDIA A100", 3000, 25)] == [
        (given.container, given.device, given.model, given.memory_mib, given.core_percent) for given in report.gets
    ]
    assert [
        ("a-busy", True, "chosen"),
        ("c-idle", True, "fits; binpack prefers a node that is fuller"),
        ("b-small", False, "1 of 1 NVIDIA device lacks 3000 MiB (best has 500)"),
    ] == [(node.name, node.fits, node.why) for node in report.nodes]
    assert () == report.changes


def test_losers_are_told_what_the_policy_prefers() -> None:
    """Spread wants the emptiest, and of equal ones the first by name is taken."""
    cluster = a_cluster(*(a_node(name, a_device(f"GPU-{name}")) for name in ("a", "b", "c")))
    cluster.ledger.put(a_grant("u", "c", a_share("GPU-c", 1000)))

    report = asked(cluster, a_pod(annotations={"hami.io/node-scheduler-policy": "spread"}))

    assert ["chosen", "fits as well; of equal nodes the first by name is taken"] == [
        node.why for node in report.nodes[:2]
    ]
    assert "fits; spread prefers a node that is emptier" == report.nodes[2].why


@pytest.mark.parametrize("amount", ["12000", "12k"])
def test_change_names_the_amount_as_its_author_wrote_it(amount: str) -> None:
    """The API server stores 12000 as 12k."""
    cluster = a_cluster(a_node("n1", a_device("GPU-t", memory_mib=8000)))
    container = a_container(gpu=1)
    container["resources"]["limits"]["nvidia.com/gpumem"] = amount

    report = asked(cluster, a_pod("p", container))

    assert ["with nvidia.com/gpumem 8000 instead of 12000 in container app"] == whats(report)


def test_report_of_a_refused_pod_names_each_single_change_that_helps() -> None:
    """The largest amount that fits, the annotation in the way, and the Pods that would have to end."""
    cluster = a_cluster(a_node("n1", A100), a_node("t1", a_device("GPU-t", type="Tesla T4", memory_mib=16000)))
    cluster.ledger.put(a_grant("large", "n1", a_share("GPU-a", 30000)))
    cluster.ledger.put(a_grant("small", "n1", a_share("GPU-a", 2000)))
    pod = a_pod("p", a_container(gpu=1, gpumem=12000), annotations={"nvidia.com/use-gputype": "A100"})

    report = asked(cluster, pod)

    assert "refused" == report.verdict
    assert (
        "0 of 2 nodes: 1 lacks 12000 MiB on any NVIDIA device (best has 8000), "
        "1 has no NVIDIA device of a type the Pod accepts (A100)"
    ) == report.summary
    assert [
        "with nvidia.com/gpumem 8000 instead of 12000 in container app",
        "without annotation nvidia.com/use-gputype: A100",
        "when default/pod-small, default/pod-large end",
    ][:2] == whats(report)[:2]
    assert ["when default/pod-large ends"] == whats(report)[2:]
    assert ["n1", "t1", "n1"] == [change.node for change in report.changes]


def test_whole_device_is_offered_a_part_where_no_device_is_idle() -> None:
    """Memory alone does not help where the webhook asked for all compute: both are lowered together."""
    cluster = a_cluster(a_node("n1", A100))
    cluster.ledger.put(a_grant("u", "n1", a_share("GPU-a", 10000, 60)))

    report = asked(cluster, a_pod("p", a_container(gpu=1, gpucores=100)))

    assert (
        "with nvidia.com/gpumem 30000 instead of a whole device's and nvidia.com/gpucores 40 instead of 100 "
        "in container app"
    ) == whats(report)[0]


def test_least_pair_is_named_where_no_change_alone_helps() -> None:
    """Three devices of 50000 MiB on Nodes of two devices of 40000 MiB."""
    cluster = a_cluster(
        *(
            a_node(name, a_device(f"{name}-a", memory_mib=40000), a_device(f"{name}-b", memory_mib=40000))
            for name in "ab"
        )
    )

    report = asked(cluster, a_pod("p", a_container("train", gpu=3, gpumem=50000)))

    assert [
        "with nvidia.com/gpu 2 instead of 3 and nvidia.com/gpumem 40000 instead of 50000 in container train"
    ] == whats(report)


def test_pair_that_leaves_more_is_chosen() -> None:
    """One device of 75000 MiB is a larger part of three than two of 20000 MiB are."""
    cluster = a_cluster(
        a_node("large", a_device("GPU-l", memory_mib=75000)),
        a_node("small", a_device("GPU-a", memory_mib=20000), a_device("GPU-b", memory_mib=20000)),
    )

    report = asked(cluster, a_pod("p", a_container("train", gpu=3, gpumem=80000)))

    assert [
        "with nvidia.com/gpu 1 instead of 3 and nvidia.com/gpumem 75000 instead of 80000 in container train"
    ] == whats(report)


def test_pair_may_be_of_two_containers() -> None:
    """Each asks for more than any device has."""
    cluster = a_cluster(a_node("n1", a_device("GPU-a", memory_mib=40000), a_device("GPU-b", memory_mib=40000)))

    report = asked(cluster, a_pod("p", a_container("a", gpu=1, gpumem=50000), a_container("b", gpu=1, gpumem=60000)))

    assert [
        "with nvidia.com/gpumem 40000 instead of 50000 in container a and nvidia.com/gpumem 40000 instead of 60000 "
        "in container b"
    ] == whats(report)


def test_fewer_devices_quota_and_cordon_are_found() -> None:
    """Whatever stands in the way alone."""
    two = a_pod("p", a_container(gpu=3, gpumem=2000))
    cluster = a_cluster(a_node("n1", a_device("GPU-a"), a_device("GPU-b")))
    assert "with nvidia.com/gpu 2 instead of 3 in container app" in whats(asked(cluster, two))

    cluster = a_cluster(a_node("n1", a_device("GPU-a"), a_device("GPU-b")))
    cluster.quotas.put(QUOTA)
    wants = a_pod("p", a_container(gpu=2, gpumem=4000))
    assert "with 3000 MiB of nvidia.com/gpumem more in the quota of namespace default" in whats(asked(cluster, wants))

    cordoned = a_cluster(a_node("n1", a_device("GPU-a"), hami_io__device_cordon="GPU-a"))
    assert ["with GPU-a on node n1 uncordoned"] == whats(asked(cordoned, a_pod()))


def test_fewest_pods_are_named_and_the_largest_kept() -> None:
    """On the Node where one must end, not on the one where two must."""
    cluster = a_cluster(a_node("n1", a_device("GPU-1")), a_node("n2", a_device("GPU-2")))
    for uid, node, uuid, memory_mib in (
        *(("a", "n1", "GPU-1", 8000), ("b", "n1", "GPU-1", 8000)),
        *(("c", "n2", "GPU-2", 9000), ("d", "n2", "GPU-2", 4000), ("e", "n2", "GPU-2", 3000)),
    ):
        cluster.ledger.put(a_grant(uid, node, a_share(uuid, memory_mib)))

    [pods] = [
        change
        for change in asked(cluster, a_pod("p", a_container(gpu=1, gpumem=7000))).changes
        if change.kind == "pods"
    ]

    assert ("when default/pod-a ends", "n1") == (pods.what, pods.node)


def test_pod_whose_end_would_free_quota_is_named() -> None:
    """There is room on the device; what the namespace may take is held by another Pod of it."""
    cluster = a_cluster(a_node("n1", a_device("GPU-a")))
    cluster.quotas.put(QUOTA)
    for name, namespace in (("own", "default"), ("foreign", "team")):
        cluster.put_pod(a_pod(name, namespace=namespace, node="n1", allocated="GPU-a,NVIDIA,4000,0:;"))

    assert "when default/own ends" in whats(asked(cluster, a_pod("p", a_container(gpu=1, gpumem=4000))))


def test_no_ended_pod_helps_a_pod_too_large_for_any_node() -> None:
    """Only what helps is told."""
    cluster = a_cluster(a_node("n1", a_device("GPU-a")))
    cluster.ledger.put(a_grant("u", "n1"))

    assert {"amount"} == {
        change.kind for change in asked(cluster, a_pod("p", a_container(gpu=1, gpumem=99999))).changes
    }
    assert () == asked(a_cluster(), a_pod()).changes


def test_report_of_bound_and_reserved_pods_shows_what_they_hold() -> None:
    """A device that went keeps its name; a Pod with a Node that is not bound yet is reserved."""
    cluster = a_cluster(a_node("n1", a_device("GPU-a", index=3)))
    bound = a_pod("p", node="n1", allocated="GPU-a,NVIDIA,1000,0:GPU-gone,NVIDIA,1,0:;", phase="Running")
    cluster.put_pod(bound)
    report = asked(cluster, bound)
    assert ("bound", "n1", "default/p is bound to node n1") == (report.verdict, report.node, report.summary)
    assert [("GPU-a", 3), ("GPU-gone", None)] == [(given.device, given.index) for given in report.gets]

    cluster.reserve(a_grant("uid-q", "n1"), 0.0)
    waiting = asked(cluster, a_pod("q"))
    assert ("reserved", "n1") == (waiting.verdict, waiting.node)
    assert "reserved for default/q" in waiting.summary


def test_report_of_a_pod_that_asks_for_nothing_has_hints() -> None:
    """Memory without a count is no request until the webhook completes it."""
    report = asked(a_cluster(), a_pod("p", a_container(gpumem=3000)))

    assert "nothing-asked" == report.verdict
    assert "nvidia.com/gpu must be above 0" in report.notes[0]
    assert () == asked(a_cluster(), a_pod("p", a_container())).notes


BYTES = "must be an integer between 0 and 2147483647; the unit is 1 MiB, so for {} bytes write {}"


@pytest.mark.parametrize(
    ("limits", "text"),
    [
        pytest.param({"gpu": 1, "gpumem": "16Gi"}, BYTES.format("16Gi", 16384), id="bytes"),
        pytest.param({"gpu": 1, "gpumem": "3G"}, BYTES.format("3G", 2862), id="decimal bytes"),
        pytest.param({"gpu": 1, "gpumem": "1500m"}, "2147483647; the unit is 1 MiB", id="part of a MiB"),
        pytest.param(
            {"gpu": "500m"}, "nvidia.com/gpu value 500m must be an integer between 0 and 2147483647", id="half"
        ),
        pytest.param({"gpu": 0, "gpumem": 100}, "nvidia.com/gpu must be above 0", id="no device"),
        pytest.param({"gpu": 1, "gpumem": "1Gi"}, "the unit is 1 MiB, so for 1Gi bytes write 1024", id="a petabyte"),
    ],
)
def test_amount_in_a_wrong_unit_has_a_hint_what_to_write(limits: Object, text: str) -> None:
    """In the words of the webhook; that 16Gi is no whole number would be wrong."""
    [note] = asked(a_cluster(a_node("n1", a_device())), a_pod("p", a_container(**limits))).notes

    assert text in note
    assert "whole" not in note


def test_amount_that_is_large_and_meant_so_is_no_riddle() -> None:
    """An amount written in megabytes gets only the hints that apply."""
    assert () == asked(a_cluster(a_node("n1", a_device())), a_pod("p", a_container(gpu=1, gpumem=99999))).notes


@pytest.mark.parametrize("node", ["", "n1"])
def test_misspelt_policy_has_a_hint_what_it_counts_as(node: str) -> None:
    """As HAMi does, it is taken for another, also for a Pod that is bound, whose owner wonders why it is there."""
    keys = ("hami.io/node-scheduler-policy", "hami.io/gpu-scheduler-policy")
    cluster = a_cluster(a_node("n1", a_device()))
    pod = a_pod("p", annotations=dict(zip(keys, ("spred", "bin-pack"), strict=True)), node=node)
    if node:
        cluster.ledger.put(a_grant("uid-p", "n1"))
    report = asked(cluster, pod)

    assert (
        "hami.io/node-scheduler-policy: 'spred' is no Node policy; write binpack or spread; "
        "the annotation counts as binpack",
        "hami.io/gpu-scheduler-policy: 'bin-pack' is no device policy; write binpack, spread, topology-aware, mutex, "
        "numa or a comma list of them; the annotation counts as spread",
    ) == report.notes
    assert ("bound" if node else "fits") == report.verdict

    [note] = asked(cluster, a_pod("q", annotations={keys[1]: "mutex,binpack,nmua"})).notes
    assert note.endswith("the annotation counts as binpack, mutex")
    assert () == asked(cluster, a_pod("q", annotations=dict(zip(keys, ("spread", "mutex, numa"), strict=True)))).notes


def test_simulated_pods_take_room_from_each_other_and_from_nobody_else() -> None:
    """The third does not fit beside the first two; the cluster is as it was."""
    cluster = a_cluster(a_node("n1", a_device("GPU-a")))
    cluster.quotas.put({**QUOTA, "spec": {"hard": {"limits.nvidia.com/gpumem": "99999"}}})
    version = cluster.view.version
    questions = as_new(
        [a_pod("same", a_container(gpu=1, gpumem=8000), uid="u", node="n9")] * 3, cluster.vendors, Policies()
    )

    reports = finish(simulate(questions, cluster.view, only_devices(cluster)))

    assert ["fits", "fits", "refused"] == [report.verdict for report in reports]
    assert "best has 384" in reports[2].summary
    assert version == cluster.view.version


@profile(25)
@given(st.integers(1, 3), st.integers(1, 30000), st.lists(st.integers(0, 16000), min_size=1, max_size=4))
@pytest.mark.property
def test_every_change_that_is_named_helps(count: int, memory_mib: int, taken: list[int]) -> None:
    """An amount that is proposed fits, and one more does not."""
    devices = [a_device(f"GPU-{number}") for number in range(len(taken))]
    cluster = a_cluster(a_node("n1", *devices))
    for number, amount in enumerate(taken):
        cluster.ledger.put(a_grant(f"u{number}", "n1", a_share(f"GPU-{number}", amount)))

    def fits(gpu: int, gpumem: int) -> bool:
        request = a_request(a_pod("p", a_container(gpu=gpu, gpumem=gpumem)))
        return filter_nodes(request, ["n1"], cluster.view).node is not None

    report = asked(cluster, a_pod("p", a_container(gpu=count, gpumem=memory_mib)))

    assert (report.verdict == "fits") == fits(count, memory_mib)
    for change in report.changes:
        if change.kind == "amount":
            lowered = {name: int(amount) for name, amount in re.findall(r"nvidia.com/(\w+) (\d+) instead", change.what)}
            amounts = {"gpu": count, "gpumem": memory_mib, **lowered}
            assert lowered
            assert fits(**amounts)
            assert not any(fits(**{**amounts, name: amount + 1}) for name, amount in lowered.items())


# The screen


def shown(report: Report, **options: Any) -> str:
    """Return *report* as a person without a terminal sees it."""
    return page(shape(report), **{"columns": 100, "is_coloured": False, **options})


def test_page_has_what_is_asked_every_node_and_what_helps() -> None:
    """As it is printed."""
    cluster = a_cluster(a_node("n1", a_device()), a_node("node-two", a_device("GPU-b", healthy=False)))
    cluster.ledger.put(a_grant("u", "n1", a_share("GPU-a", 10000)))

    assert shown(asked(cluster, a_pod("p", a_container(gpu=1, gpumem=8000)))) == (
        "default/p fits nowhere (nodes binpack, devices spread)\n"
        "0 of 2 nodes: 1 lacks 8000 MiB on any NVIDIA device (best has 6384), 1 has no healthy NVIDIA device\n"
        "\n"
        "CONTAINER  ASKS\n"
        "app        1 NVIDIA device with 8000 MiB\n"
        "\n"
        "NVIDIA        DEVICES  MEMORY OF ONE  COMPUTE OF ONE\n"
        "asked by app  1        8000 MiB       -\n"
        "offered       2        16384 MiB      100 %\n"
        "free          1        6384 MiB       100 %\n"
        "\n"
        "NODE      ANSWER\n"
        "n1        1 of 1 NVIDIA device lacks 8000 MiB (best has 6384)\n"
        "node-two  1 of 1 NVIDIA device has failed\n"
        "\n"
        "IT WOULD FIT ON  IF CHANGED\n"
        "n1               with nvidia.com/gpumem 6384 instead of 8000 in container app\n"
        "n1               when default/pod-u ends\n"
    )


def test_page_of_many_nodes_groups_equal_answers() -> None:
    """5000 Nodes are a handful of rows, or 5000 where that is wanted; numbers do not part a group."""
    nodes = [a_node(f"n{i:04}", a_device(f"GPU-{i}", memory_mib=1000 + i)) for i in range(60)]
    report = asked(a_cluster(*nodes, a_node("big", A100)), a_pod("p", a_container(gpu=1, gpumem=8000)))

    text = shown(report)
    assert "60     n0000    -      1 of 1 NVIDIA device lacks 8000 MiB (best has 1000)" in text
    assert len(text.splitlines()) < 15
    assert 61 < len(shown(report, is_whole=True).splitlines())


def test_page_is_no_wider_than_the_terminal_and_coloured_only_where_allowed() -> None:
    """Long names lose their middle, long sentences wrap under themselves."""
    name = "n" + "x" * 200 + "-7"
    cluster = a_cluster(a_node(name, a_device(memory_mib=100)))
    report = asked(cluster, a_pod("p" * 30, a_container("c", gpu=1, gpumem=8000)))

    text = shown(report, columns=80)
    assert max(map(len, text.splitlines())) <= 80
    assert "…" in text
    assert "x-7" in text
    assert "\033[" not in text
    assert "\033[" in shown(report, is_coloured=True)


def test_table_wraps_its_last_column_only() -> None:
    """Names stay whole in their column, what follows goes on below its own beginning."""
    assert "A   TEXT\nab  one two three four five\n    six" == table(
        ("A", "TEXT"), [("ab", "one two three four five six")], columns=24
    )


# Snapshots and manifests


def test_snapshot_decides_as_the_cluster_does() -> None:
    """What is pruned is what no decision reads."""
    cluster_of_all = a_cluster(a_node("n1", a_device()))
    bound = a_pod("b", node="n1", allocated="GPU-a,NVIDIA,9000,0:;", phase="Running")
    cluster_of_all.put_pod(bound)
    saved = Saved()
    for found in ({**a_node("n1", a_device()), "kind": "Node"}, {**bound, "kind": "Pod"}, QUOTA):
        saved.add({"kind": "List", "items": [pruned(found)]}, "file")
    cluster = saved.cluster(vendors())

    cluster_of_all.quotas.put(QUOTA)
    pod = a_pod("p", a_container(gpu=1, gpumem=9000))
    assert shape(asked(cluster_of_all, pod)) == shape(asked(cluster, pod))


def test_pruned_objects_tell_no_secrets() -> None:
    """Environment, command, image and volumes stay behind, in the copies kubectl keeps, too."""
    pod = a_pod("p", {**a_container(gpu=1), "env": [{"name": "TOKEN", "value": "secret"}], "command": ["secret"]})
    pod["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"] = "secret"
    pod["spec"]["volumes"] = [{"name": "secret"}]
    pod["status"]["initContainerStatuses"] = [{"name": "i"}]

    kept = pruned({**pod, "kind": "Pod"})

    assert "secret" not in json.dumps(kept)
    assert {"nvidia.com/gpu": "1"} == kept["spec"]["containers"][0]["resources"]["limits"]
    assert [{"name": "i"}] == kept["status"]["initContainerStatuses"]


@pytest.mark.parametrize(
    ("document", "text"),
    [
        pytest.param([1], "f: holds no Kubernetes object", id="no object"),
        pytest.param({"kind": "List", "items": [{}]}, "f, item 0: holds no Kubernetes object", id="nothing"),
        pytest.param(
            {"kind": "PodList", "items": [{"metadata": {}}]}, "f, item 0: Pod without metadata.name", id="nameless"
        ),
    ],
)
def test_file_that_is_no_snapshot_says_what_is_wrong(document: Any, text: str) -> None:
    """With the file and the place."""
    with pytest.raises(SnapshotError) as caught:
        Saved().add(document, "f")

    assert text in str(caught.value)


def test_pods_of_a_manifest_are_those_it_would_make() -> None:
    """A Pod, what a controller makes, a CronJob's, items of a List; other kinds and empty documents are passed over."""
    template = {"metadata": {"annotations": {"a": "b"}}, "spec": {"containers": [a_container(gpu=1)]}}
    documents: list[Any] = [
        a_pod("one") | {"kind": "Pod"},
        None,
        {"kind": "Service", "metadata": {"name": "s"}, "spec": {}},
        {"kind": "Deployment", "metadata": {"name": "two", "namespace": "ns"}, "spec": {"template": template}},
        {
            "kind": "List",
            "items": [
                {
                    "kind": "CronJob",
                    "metadata": {"name": "three"},
                    "spec": {"jobTemplate": {"spec": {"template": template}}},
                }
            ],
        },
    ]

    pods = pods_of(documents, "f")

    assert ["one", "two", "three"] == [pod["metadata"]["name"] for pod in pods]
    assert ({"a": "b"}, "ns") == (pods[1]["metadata"]["annotations"], pods[1]["metadata"]["namespace"])
    for wrong in ([3], [{"kind": "Pod", "spec": {}}]):
        with pytest.raises(ManifestError, match="f: "):
            pods_of(wrong, "f")


def test_pod_with_a_claim_of_its_own_is_told_where_it_cannot_run() -> None:
    """Beside a resource, it may wait forever for a Node with a device plugin. Alone, kube-scheduler places it."""
    cluster = a_cluster(a_node("n1", a_device()))
    beside, alone = a_pod("p", a_container(gpu=1)), a_pod("q", a_container())
    for pod in (beside, alone):
        pod["spec"]["resourceClaims"] = [{"name": "net", "resourceClaimName": "c"}]

    [note] = asked(cluster, beside).notes
    assert "it has a ResourceClaim beside nvidia.com/gpu: as long as a DeviceClass maps that name" in note
    [note] = asked(cluster, alone).notes
    assert "kube-scheduler allocates its ResourceClaims; `kubectl describe` of the Pod and of the claims" in note
    assert () == asked(cluster, a_pod("r", a_container(gpu=1))).notes
