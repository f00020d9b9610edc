"""
The status of each Pod: phase, age, owner, and why it does not run.
"""

from typing import Any

import pytest

from kubectl_hami.answer.pods import PodStatus, owner_of, statuses
from kubectl_hami.answer.state import state_of

from .builders import a_cluster, a_pod, a_refusal, a_share


def found(*pods: dict[str, Any], refusals: tuple[dict[str, Any], ...] = ()) -> list[PodStatus]:
    """Return the statuses of *pods*."""
    cluster = a_cluster(pods=pods, refusals=refusals)
    return list(statuses(cluster.pods, state_of(cluster)))


def made_by(kind: str, name: str, **labels: str) -> dict[str, Any]:
    """Return the metadata of a Pod with a controller."""
    others = {"kind": "Node", "name": "n", "controller": False}
    return {"ownerReferences": [others, {"kind": kind, "name": name, "controller": True}], "labels": labels}


def test_pods_that_hold_or_wait_for_a_device_have_a_status() -> None:
    """No others: a cluster has many Pods without devices."""
    without = a_pod("without", spec={"containers": [{"name": "main"}]})

    assert ["holds", "waits"] == [one.pod for one in found(a_pod("holds", a_share()), a_pod("waits"), without)]


def test_pod_without_a_node_has_the_schedulers_cause() -> None:
    """The one that the list of waiting Pods has."""
    [one] = found(a_pod("p"), refusals=(a_refusal("p"),))

    assert ("Pending", "0 of 1 nodes: 1 lacks 3000 MiB") == (one.phase, one.cause)


@pytest.mark.parametrize(
    ("statuses_of_containers", "cause"),
    [
        ([{"name": "main", "state": {"running": {}}}], ""),
        (
            [{"name": "main", "state": {"waiting": {"reason": "ContainerCreating"}}}],
            "container main: ContainerCreating",
        ),
        (
            [
                {"name": "a", "state": {"waiting": {"reason": "PodInitializing"}}},
                {"name": "b", "state": {"waiting": {"reason": "ErrImagePull", "message": "no such tag"}}},
            ],
            "container b: ErrImagePull: no such tag",
        ),
        (
            [{"name": "main", "state": {"waiting": {"reason": "X", "message": "m" * 999}}}],
            f"container main: X: {'m' * 280}…",
        ),
        ([{}], ""),
    ],
    ids=["runs", "is created", "cannot start", "long", "empty"],
)
def test_pod_with_a_node_has_the_container_that_does_not_run(
    statuses_of_containers: list[dict[str, Any]], cause: str
) -> None:
    """With the kubelet's reason and message; a container behind others is not the cause."""
    [one] = found(a_pod("p", a_share(), status={"containerStatuses": statuses_of_containers}))

    assert cause == one.cause


def test_pod_that_is_deleted_is_terminating() -> None:
    """As kubectl says it."""
    [one] = found(a_pod("p", a_share(), metadata={"deletionTimestamp": "2026-11-25T12:00:00Z"}))

    assert "Terminating" == one.phase


@pytest.mark.parametrize(
    ("metadata", "owner"),
    [
        (made_by("ReplicaSet", "train-5d8c7", **{"pod-template-hash": "5d8c7"}), "Deployment/train"),
        (made_by("ReplicaSet", "train-5d8c7"), "ReplicaSet/train-5d8c7"),
        (made_by("ReplicaSet", "alone", **{"pod-template-hash": ""}), "ReplicaSet/alone"),
        (made_by("StatefulSet", "db"), "StatefulSet/db"),
        ({"ownerReferences": [{"kind": "Node", "name": "n"}]}, ""),
        ({}, ""),
    ],
)
def test_owner_is_the_controller_that_a_person_wrote(metadata: dict[str, Any], owner: str) -> None:
    """A Deployment's ReplicaSet has its name and the hash that the Pod's label has."""
    assert owner == owner_of({"metadata": metadata})
