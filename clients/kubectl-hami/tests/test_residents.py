"""
Who is on a device or a Node, and what moves them away.
"""

import json
import shlex
from typing import Any

import pytest

from hamicommon.wire import keys
from kubectl_hami.answer.residents import Place, place
from kubectl_hami.answer.state import state_of

from .builders import a_cluster, a_device, a_node, a_pod, a_share

CORDON = keys.NODE_CORDON


def owned(name: str, kind: str, *uuids: str) -> dict[str, Any]:
    """Return a bound Pod that a controller of this kind made."""
    pod = a_pod(name, *(a_share(uuid) for uuid in uuids))
    pod["metadata"]["ownerReferences"] = [{"kind": kind, "name": f"of-{name}", "controller": True}]
    return pod


def found(name: str, *pods: dict[str, Any], **annotations: str) -> Place | None:
    """Return who is at *name* on a Node of two devices with *pods*."""
    node = a_node("n1", a_device(), a_device("GPU-b", index=1), **annotations)
    cluster = a_cluster(nodes=(node,), pods=pods)
    return place(state_of(cluster), cluster.pods, name)


def pods_of(answer: Place | None) -> list[str]:
    """Return the names of the Pods of an answer."""
    assert answer is not None
    return [one.share.pod for one in answer.residents]


def test_device_is_found_by_its_uuid_and_by_its_place_on_a_node() -> None:
    """With the Pods on it and no other; a Node has those of all its devices."""
    pods = (a_pod("first", a_share()), a_pod("second", a_share("GPU-b")))

    assert ["first"] == pods_of(found("GPU-a", *pods)) == pods_of(found("n1/0", *pods))
    assert ["first", "second"] == pods_of(found("n1", *pods))
    assert found("GPU-c", *pods) is None
    assert found("n1/2", *pods) is None


def test_pods_that_come_back_elsewhere_are_moved_first() -> None:
    """After what keeps new ones out; a Pod that nobody creates again comes last."""
    answer = found("n1", a_pod("alone", a_share()), owned("agent", "DaemonSet", "GPU-a"), owned("web", "Job", "GPU-a"))

    assert answer is not None
    cordon, *moves = answer.moves
    assert "kubectl cordon n1" == cordon
    assert ["web", "agent", "alone"] == [move.rpartition("/eviction")[0].rpartition("/")[2] for move in moves]
    assert [move.partition("  # ")[2] for move in moves] == [
        "Job/of-web creates it again",
        "DaemonSet/of-agent creates it again on this Node",
        "no owner is known: nothing may create it again",
    ]


def test_device_is_closed_beside_those_that_are_closed_already() -> None:
    """One annotation has them all."""
    answer = found("GPU-a", a_pod("p", a_share()), **{CORDON: "GPU-b"})

    assert answer is not None
    assert f"kubectl annotate --overwrite node n1 {CORDON}=GPU-a,GPU-b" == answer.moves[0]


def test_pod_on_two_devices_of_a_node_is_moved_once() -> None:
    """It has a row for each."""
    answer = found("n1", owned("both", "Job", "GPU-a", "GPU-b"))

    assert ["both", "both"] == pods_of(answer)
    assert answer is not None
    assert 2 == len(answer.moves)


def test_eviction_is_one_that_the_api_server_takes() -> None:
    """An object that names the Pod, sent to its own path."""
    answer = found("n1", a_pod("p", a_share()))

    assert answer is not None
    echo, _, create = answer.moves[1].partition(" | ")
    body = json.loads(shlex.split(echo)[1])
    assert ("policy/v1", "Eviction") == (body["apiVersion"], body["kind"])
    assert {"namespace": "default", "name": "p"} == body["metadata"]
    assert "kubectl create --raw /api/v1/namespaces/default/pods/p/eviction -f -" == create.partition("  #")[0]


@pytest.mark.parametrize("name", ["p; reboot", "$(reboot)", "'p'"])
def test_name_that_a_shell_would_obey_is_one_word(name: str) -> None:
    """An archive may come from anybody."""
    answer = found("n1", a_pod(name, a_share()))

    assert answer is not None
    words = shlex.split(answer.moves[1].partition("  #")[0])
    assert f"/api/v1/namespaces/default/pods/{name}/eviction" in words
    assert ["echo", "|", "kubectl"] == [words[0], words[2], words[3]]
