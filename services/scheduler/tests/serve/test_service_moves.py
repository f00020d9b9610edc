"""What a running scheduler answers to somebody who asks for a plan of moves."""

import json
from typing import Any

import pytest

from hami_scheduler.explain.defragmentation import MOVES_LIMIT
from hami_scheduler.serve import explainer
from hamicommon.model import Object
from testbed.waiting import eventually

from ..support.api_server import ApiServer
from ..support.builders import a_container, a_pod
from ..support.service import Running


async def asked(scheduler: Running, question: Any) -> tuple[int, str]:
    """Return status and text of the answer to *question*."""
    data = question if isinstance(question, bytes) else json.dumps(question).encode()
    async with scheduler.session.post(f"{scheduler.explain_url}/defragment", data=data) as answer:
        return answer.status, await answer.text()


def running(api: ApiServer, name: str, node: str, uuid: str, mib: int, **owner: str) -> None:
    """Add a running Pod with a share."""
    pod = a_pod(name, a_container(gpu=1, gpumem=mib), node=node, allocated=f"{uuid},NVIDIA,{mib},0:;", phase="Running")
    pod["metadata"] |= {"ownerReferences": [{"name": name, "controller": True, **owner}] if owner else []}
    pod["spec"]["schedulerName"] = "hami-scheduler"
    api.put("pods", pod)


async def until_held(scheduler: Running, *names: str) -> None:
    """Wait until the scheduler counts what these Pods hold."""
    uids = [f"uid-{name}" for name in names]
    await eventually(lambda: all(map(scheduler.cluster.ledger.grant, uids)), "the Pods are counted")


async def test_live_scheduler_plans_a_move(scheduler: Running) -> None:
    """It reads who owns the Pods; the budgets come with the question. Nothing is written or reserved."""
    api = scheduler.api
    running(api, "moves", "exact", "GPU-a", 3000, kind="ReplicaSet")
    running(api, "stays", "locked", "GPU-l", 9000)
    api.put("pods", a_pod("large", a_container(gpu=1)))
    await until_held(scheduler, "moves", "stays")
    question = {"pods": [{"namespace": "default", "name": "large"}], "budgets": []}
    budget = {"metadata": {"namespace": "default", "name": "b"}, "spec": {"selector": {}}, "status": {}}

    plan = json.loads((await asked(scheduler, question))[1])
    kept = json.loads((await asked(scheduler, {**question, "budgets": [budget]}))[1])

    [move] = plan["moves"]
    assert ("moves", "ReplicaSet/moves", ["default/large"]) == (move["pod"], move["owner"], move["gains"])
    assert {"node": "locked", "devices": [{"id": "GPU-l", "index": 0}]} == move["gets"]
    assert [{"node": "exact", "devices": ["GPU-a"], "before": []}] == plan["cordons"]
    assert [{"namespace": "default", "pod": "large", "gets": move["leaves"]}] == plan["fits"]
    assert "no controller" in plan["fixed"][0]["why"]
    assert [] == kept["moves"]
    assert ["its PodDisruptionBudget default/b allows no disruption now"] == [
        fixed["why"] for fixed in kept["fixed"] if fixed["pod"] == "moves"
    ]
    assert 0 == len(scheduler.cluster.reservations)
    assert [] == api.writes


async def test_live_scheduler_plans_empty_devices(scheduler: Running) -> None:
    """Without a Pod that waits."""
    running(scheduler.api, "one", "exact", "GPU-a", 3000, kind="ReplicaSet")
    running(scheduler.api, "two", "locked", "GPU-l", 9000, kind="StatefulSet")
    await until_held(scheduler, "one", "two")

    devices = json.loads((await asked(scheduler, {}))[1])
    nodes = json.loads((await asked(scheduler, {"empty": "nodes"}))[1])

    assert [("devices", 1, 1), ("nodes", 1, 1)] == [
        (plan["goal"], len(plan["moves"]), len(plan["empties"])) for plan in (devices, nodes)
    ]


@pytest.mark.parametrize(
    ("question", "words"),
    [
        pytest.param(b"{", "unexpected end", id="no JSON"),
        pytest.param([], "question must be an object, not list", id="no object"),
        pytest.param({"pods": [{"name": "p"}]}, "question.pods must have namespace and name each", id="no namespace"),
        pytest.param({"pods": [{"namespace": "n", "name": "p"}] * 21}, "must be at most 20 Pods, not 21", id="many"),
        pytest.param({"empty": "racks"}, "question.empty must be devices or nodes, not 'racks'", id="goal"),
        pytest.param({"moves": 0}, f"question.moves must be between 1 and {MOVES_LIMIT}, not 0", id="moves"),
        pytest.param({"moves": 10**9}, f"must be between 1 and {MOVES_LIMIT}", id="many moves"),
        pytest.param(
            {"budgets": [{"spec": {"selector": {"matchLabels": {"a": 1}}}}]},
            "question.budgets[0].spec.selector.matchLabels.a must be a string",
            id="budget",
        ),
        pytest.param(
            {"pods": [{"namespace": "default", "name": "nobody"}]}, "there is no Pod default/nobody", id="missing"
        ),
    ],
)
async def test_wrong_question_is_one_sentence(scheduler: Running, question: Any, words: str) -> None:
    """With its field, its value and what would be right."""
    status, text = await asked(scheduler, question)

    assert 400 == status
    assert words in text
    assert 1 == len(text.splitlines())


@pytest.mark.parametrize(
    ("pod", "words"),
    [
        pytest.param(a_pod("q", node="exact"), "is bound to node exact", id="bound"),
        pytest.param(a_pod("q", a_container()), "asks for no device", id="no device"),
        pytest.param(a_pod("q", phase="Failed"), "has ended or is being deleted", id="ended"),
    ],
)
async def test_pod_that_waits_for_no_device_is_refused(scheduler: Running, pod: Object, words: str) -> None:
    """A plan for it would mean nothing."""
    scheduler.api.put("pods", pod)

    status, text = await asked(scheduler, {"pods": [{"namespace": "default", "name": "q"}]})

    assert (400, f"Pod default/q {words}: name a Pod that waits for devices\n") == (status, text)


async def test_nodes_that_cannot_be_read_give_no_plan(scheduler: Running) -> None:
    """A move by devices alone might end nowhere."""
    scheduler.api.fail("/api/v1/nodes", 503)

    status, text = await asked(scheduler, {})

    assert 503 == status
    assert text.startswith("Nodes and Pods could not be read: ")


async def test_plan_is_refused_where_it_would_take_too_much_memory(
    scheduler: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scheduler must not end because somebody asks."""
    monkeypatch.setattr(explainer, "HOLDERS_LIMIT", 0)
    running(scheduler.api, "one", "exact", "GPU-a", 3000, kind="ReplicaSet")
    await until_held(scheduler, "one")

    assert (400, "1 Pods and claims hold devices: a plan is made for at most 0\n") == await asked(scheduler, {})
