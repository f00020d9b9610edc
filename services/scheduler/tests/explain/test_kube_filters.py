"""
What kube-scheduler rules out is never told as if it fitted, and what nobody here judges is named.
"""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hami_scheduler.explain.kube_filters import JUDGED, KubeMisfit, KubeNodes, KubePod, KubeView, not_judged
from hami_scheduler.explain.offline import Saved, listed, pruned
from hami_scheduler.explain.planning import simulate
from hami_scheduler.explain.remedies import Question, as_new
from hami_scheduler.explain.report import Report, explain, finish, shape
from hami_scheduler.values.policies import Policies
from hamicommon.cli.explanation import is_well, page
from hamicommon.model import Object
from minicluster.kubescheduler import fit

from ..support.builders import a_cluster, a_container, a_device, a_node, a_pod, vendors
from ..support.hypothesis_profiles import profile

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
GPU_TAINT = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}


def a_whole_node(name: str = "n1", *, labels: dict[str, str] | None = None, **spec: Any) -> Object:
    """Return a Node with one device, 16 processors, 64 GiB and place for 110 Pods."""
    node = a_node(name, a_device(f"GPU-{name}"))
    node["kind"] = "Node"
    node["metadata"]["labels"] = labels or {}
    node["spec"] = spec
    node["status"]["allocatable"] |= {"cpu": "16", "memory": "64Gi", "pods": "110"}
    return node


def asking(name: str = "p", **spec: Any) -> Object:
    """Return a Pod that every device takes, with *spec*; `cpu` is what its container requests."""
    container = a_container(gpu=1, gpumem=1000)
    container["resources"]["requests"] = {"cpu": spec.pop("cpu", "1")}
    pod = {**a_pod(name, container), "kind": "Pod"}
    pod["spec"] |= spec
    return pod


def seen(*nodes: Object, pods: tuple[Object, ...] = (), name: str = "hami-scheduler") -> KubeView:
    """Return what kube-scheduler sees of *nodes* with *pods*."""
    found = KubeNodes(lambda _: True)
    for node in nodes:
        found.add_node(node)
    for pod in pods:
        found.add_pod(pod)
    return KubeView(found.nodes, scheduler_name=name)


def told(pod: Object, *nodes: Object, pods: tuple[Object, ...] = (), was_asked: bool = False) -> Report:
    """Return the report of *pod* in a cluster of *nodes* with *pods*."""
    cluster = a_cluster(*nodes)
    question = Question(pod, cluster.vendors, Policies())
    return finish(explain(question, cluster.view, seen(*nodes, pods=pods), was_asked=was_asked))


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        pytest.param({"nodeSelector": {"pool": "x"}}, "lacks the label pool=x of its nodeSelector", id="nodeSelector"),
        pytest.param({"cpu": "64"}, "lacks 64 cpu (16 of 16 free)", id="cpu"),
        pytest.param(
            {
                "affinity": {
                    "nodeAffinity": {
                        REQUIRED: {
                            "nodeSelectorTerms": [
                                {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["z"]}]}
                            ]
                        }
                    }
                }
            },
            "does not match its required node affinity",
            id="affinity",
        ),
    ],
)
def test_pod_that_kube_scheduler_rules_out_fits_nowhere(spec: Object, words: str) -> None:
    """Every device would take it, and no Node does."""
    report = told(asking(**spec), a_whole_node())

    assert ("refused", None) == (report.verdict, report.node)
    [node] = report.nodes
    assert (False, f"kube-scheduler: {words}; its devices would take it") == (node.fits, node.why)
    assert report.summary.startswith("0 of 1 nodes: kube-scheduler rules out 1: 1 ")


