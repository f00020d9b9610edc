"""
The in-tree filters reject the same Pods as the real ones, with the same texts.
"""

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conformance.peers.objects import a_node
from hamicommon.model import Object
from minicluster.kubescheduler.cache import Cache
from minicluster.kubescheduler.config import ConfigError, duration, parse
from minicluster.kubescheduler.fit import Misfit, misfit, node_state, pod_facts
from minicluster.kubescheduler.main import nodes_to_find
from minicluster.kubescheduler.reports import refusal_text

NONE: frozenset[str] = frozenset()


def reasons(spec: Object, node: Object | None = None, ignored: frozenset[str] = NONE) -> tuple[str, ...]:
    """Return why a Pod with *spec* does not fit an empty Node."""
    pod = {"spec": {"containers": [{"name": "main"}], **spec}}
    found = misfit(pod_facts(pod, ignored), node_state(node or a_node(labels={"zone": "a", "size": "8"})))
    return found.reasons if found else ()


def asking(**amounts: str) -> Object:
    """Return a container that requests *amounts*."""
    return {"name": "main", "resources": {"requests": amounts}}


def affinity(*expressions: Object) -> Object:
    """Return a required node affinity with one term."""
    terms = [{"matchExpressions": list(expressions)}]
    return {
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    }


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, ()),
        ({"containers": [asking(cpu="4")]}, ()),
        ({"containers": [asking(cpu="4001m", memory="9Gi")]}, ("Insufficient cpu", "Insufficient memory")),
        ({"containers": [asking(**{"nvidia.com/gpu": "1"})]}, ("Insufficient nvidia.com/gpu",)),
        ({"containers": [asking(cpu="3")], "initContainers": [asking(cpu="5")]}, ("Insufficient cpu",)),
        ({"containers": [asking(cpu="3")], "initContainers": [asking(cpu="4")]}, ()),
        (
            {"containers": [asking(cpu="3")], "initContainers": [{**asking(cpu="2"), "restartPolicy": "Always"}]},
            ("Insufficient cpu",),
        ),
        ({"nodeSelector": {"zone": "b"}}, ("node(s) didn't match Pod's node affinity/selector",)),
        ({"nodeSelector": {"zone": "a"}}, ()),
        (affinity({"key": "zone", "operator": "In", "values": ["a", "b"]}), ()),
        (
            affinity({"key": "zone", "operator": "NotIn", "values": ["a"]}),
            ("node(s) didn't match Pod's node affinity/selector",),
        ),
        (affinity({"key": "size", "operator": "Gt", "values": ["7"]}, {"key": "gpu", "operator": "DoesNotExist"}), ()),
        (affinity(), ("node(s) didn't match Pod's node affinity/selector",)),
    ],
)
def test_pod_fits_or_has_the_right_reasons(spec: Object, expected: tuple[str, ...]) -> None:
    """
    Requests, selectors and affinity follow the rules of Kubernetes.
    """
    assert expected == reasons(spec)


TAINT = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("toleration", "is_tolerated"),
    [
        ({"key": "gpu", "operator": "Exists"}, True),
        ({"key": "gpu", "value": "yes"}, True),
        ({"key": "gpu", "value": "no"}, False),
        ({"operator": "Exists"}, True),
        ({"key": "gpu", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "other", "operator": "Exists"}, False),
    ],
)
def test_taint_rejects_pods_without_a_matching_toleration(toleration: Object, is_tolerated: bool) -> None:
    """
    Key, value and effect must match if they are set.
    """
    node = {**a_node(), "spec": {"taints": [TAINT]}}
    expected = () if is_tolerated else ("node(s) had untolerated taint(s)",)

    assert expected == reasons({"tolerations": [toleration]}, node)


def test_resources_left_to_extenders_are_not_counted() -> None:
    """
    The Node offers none, and the scheduler ignores that.
    """
    assert () == reasons({"containers": [asking(**{"nvidia.com/gpu": "8"})]}, ignored=frozenset({"nvidia.com/gpu"}))


