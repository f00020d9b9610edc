"""
The report about a Pod of a gang says how the gang stands, and which member does not fit.
"""

from typing import Any

import pytest

from hami_scheduler.explain.gangs import MEMBERS_LIMIT, explain_member, members_of
from hami_scheduler.explain.remedies import Question
from hami_scheduler.explain.report import Report, finish, shape
from hami_scheduler.state.cluster import Cluster
from hami_scheduler.values.policies import Policies
from hamicommon.cli.explanation import is_well, page
from hamicommon.model import Object
from hamicommon.pod.gang import gang_of

from ..support.builders import a_cluster, a_container, a_device, a_grant, a_node, a_pod, a_share, only_devices

MIB = 1000
KUEUE: dict[str, Any] = {"labels": {"kueue.x-k8s.io/pod-group-name": "ranks"}}


def a_room(shares: int) -> Cluster:
    """Return a cluster of one Node with room for *shares* members."""
    return a_cluster(a_node("n1", a_device(count=100, memory_mib=MIB * shares), replicas=100))


def a_member(name: str, *, node: str = "", memory_mib: int = MIB, **metadata: Any) -> Object:
    """Return a Pod of the PodGroup `ranks`, or of what *metadata* says."""
    pod = a_pod(name, a_container(gpu=1, gpumem=memory_mib), node=node)
    pod["metadata"] |= metadata
    if not metadata:
        pod["spec"]["schedulingGroup"] = {"podGroupName": "ranks"}
    return pod


def explained(cluster: Cluster, members: list[Object], name: str = "m0") -> Report:
    """Return the report about the member *name*."""
    [pod] = [one for one in members if one["metadata"]["name"] == name]
    question = Question(pod, cluster.vendors, Policies())
    return finish(explain_member(question, members, cluster.view, only_devices(cluster)))


def test_member_that_fits_alone_waits_for_the_one_that_does_not() -> None:
    """The report names the other one and why, and is no success."""
    cluster = a_room(2)

    report = explained(cluster, [a_member(f"m{number}") for number in range(3)])

    assert ("gang", None) == (report.verdict, report.node)
    assert "default/m0 fits node n1, and waits for its gang unless that can do without m2" == report.summary
    assert report.gang.startswith("gang ranks (PodGroup): 3 Pods, 0 have a node, 3 wait; m2 fits nowhere beside")
    assert "1 lacks 1000 MiB" in report.gang
    assert not is_well(shape(report))
    assert report.gang in " ".join(page(shape(report), columns=200, is_coloured=False).split())


def test_member_that_does_not_fit_is_refused_with_its_own_reason() -> None:
    """It is the one that the others wait for."""
    report = explained(a_room(2), [a_member("m0"), a_member("m1"), a_member("m2", memory_mib=9000)], "m2")

    assert "refused" == report.verdict
    assert "m2 fits nowhere beside the others" in report.gang


def test_gang_that_fits_says_so() -> None:
    """Then kube-scheduler's own part is all that remains."""
    report = explained(a_room(3), [a_member(f"m{number}") for number in range(3)])

    assert ("fits", "n1") == (report.verdict, report.node)
    assert "gang ranks (PodGroup): 3 Pods, 0 have a node, 3 wait; their devices fit together" == report.gang


def test_bound_members_count_and_a_late_one_is_judged_alone() -> None:
    """A gang with bound Pods has been placed, so the others wait for nobody."""
    cluster = a_room(3)
    cluster.reserve(a_grant("uid-m0", "n1", a_share(memory_mib=MIB)), 0.0)
    members = [a_member("m0", node="n1"), *(a_member(f"m{number}") for number in range(1, 5))]

    assert "fits" == explained(cluster, members, "m1").verdict
    assert "gang ranks (PodGroup): 5 Pods, 1 have a node, 4 wait; m3 fits" in explained(cluster, members).gang


def test_gated_group_of_kueue_says_how_many_pods_exist() -> None:
    """Kueue admits a group only if all its Pods exist."""
    annotations = {"kueue.x-k8s.io/pod-group-total-count": "4"}
    members = [a_member(f"m{number}", **KUEUE, annotations=annotations) for number in range(2)]
    for pod in members:
        pod["spec"]["schedulingGates"] = [{"name": "kueue.x-k8s.io/admission"}]

    report = explained(a_room(3), members)

    assert "gated" == report.verdict
    assert "gang ranks (Kueue Pod group): 2 of 4 Pods exist, 0 have a node, 2 wait" == report.gang


def test_group_of_kueue_is_bound_one_by_one() -> None:
    """kube-scheduler does not know it, so a member that fits gets its Node, whatever becomes of the others."""
    report = explained(a_room(2), [a_member(f"m{number}", **KUEUE) for number in range(3)])

    assert ("fits", "n1") == (report.verdict, report.node)
    assert "m2 fits nowhere beside the others" in report.gang


def test_pod_without_a_gang_has_no_word_of_one() -> None:
    """Nothing changes for it."""
    cluster = a_room(1)
    question = Question(a_pod("p", a_container(gpu=1, gpumem=MIB)), cluster.vendors, Policies())

    assert "" == finish(explain_member(question, [], cluster.view, only_devices(cluster))).gang


def test_gang_that_cannot_be_read_is_not_said_to_be_empty() -> None:
    """The API server may be away for a moment."""
    cluster, pod = a_room(1), a_member("m0")
    question = Question(pod, cluster.vendors, Policies())

    report = finish(explain_member(question, None, cluster.view, only_devices(cluster)))

    assert ("fits", "gang ranks (PodGroup): its Pods could not be read") == (report.verdict, report.gang)


def test_question_changes_nothing() -> None:
    """Members are placed on a copy."""
    cluster = a_room(2)
    before = cluster.view.version
    explained(cluster, [a_member(f"m{number}") for number in range(3)])
    assert before == cluster.view.version


@pytest.mark.parametrize("count", [MEMBERS_LIMIT, 3 * MEMBERS_LIMIT])
def test_huge_gang_costs_bounded_work(count: int) -> None:
    """A tenant may create any number of Pods with one name of a gang."""
    pods = [a_member(f"m{number}") for number in range(count)]
    cluster = a_room(100)

    members = members_of(gang_of(pods[0]), pods)
    report = explained(cluster, members)

    assert MEMBERS_LIMIT == len(members)
    assert f"at least {MEMBERS_LIMIT} Pods, 0 have a node, {MEMBERS_LIMIT} wait; 64 of them fit together" in report.gang


def test_members_of_another_namespace_are_others() -> None:
    """Gangs of two tenants may have the same name."""
    mine, other = a_member("m0"), a_member("m0")
    other["metadata"]["namespace"] = "b"
    assert [mine] == members_of(gang_of(mine), [mine, other])