def test_taint_cordon_and_full_node_are_told_each_in_its_words() -> None:
    """The one Node that is left gets the Pod, though binpack would choose a tainted one."""
    full = a_whole_node("full")
    full["status"]["allocatable"]["pods"] = "1"
    unready = a_whole_node("unready")
    unready["status"]["conditions"] = [{"type": "Ready", "status": "Unknown"}]
    nodes = (
        *(a_whole_node("a-tainted", taints=[GPU_TAINT]), a_whole_node("cordoned", unschedulable=True)),
        *(full, unready, a_whole_node("open")),
    )
    report = told(asking(), *nodes, pods=(a_pod("there", a_container(), node="full"),))

    assert ("fits", "open") == (report.verdict, report.node)
    whys = {node.name: node.why.removesuffix("; its devices would take it") for node in report.nodes}
    assert {
        "open": "chosen",
        "a-tainted": "kube-scheduler: has the taint gpu=yes:NoSchedule, which the Pod does not tolerate",
        "cordoned": "kube-scheduler: is unschedulable",
        "full": "kube-scheduler: has no place for another Pod (1 of 1)",
        "unready": "kube-scheduler: is not ready",
    } == whys


def test_the_only_thing_in_the_way_is_named_as_what_would_help() -> None:
    """Not where a second thing is in the way, and not where devices refuse, too."""
    both = a_whole_node("both", taints=[GPU_TAINT], unschedulable=True)
    poor = a_node("poor", a_device("GPU-poor", memory_mib=500))
    poor["status"]["allocatable"] |= {"cpu": "1", "pods": "9"}
    tainted = a_whole_node("tainted", taints=[GPU_TAINT])
    cordoned = a_whole_node("cordoned", unschedulable=True)
    small = a_whole_node("small")
    small["status"]["allocatable"]["cpu"] = "2500m"

    report = told(asking(cpu="3"), both, poor, tainted, cordoned, small)

    assert [
        ("cordoned", "after kubectl uncordon cordoned"),
        ("small", "with 2.5 cpu instead of 3"),
        ("tainted", "with a toleration of gpu=yes:NoSchedule"),
    ] == [(change.node, change.what) for change in report.changes]
    chosen = told(asking(nodeSelector={"pool": "x"}), a_whole_node())
    assert ["without pool=x in its nodeSelector"] == [change.what for change in chosen.changes]


def test_summary_counts_each_node_once_and_names_what_is_best() -> None:
    """First what kube-scheduler rules out, then what devices of the others refuse."""
    small = a_node("small", a_device("GPU-small", memory_mib=500))
    small["status"]["allocatable"] |= {"cpu": "96", "pods": "10"}
    report = told(asking(cpu="20"), a_whole_node("a"), a_whole_node("b"), small)

    assert (
        "0 of 3 nodes: kube-scheduler rules out 2: 2 lack 20 cpu (best has 16); "
        "of the others 1 lacks 1000 MiB on any NVIDIA device (best has 500)"
    ) == report.summary


def test_what_pods_request_is_no_longer_free() -> None:
    """By Kubernetes' formula: the largest of the init containers and the sum of the others, with overhead."""
    there = a_pod("there", a_container(), a_container("side"), inits=[a_container("init")], node="n1")
    for container, cpu in zip((*there["spec"]["containers"], there["spec"]["initContainers"][0]), "239", strict=True):
        container["resources"] = {"requests": {"cpu": cpu}}
    there["spec"]["overhead"] = {"cpu": "250m"}
    ended = {**there, "status": {"phase": "Succeeded"}}

    [node] = told(asking(cpu="7"), a_whole_node(), pods=(there, ended)).nodes

    assert "kube-scheduler: lacks 7 cpu (6.75 of 16 free); its devices would take it" == node.why