def test_rejection_counts_each_reason_in_any_order() -> None:
    """
    A changing text would wake its Pod for ever.
    """
    found = {
        "n1": Misfit("Extender", ("no room",), True),
        "n2": Misfit("NodeUnschedulable", ("node(s) were unschedulable",)),
        "n3": Misfit("Extender", ("no room",), True),
    }
    backwards = dict(reversed(found.items()))

    expected = (
        "0/4 nodes are available: 1 node(s) were unschedulable, 2 no room. no new claims to deallocate, preemption: "
        "0/4 nodes are available: 2 No preemption victims found for incoming pod, "
        "2 Preemption is not helpful for scheduling."
    )
    assert expected == refusal_text(4, found)
    assert expected == refusal_text(4, backwards)


@pytest.mark.parametrize(
    ("nodes", "percentage", "expected"),
    [(100, 0, 100), (500, 0, 230), (1000, 0, 420), (5000, 0, 500), (5000, 100, 5000), (1000, 5, 100), (120, 0, 100)],
)
def test_sample_is_as_large_as_measured(nodes: int, percentage: int, expected: int) -> None:
    """
    230 names at 500 Nodes, 420 at 1000, 500 at 5000.
    """
    assert expected == nodes_to_find(nodes, percentage)


@pytest.mark.property
@given(
    st.lists(st.tuples(st.sampled_from(["place", "end", "assume", "forget", "node"]), st.integers(0, 4)), max_size=30)
)
def test_cache_counts_exactly_the_pods_on_a_node(steps: list[tuple[str, int]]) -> None:
    """
    After any sequence of changes, the use of a Node is the sum of its Pods.
    """
    cache, there = Cache(NONE), dict[int, bool]()
    cache.node_changed(None, a_node("n1"))
    for step, number in steps:
        key = ("ns", str(number))
        pod: Object = {"metadata": {"uid": str(number)}, "spec": {"containers": [asking(cpu=str(number + 1))]}}
        placed = copy.deepcopy(pod)
        placed["spec"]["nodeName"] = "n1"
        if step == "place":
            cache.pod_changed(key, placed)
            there[number] = False
        elif step == "end":
            cache.pod_changed(key, {**placed, "status": {"phase": "Succeeded"}} if number % 2 else None)
            if number % 2 == 0 or not there.get(number, False):
                there.pop(number, None)
        elif step == "assume" and number not in there:
            cache.assume(key, pod, "n1")
            there[number] = True
        elif step == "forget" and there.get(number):
            cache.forget(key, str(number))
            del there[number]
        elif step == "node":
            cache.node_changed(a_node("n1"), a_node("n1", labels={"step": str(number)}))

    state = cache.nodes["n1"]
    assert (sum(1000 * (number + 1) for number in there), len(there)) == (state.used.get("cpu", 0), state.pods)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"extenders": [{}]}, "extenders[0].urlPrefix"),
        ({"extenders": [{"urlPrefix": "http://x", "prioritizeVerb": "p"}]}, "extenders[0].weight"),
        ({"extenders": [{"urlPrefix": "http://x", "bindVerb": "b"}] * 2}, "multiple extenders with bindVerb"),
        ({"profiles": [{}, {}]}, "profiles[1].schedulerName"),
        ({"extenders": [{"urlPrefix": "http://x", "httpTimeout": "5"}]}, "'5' is not a duration"),
    ],
)
def test_configuration_errors_name_the_field(fields: Object, expected: str) -> None:
    """
    Like the real scheduler, this one does not start with an invalid configuration.
    """
    with pytest.raises(ConfigError) as caught:
        parse(fields)
    assert expected in str(caught.value)


def test_configuration_defaults_are_the_real_ones() -> None:
    """
    They are one profile, adaptive sampling, back-offs of 1 s and 10 s, and leader election.
    """
    config = parse({})

    assert ({"default-scheduler": 0}, 1.0, 10.0) == (
        config.percentages,
        config.initial_backoff_seconds,
        config.max_backoff_seconds,
    )
    election = config.leader_election
    assert (True, "kube-system", "kube-scheduler", 15.0) == (
        election.is_on,
        election.namespace,
        election.name,
        election.lease_seconds,
    )
    assert 90.5 == duration("1m30.5s")
