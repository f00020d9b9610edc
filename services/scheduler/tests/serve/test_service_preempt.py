"""
The verbs preempt and prioritize of a running scheduler.
"""

from typing import Any

import pytest

from testbed.waiting import eventually

from ..support.builders import a_container, a_pod
from ..support.service import Running, running


async def test_kube_scheduler_asks_by_uid_or_with_whole_pods(scheduler: Running) -> None:
    """`nodeCacheCapable` decides which; the answer is by UID, with the count of violated budgets as it came."""
    resident = a_pod("resident", node="exact", allocated="GPU-a,NVIDIA,16000,0:;")
    scheduler.api.put("pods", resident)
    await eventually(lambda: scheduler.cluster.ledger.grant("uid-resident"))
    pod = a_pod("high")
    pod["spec"]["priority"] = 5
    meta = {"Pods": [{"UID": "cpu"}], "NumPDBViolations": 2}
    whole = {"Pods": [{"metadata": {"uid": "uid-resident"}}], "NumPDBViolations": 0}

    named = {"NodeNameToMetaVictims": {"exact": meta, "ghost": meta}}
    answer = await scheduler.post("/preempt", {"Pod": pod, "NodeNameToVictims": None, **named})
    assert {"exact": {"Pods": [{"UID": "cpu"}, {"UID": "uid-resident"}], "NumPDBViolations": 2}} == answer[
        "NodeNameToMetaVictims"
    ]
    answer = await scheduler.post("/preempt", {"Pod": pod, "NodeNameToVictims": {"exact": whole}})
    assert {"exact": {"Pods": [{"UID": "uid-resident"}], "NumPDBViolations": 0}} == answer["NodeNameToMetaVictims"]
    plain = a_pod("plain", a_container())
    answer = await scheduler.post("/preempt", {"Pod": plain, **named})
    assert {"exact", "ghost"} == set(answer["NodeNameToMetaVictims"])


async def test_end_that_the_watch_has_not_brought_counts(scheduler: Running) -> None:
    """kube-scheduler asks because a Pod ended, and would not ask again for minutes."""
    for name in ("ended", "resident"):
        scheduler.api.put("pods", a_pod(name, node="exact", allocated="GPU-a,NVIDIA,8000,0:;"))
        await eventually(lambda: scheduler.cluster.ledger.grant(f"uid-{name}"))  # noqa: B023
    question = {"Pod": a_pod("p"), "NodeNameToMetaVictims": {"exact": {"Pods": [{"UID": "cpu"}]}}}
    assert {} == (await scheduler.post("/preempt", question))["NodeNameToMetaVictims"]

    scheduler.api.is_silent = True
    scheduler.api.remove("pods", "default/ended")

    assert {"exact"} == set((await scheduler.post("/preempt", question))["NodeNameToMetaVictims"])


async def test_preemption_is_judged_while_pods_cannot_be_read(scheduler: Running) -> None:
    """By what the watch has brought."""
    scheduler.api.put("pods", a_pod("resident", node="exact", allocated="GPU-a,NVIDIA,16000,0:;"))
    await eventually(lambda: scheduler.cluster.ledger.grant("uid-resident"))
    question = {"Pod": a_pod("p"), "NodeNameToMetaVictims": {"exact": {"Pods": [{"UID": "cpu"}]}}}

    scheduler.api.fail("/pods", 403)

    assert {} == (await scheduler.post("/preempt", question))["NodeNameToMetaVictims"]


async def test_pod_goes_where_kube_scheduler_chose(api: Any, tmp_path: Any) -> None:
    """With `--prioritize` every Node that fits is named and ranked, nothing is reserved, and the bind decides there."""
    async with running(api, tmp_path, prioritizes=True) as scheduler:
        pod = scheduler.api.pod("p")
        answer = await scheduler.filter(pod, "exact", "locked", "ghost")
        assert ["exact", "locked"] == answer["NodeNames"]
        assert {"ghost": "node unregistered"} == answer["FailedNodes"]
        assert 0 == len(scheduler.cluster.reservations)

        scores: Any = await scheduler.post("/prioritize", {"Pod": pod, "NodeNames": answer["NodeNames"]})
        assert [{"Host": "exact", "Score": 0}, {"Host": "locked", "Score": 0}] == scores
        assert "" == await scheduler.bind(pod, "exact")
        assert 1 == len(scheduler.api.writes)


async def test_node_objects_are_ranked_too(scheduler: Running) -> None:
    """kube-scheduler sends them where `nodeCacheCapable` is not set."""
    nodes = {"items": [scheduler.api.objects["nodes"]["exact"]]}

    scores: Any = await scheduler.post("/prioritize", {"Pod": a_pod(), "Nodes": nodes})
    assert [{"Host": "exact", "Score": 0}] == scores


@pytest.mark.parametrize("path", ["/prioritize", "/preempt"])
async def test_answers_without_a_place_for_errors_are_statuses(scheduler: Running, path: str) -> None:
    """kube-scheduler takes anything but 200 for one."""
    odd = a_pod(annotations={"hami.io/device-scoring-weights": "x"})
    for body, status, text in ((b"{", 400, "must be JSON"), ({"Pod": odd}, 503, "device-scoring-weights")):
        data: Any = {"data": body} if isinstance(body, bytes) else {"json": body}
        async with scheduler.session.post(scheduler.url + path, **data) as answer:
            assert (status, True) == (answer.status, text in await answer.text())