def test_container_that_is_resized_counts_with_its_larger_amount() -> None:
    """Unless its Node has said that it cannot."""
    there = a_pod("there", a_container(), node="n1")
    there["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "12"}}
    there["status"]["containerStatuses"] = [{"name": "app", "resources": {"requests": {"cpu": "2"}}}]
    assert "refused" == told(asking(cpu="8"), a_whole_node(), pods=(there,)).verdict

    there["status"]["conditions"] = [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]
    assert "fits" == told(asking(cpu="8"), a_whole_node(), pods=(there,)).verdict


def test_limit_counts_as_request_as_the_api_server_completes_it() -> None:
    """A manifest has not been completed yet; so do limits of the whole Pod."""
    pod = asking()
    pod["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "1", "cpu": "17"}}
    assert "refused" == told(pod, a_whole_node()).verdict
    assert "refused" == told(asking(resources={"requests": {"memory": "65Gi"}}), a_whole_node()).verdict


def test_gated_pod_is_said_to_be_gated() -> None:
    """No scheduler looks at it, whatever fits."""
    report = told(asking(schedulingGates=[{"name": "example.com/quota"}]), a_whole_node())

    assert ("gated", None) == (report.verdict, report.node)
    assert "has scheduling gates" in report.summary
    assert "example.com/quota" in report.summary
    assert any(note.startswith("apart from that: default/p fits node n1") for note in report.notes)
    assert not is_well(shape(report))


def test_pod_of_another_scheduler_is_said_to_be_theirs() -> None:
    """Unless kube-scheduler has asked about it: then that scheduler has the extender too."""
    report = told(asking(schedulerName="volcano"), a_whole_node())
    assert "other-scheduler" == report.verdict
    assert "default/p is for the scheduler volcano" in report.summary
    assert "fits" == told(asking(schedulerName="volcano"), a_whole_node(), was_asked=True).verdict
    assert "fits" == told(asking(schedulerName="hami-scheduler"), a_whole_node()).verdict

    missed = told(asking(schedulerName="default-scheduler"), a_whole_node())
    assert "the webhook, which changes schedulerName when a Pod is created, has left it" in missed.summary


def test_new_pod_of_the_default_scheduler_is_ours() -> None:
    """The webhook makes it so."""
    cluster = a_cluster(a_whole_node())
    questions = as_new([asking(schedulerName="default-scheduler")], cluster.vendors, Policies())

    [report] = finish(simulate(questions, cluster.view, seen(a_whole_node())))

    assert "fits" == report.verdict


def test_pod_that_has_ended_or_is_being_deleted_fits_nothing() -> None:
    """It is placed no more."""
    ended = {**asking(nodeName="n1"), "status": {"phase": "Succeeded"}}
    assert "default/p has ended (Succeeded), so it holds nothing" == told(ended, a_whole_node()).summary
    leaving = asking()
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert "is being deleted" in told(leaving, a_whole_node()).summary


def test_bound_pod_without_a_known_grant_is_bound_and_fits_nothing() -> None:
    """It has its Node, whoever sent it there."""
    report = told(asking(nodeName="elsewhere"), a_whole_node())

    assert ("bound", "elsewhere", ()) == (report.verdict, report.node, report.nodes)
    assert "has not seen that it holds a device" in report.summary


def test_kube_schedulers_own_words_stand_beside_ours() -> None:
    """They are quoted as they are."""
    words = "0/1 nodes are available: 1 node(s) didn't match pod anti-affinity rules."
    pod = asking(affinity={"podAntiAffinity": {REQUIRED: [{"topologyKey": "kubernetes.io/hostname"}]}})
    pod["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "message": words}]

    report = told(pod, a_whole_node())
    text = " ".join(page(shape(report), columns=100, is_coloured=False).split())

    assert words == report.kube_scheduler
    assert f"kube-scheduler says: {words}" in text
    assert "fits node n1 (nodes binpack, devices spread), if what is not judged here allows it" in text
    assert "not judged here, and the Pod uses it: pod anti-affinity" in text


def test_words_of_a_queue_that_a_client_adds_are_printed() -> None:
    """`kubectl hami explain` adds them; the scheduler has no right to read queues."""
    report = told(asking(schedulingGates=[{"name": "kueue.x-k8s.io/admission"}]), a_whole_node())

    text = page({**shape(report), "queue": "Kueue, queue team-a: no quota"}, columns=100, is_coloured=False)

    assert "Kueue, queue team-a: no quota" in text


@pytest.mark.parametrize(
    ("spec", "found"),
    [
        pytest.param({"affinity": {"podAffinity": {REQUIRED: [{}]}}}, ("pod affinity",), id="affinity"),
        pytest.param({"topologySpreadConstraints": [{"topologyKey": "zone"}]}, ("topology spread",), id="spread"),
        pytest.param({"topologySpreadConstraints": [{"whenUnsatisfiable": "ScheduleAnyway"}]}, (), id="soft spread"),
        pytest.param({"volumes": [{"persistentVolumeClaim": {}}]}, ("volumes",), id="claim"),
        pytest.param({"volumes": [{"emptyDir": {}}]}, (), id="empty folder"),
        pytest.param({"resourceClaims": [{"name": "c"}]}, ("resource claims",), id="resource claim"),
        pytest.param({"schedulingGroup": {"podGroupName": "g"}}, ("gang scheduling",), id="group"),
        pytest.param(
            {
                "containers": [
                    {"ports": [{"hostPort": 80}], "resources": {"limits": {"rdma/hca": 1, "nvidia.com/gpu": 1}}}
                ]
            },
            ("host ports", "rdma/hca"),
            id="port and resource",
        ),
    ],
)
def test_what_only_kube_scheduler_judges_is_named_if_the_pod_uses_it(spec: Object, found: tuple[str, ...]) -> None:
    """What the Pod does not use is not mentioned."""
    assert found == not_judged({"spec": spec}, frozenset({"nvidia.com/gpu"}))


def test_unknown_nodes_are_judged_by_devices_alone_and_the_answer_says_so() -> None:
    """Of all Nodes or of some."""
    report = told(asking(), a_node("bare", a_device("GPU-bare")))
    assert ("fits", ("devices", "quotas of devices")) == (report.verdict, report.judged)
    [note] = report.notes
    assert note.startswith("only devices were judged, not kube-scheduler's part")

    some = told(asking(), a_node("bare", a_device("GPU-bare")), a_whole_node())
    assert ("devices", "quotas of devices", *JUDGED) == some.judged
    assert some.notes[0].startswith("only devices were judged on bare, ")


def test_simulated_pods_take_processors_from_each_other() -> None:
    """The third does not fit beside the first two, though the device would take it."""
    cluster = a_cluster(a_whole_node())
    kube = seen(a_whole_node())
    questions = as_new([asking(f"p{number}", cpu="7") for number in range(3)], cluster.vendors, Policies())

    reports = finish(simulate(questions, cluster.view, kube))

    assert ["fits", "fits", "refused"] == [report.verdict for report in reports]
    assert "lacks 7 cpu (2 of 16 free)" in reports[2].nodes[0].why
    assert "fits" == finish(simulate(questions[:1], cluster.view, kube))[0].verdict


def test_snapshot_judges_as_the_objects_do() -> None:
    """What is pruned is what no filter reads."""
    there = a_pod("there", a_container(), node="n1")
    there["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "12"}}
    node = a_whole_node("n1", labels={"pool": "x"}, taints=[GPU_TAINT])
    tolerating = asking("q", tolerations=[{"key": "gpu", "operator": "Exists"}], nodeSelector={"pool": "x"}, cpu="4")
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "secret"}}]
    objects = (
        node,
        {**there, "kind": "Pod"},
        asking("p"),
        {**tolerating, "spec": {**tolerating["spec"], "volumes": volumes}},
    )
    whole, kept = Saved(), Saved()
    whole.add(listed(objects, {}), "whole")
    kept.add(listed(map(pruned, objects), {}), "kept")

    for name, verdict in (("p", "refused"), ("q", "fits")):
        reports = []
        for saved in (whole, kept):
            pod = saved.pod("default", name)
            assert pod is not None
            question = Question(pod, vendors(), Policies())
            reports.append(finish(explain(question, saved.cluster(vendors()).view, saved.kube_view())))
        assert reports[0] == reports[1]
        assert verdict == reports[0].verdict
    assert ("volumes",) == reports[1].not_judged


# Against another implementation

_TEXTS = st.sampled_from(("a", "b", "3", "-7", ""))
_KEYS = st.sampled_from(("k", "l"))
_EFFECTS = st.sampled_from(("NoSchedule", "NoExecute", "PreferNoSchedule"))
_CPU = st.sampled_from(("100m", "1", "1500m", "3"))
_REQUIREMENTS = st.one_of(
    st.builds(
        lambda k, o, v: {"key": k, "operator": o, "values": v},
        _KEYS,
        st.sampled_from(("In", "NotIn")),
        st.lists(_TEXTS, min_size=1, max_size=2),
    ),
    st.builds(lambda k, o: {"key": k, "operator": o}, _KEYS, st.sampled_from(("Exists", "DoesNotExist"))),
    st.builds(
        lambda k, o, v: {"key": k, "operator": o, "values": [str(v)]},
        _KEYS,
        st.sampled_from(("Gt", "Lt")),
        st.integers(-9, 9),
    ),
)
_FIELDS = st.builds(
    lambda o, v: {"key": "metadata.name", "operator": o, "values": [v]},
    st.sampled_from(("In", "NotIn")),
    st.sampled_from(("n1", "n2")),
)
_TERMS = st.fixed_dictionaries(
    {}, optional={"matchExpressions": st.lists(_REQUIREMENTS, max_size=2), "matchFields": st.lists(_FIELDS, max_size=1)}
)
_TOLERATIONS = st.one_of(
    st.builds(
        lambda k, v, e: {"key": k, "value": v, **e},
        _KEYS,
        _TEXTS,
        st.fixed_dictionaries({}, optional={"effect": _EFFECTS}),
    ),
    st.fixed_dictionaries({"operator": st.just("Exists")}, optional={"key": _KEYS, "effect": _EFFECTS}),
)
_AMOUNTS = st.fixed_dictionaries({}, optional={"cpu": _CPU, "memory": st.sampled_from(("1Mi", "900k", "2Mi"))})
_CONTAINERS = st.builds(lambda amounts: {"name": "c", "resources": {"requests": amounts}}, _AMOUNTS)
_INITS = st.builds(
    lambda container, is_sidecar: {**container, "restartPolicy": "Always"} if is_sidecar else container,
    _CONTAINERS,
    st.booleans(),
)
_PODS = st.fixed_dictionaries(
    {"containers": st.lists(_CONTAINERS, min_size=1, max_size=2)},
    optional={
        "initContainers": st.lists(_INITS, max_size=3),
        "overhead": _AMOUNTS,
        "nodeSelector": st.dictionaries(_KEYS, _TEXTS, max_size=1),
        "tolerations": st.lists(_TOLERATIONS, max_size=2),
        "affinity": st.builds(
            lambda terms: {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}},
            st.lists(_TERMS, min_size=1, max_size=2),
        ),
    },
)
_NODES = st.builds(
    lambda labels, taints, is_cordoned, pods, cpu, ready: {
        "metadata": {"name": "n1", "labels": labels},
        "spec": {"taints": taints, "unschedulable": is_cordoned},
        "status": {
            "allocatable": {"pods": pods, "cpu": cpu, "memory": "3Mi"},
            "conditions": [{"type": "Ready", "status": ready}],
        },
    },
    st.dictionaries(_KEYS, _TEXTS, max_size=2),
    st.lists(st.builds(lambda k, v, e: {"key": k, "value": v, "effect": e}, _KEYS, _TEXTS, _EFFECTS), max_size=1),
    st.sampled_from((False, False, False, True)),
    st.sampled_from(("1", "2", "110")),
    _CPU,
    st.sampled_from(("True", "True", "True", "False")),
)


@profile(400)
@given(_NODES, _PODS, st.lists(_PODS, max_size=2))
@pytest.mark.property
def test_filters_agree_with_the_embedded_kube_scheduler(node: Object, spec: Object, there: list[Object]) -> None:
    """Two implementations that share no code: whether a Node is ruled out, and kube-scheduler's words for it."""
    pods = [{"spec": {**one, "nodeName": "n1"}, "status": {"phase": "Running"}} for one in there]
    state = fit.node_state(node)
    for pod in pods:
        state.pods += 1
        for resource, units in fit.pod_facts(pod, frozenset()).requests.items():
            state.used[resource] = state.used.get(resource, 0) + units

    expected = fit.misfit(fit.pod_facts({"spec": spec}, frozenset()), state)
    found: tuple[KubeMisfit, ...] = seen(node, pods=tuple(pods)).misfits(KubePod.of({"spec": spec}), "n1")

    assert set(expected.reasons if expected else ()) == {misfit.code for misfit in found}
