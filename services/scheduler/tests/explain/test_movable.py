"""
Which Pods can be moved: those that would come back elsewhere with the same share, as far as anybody can judge.
"""

from typing import Any

import pytest

from hami_scheduler.explain.movable import (
    BUDGETS_IN_NAMESPACE,
    SELECTOR_BYTES,
    Budgets,
    Fixed,
    Holder,
    Rules,
    judged,
    unread,
)
from hami_scheduler.values.policies import Policies
from hamicommon.model import Object
from hamicommon.pod.amounts import Amounts

from ..support.builders import a_container, a_grant, a_pod, vendors

GRANT = a_grant("uid-p", "n1", namespace="default")


def a_running(kind: str = "ReplicaSet", *, labels: dict[str, str] | None = None, **parts: Any) -> Object:
    """Return a running Pod of a controller of this kind, with *parts* of its metadata, spec and status."""
    pod = a_pod("p", node="n1", phase="Running")
    owners = [{"kind": kind, "name": "web", "controller": True}] if kind else []
    pod["metadata"] |= {"ownerReferences": owners, "labels": labels or {}, "creationTimestamp": "2026-01-01T00:00:00Z"}
    pod["spec"]["schedulerName"] = "hami-scheduler"
    for part, values in parts.items():
        pod[part] |= values
    return pod


def a_budget(name: str = "b", allowed: int = 1, selector: Any = None, **fields: Any) -> Object:
    """Return a PodDisruptionBudget of the namespace `default`."""
    return {
        "metadata": {"namespace": "default", "name": name, "generation": fields.get("generation", 1)},
        "spec": {"selector": selector},
        "status": {"observedGeneration": 1, "disruptionsAllowed": allowed},
    }


def judgement(pod: Object, *budgets: Object) -> Holder | Fixed:
    """Return what is said of *pod*."""
    return judged(pod, GRANT, Rules(vendors(), Policies(), Budgets.of(budgets), "hami-scheduler"))


def why(pod: Object, *budgets: Object) -> str:
    """Return why *pod* stays, empty if it can be moved."""
    found = judgement(pod, *budgets)
    return found.why if isinstance(found, Fixed) else ""


@pytest.mark.parametrize("kind", ["ReplicaSet", "StatefulSet", "ReplicationController"])
def test_pod_of_a_controller_that_creates_it_again_can_be_moved(kind: str) -> None:
    """As the Pod that it would create: without a Node, and with the same requests."""
    found = judgement(a_running(kind))

    assert isinstance(found, Holder)
    assert (f"{kind}/web", "uid-p", 1000) == (
        found.owner,
        found.pod.request.uid,
        found.pod.request.containers[0].requests[0].memory_mib,
    )


@pytest.mark.parametrize(
    ("pod", "words"),
    [
        pytest.param(a_running(""), "it has no controller", id="bare"),
        pytest.param(a_running("DaemonSet"), "creates it again on the same Node", id="DaemonSet"),
        pytest.param(a_running("Job"), "its controller is a Job, which may not create it again", id="Job"),
        pytest.param(
            a_running("Node", metadata={"annotations": {"kubernetes.io/config.mirror": "x"}}), "mirror Pod", id="mirror"
        ),
        pytest.param(
            a_running(spec={"schedulerName": "other"}), "its scheduler is other, not hami-scheduler", id="scheduler"
        ),
        pytest.param(a_running(metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}), "being deleted", id="ending"),
        pytest.param(a_running(status={"phase": "Pending"}), "does not run yet", id="starting"),
        pytest.param(a_running(spec={"priority": 2_000_000_000}), "system-critical", id="critical"),
        pytest.param(
            a_running(metadata={"annotations": {"descheduler.alpha.kubernetes.io/prefer-no-eviction": ""}}),
            "prefer-no-eviction",
            id="descheduler's annotation",
        ),
        pytest.param(
            a_running(metadata={"annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}}),
            'safe-to-evict: "false"',
            id="autoscaler's annotation",
        ),
        pytest.param(
            a_running(metadata={"annotations": {"hami.io/device-scoring-weights": "{"}}),
            "device-scoring-weights cannot be read",
            id="weights",
        ),
        pytest.param(a_running(spec={"containers": [a_container()]}), "asks for no device", id="asks nothing"),
        pytest.param(
            a_running(spec={"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}),
            "nobody here judges where it fits: it uses volumes",
            id="volume",
        ),
        pytest.param(
            a_running(
                spec={"topologySpreadConstraints": [{"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}]},
            ),
            "it uses topology spread",
            id="spread",
        ),
    ],
)
def test_pod_that_might_be_lost_or_not_fit_stays(pod: Object, words: str) -> None:
    """With the reason."""
    assert words in why(pod)


def test_annotation_that_allows_eviction_keeps_nothing() -> None:
    """Only `false` does."""
    assert "" == why(a_running(metadata={"annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}}))


ALL: Object = {}


@pytest.mark.parametrize(
    ("selector", "is_selected"),
    [
        pytest.param(ALL, True, id="an empty one selects all"),
        pytest.param(None, False, id="none selects nothing"),
        pytest.param({"matchLabels": {"app": "web"}}, True, id="label"),
        pytest.param({"matchLabels": {"app": "db"}}, False, id="another label"),
        pytest.param({"matchExpressions": [{"key": "app", "operator": "In", "values": ["web"]}]}, True, id="In"),
        pytest.param({"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["x"]}]}, True, id="NotIn"),
        pytest.param({"matchExpressions": [{"key": "tier", "operator": "Exists"}]}, False, id="Exists"),
        pytest.param({"matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]}, True, id="DoesNotExist"),
        pytest.param({"matchLabels": {"app": "x" * SELECTOR_BYTES}}, True, id="a long one counts as one for all"),
    ],
)
def test_budget_covers_the_pods_of_its_selector(selector: Any, is_selected: bool) -> None:
    """As the API server reads it."""
    pod = a_running(labels={"app": "web"})

    found = judgement(pod, a_budget(selector=selector))

    assert isinstance(found, Holder)
    assert (("default/b",) if is_selected else ()) == found.budgets


def test_budget_that_allows_nothing_now_keeps_its_pods() -> None:
    """Also one that its controller has not read since it changed."""
    assert "its PodDisruptionBudget default/b allows no disruption now" == why(a_running(), a_budget("b", 0, ALL))
    assert "allows no disruption now" in why(a_running(), a_budget("b", 5, ALL, generation=2))


def test_pod_of_two_budgets_stays() -> None:
    """The API server refuses its eviction."""
    assert "2 PodDisruptionBudgets" in why(a_running(), a_budget("b", 1, ALL), a_budget("c", 1, ALL))


def test_namespace_with_a_flood_of_budgets_keeps_its_pods() -> None:
    """Whoever writes them pays for it."""
    flood = [a_budget(f"b{number}", 1, {"matchLabels": {"a": "b"}}) for number in range(BUDGETS_IN_NAMESPACE + 1)]

    assert f"more than {BUDGETS_IN_NAMESPACE} PodDisruptionBudgets" in why(a_running(), *flood)
    assert "" == why(a_running(), *flood[1:])


def test_what_no_running_pod_holds_stays() -> None:
    """A claim, and a Pod that is being placed."""
    claim = a_grant("c", "n1", claimed={"GPU-a": Amounts(1, 1000, 0)})

    assert ("ResourceClaim pod-c", True) == (unread(claim).pod, "kube-scheduler places those" in unread(claim).why)
    assert "it is being placed or is ending" == unread(GRANT).why
