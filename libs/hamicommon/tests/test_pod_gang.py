"""
Which gang a Pod is in, by the fields of three programs.
"""

from typing import Any

import pytest

from hamicommon.pod.gang import Gang, GangKind, gang_of

LABEL = "kueue.x-k8s.io/pod-group-name"
COUNT = "kueue.x-k8s.io/pod-group-total-count"


def a_pod(labels: Any = None, group: Any = None, count: str | None = None) -> dict[str, Any]:
    """Return a v1 Pod of the namespace `a`."""
    found = {} if count is None else {COUNT: count}
    return {
        "metadata": {"namespace": "a", "labels": labels, "annotations": found},
        "spec": {"schedulingGroup": group} if group is not None else {},
    }


@pytest.mark.parametrize(
    ("pod", "gang"),
    [
        pytest.param(a_pod(group={"podGroupName": "g"}), Gang(GangKind.POD_GROUP, "a", "g"), id="Kubernetes"),
        pytest.param(a_pod({LABEL: "g"}, count="4"), Gang(GangKind.KUEUE, "a", "g", 4), id="Kueue"),
        pytest.param(
            a_pod({"scheduling.x-k8s.io/pod-group": "g"}), Gang(GangKind.COSCHEDULING, "a", "g"), id="coscheduling"
        ),
        pytest.param(
            a_pod({"pod-group.scheduling.sigs.k8s.io": "g"}), Gang(GangKind.COSCHEDULING, "a", "g"), id="older label"
        ),
        pytest.param(a_pod(), None, id="none"),
        pytest.param({}, None, id="empty"),
    ],
)
def test_gang_is_read_from_the_fields_of_its_program(pod: dict[str, Any], gang: Gang | None) -> None:
    """Each program has a field of its own, and a Pod without any is in no gang."""
    assert gang == gang_of(pod)


def test_gang_of_kube_scheduler_counts_before_that_of_a_queue() -> None:
    """Kueue only decides when kube-scheduler may look at the Pod."""
    found = gang_of(a_pod({LABEL: "queued"}, {"podGroupName": "placed"}))
    assert found is not None
    assert ("placed", True) == (found.name, found.is_placed_together)


@pytest.mark.parametrize("text", ["", "0", "-1", "1e9", "9" * 5000, "four", "²"])
def test_size_that_is_no_number_of_pods_is_unknown(text: str) -> None:
    """A tenant writes the annotation."""
    assert Gang(GangKind.KUEUE, "a", "g") == gang_of(a_pod({LABEL: "g"}, count=text))


@pytest.mark.parametrize("group", ["text", [], 7, {}, {"podGroupName": ""}, {"podGroupName": None}])
def test_group_of_another_form_is_none(group: Any) -> None:
    """The API server checks the field, and a file need not come from one."""
    assert gang_of(a_pod(group=group)) is None
