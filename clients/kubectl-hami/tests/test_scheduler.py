"""
Questions to the scheduler.
"""

from threading import Event

import pytest

from kubectl_hami.answer.state import state_of
from kubectl_hami.answer.waits import Remedy, remedies
from kubectl_hami.commands.waiting import Waits, waiting_table
from kubectl_hami.read import scheduler
from kubectl_hami.read.scheduler import explanation, schedulers, simulation
from kubectl_hami.read.source import Endpoint, ReadError
from kubectl_hami.show.table import seconds

from .builders import a_cluster, a_pod, a_refusal
from .fakes import FakeSource, a_service

LEASES = "/apis/coordination.k8s.io/v1/namespaces/hami/leases"


def of_schedulers(*names: str, holder: str = "") -> dict[str, object]:
    """Return the API server's answers about schedulers, of which *holder* leads."""
    return {
        "/api/v1/pods": {"items": [a_service("scheduler", name, explain=9396) for name in names]},
        LEASES: {"items": [{"spec": {"holderIdentity": f"{holder}_1234"}}] if holder else []},
    }


def test_leader_is_asked_first() -> None:
    """It alone knows what it has reserved."""
    found = schedulers(FakeSource(of_schedulers("a", "b", holder="b")))

    assert [Endpoint("hami", "b", 9396), Endpoint("hami", "a", 9396)] == found


def test_another_replica_answers_where_the_leader_does_not() -> None:
    """It knows the cluster as well."""
    answers = of_schedulers("a", "b", holder="b")
    source = FakeSource(answers, {("a", "/explain/ns/p"): {"verdict": "bound"}})

    assert {"verdict": "bound"} == explanation(source, "ns", "p")


def test_another_replica_is_asked_while_the_leader_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its answer does not wait for the leader's end."""
    monkeypatch.setattr(scheduler, "_SILENCE_SECONDS", 0.05)
    hung = Event()

    class Hanging(FakeSource):
        def ask(self, endpoint: Endpoint, path: str, body: bytes | None = None) -> bytes:
            if endpoint.pod == "b":
                hung.wait(20)
            return super().ask(endpoint, path, body)

    source = Hanging(of_schedulers("a", "b", holder="b"), {("a", "/explain/ns/p"): {"verdict": "bound"}})

    try:
        assert {"verdict": "bound"} == explanation(source, "ns", "p")
    finally:
        hung.set()


def test_pod_that_does_not_exist_is_the_schedulers_sentence() -> None:
    """No other replica is asked."""
    missing = ReadError("Pod hami/a, port 9396", "there is no Pod ns/p", 404)
    source = FakeSource(of_schedulers("a", "b"), {("a", "/explain/ns/p"): missing})

    with pytest.raises(ReadError, match=r"^the scheduler: there is no Pod ns/p$"):
        explanation(source, "ns", "p")


def test_without_a_scheduler_the_sentence_says_what_was_looked_for() -> None:
    """The label is what an operator can check."""
    with pytest.raises(ReadError, match=r"no Pod with the label .*=hami-scheduler is running"):
        explanation(FakeSource(of_schedulers()), "ns", "p")


def test_who_may_not_list_all_pods_is_told_what_allows_it() -> None:
    """The answers show Pods of all namespaces, so the rights of one do not suffice."""
    source = FakeSource({"/api/v1/pods": ReadError("/api/v1/pods", "pods is forbidden", 403)})

    with pytest.raises(ReadError, match="which you may not list; the chart's role hami-operator allows it") as caught:
        schedulers(source)

    assert caught.value.is_forbidden


def test_scheduler_without_our_port_is_said_to_be_anothers() -> None:
    """HAMi's scheduler explains nothing."""
    source = FakeSource({"/api/v1/pods": {"items": [a_service("scheduler", "a", metrics=9395)]}})

    with pytest.raises(ReadError, match="no port called explain: they are HAMi's or of an older chart"):
        explanation(source, "ns", "p")


def test_answer_that_is_no_json_is_one_sentence() -> None:
    """Something else may listen there."""
    source = FakeSource(of_schedulers("a"), {("a", "/explain/ns/p"): b"<html>"})

    with pytest.raises(ReadError, match="the answer of Pod hami/a is not JSON"):
        explanation(source, "ns", "p")


def test_scheduler_that_counts_each_object_once_is_said_to_be_older() -> None:
    """One Pod of fifty that fits is no answer about fifty."""
    old = [{"verdict": "fits", "node": "n1"}]
    source = FakeSource(of_schedulers("a"), {("a", "/simulate"): old, ("a", "/simulate?add=1x1+T4%3A16384"): old})

    assert old == simulation(source, [a_pod()])
    for pods, add in (([{**a_pod(), "count": 50}], ()), ([a_pod()], ("1x1 T4:16384",))):
        with pytest.raises(ReadError, match="is of an older version, which counts each object once"):
            simulation(source, pods, add)


def test_refused_pod_has_its_cause_and_its_changes() -> None:
    """In the scheduler's order."""
    report = {
        "verdict": "refused",
        "summary": "0 of 1 nodes: 1 is cordoned",
        "node": None,
        "changes": [{"kind": "cordon", "what": "with GPU-a on node n1 uncordoned", "node": "n1"}],
    }

    expected = Remedy("0 of 1 nodes: 1 is cordoned", ("with GPU-a on node n1 uncordoned (node n1)",), "")
    assert expected == remedies(report)


def test_pod_that_fits_by_now_has_its_node() -> None:
    """It will be scheduled."""
    assert Remedy("", (), "n1", "fits") == remedies({"verdict": "fits", "summary": "fits", "node": "n1", "changes": []})


def row_of(report: dict[str, object]) -> dict[str, str]:
    """Return the row of a Pod that waits, of which the scheduler says *report*, by the heads of its columns."""
    old = a_refusal(message="0 of 1 nodes: 1 lacks 3000 MiB; asked: 1 NVIDIA device")
    state = state_of(a_cluster(pods=(a_pod(),), refusals=(old,)))
    found = waiting_table([Waits(state, {("default", "p"): remedies(report)})])
    return {str(column.header): str(next(iter(column.cells))) for column in found.columns}


@pytest.mark.parametrize("verdict", ["gated", "other-scheduler"])
def test_pod_that_no_scheduler_asks_about_never_fits_now(verdict: str) -> None:
    """Whatever devices are free; the cause is what keeps the scheduler from asking."""
    row = row_of({"verdict": verdict, "summary": "it is held", "node": None, "changes": [], "kubeScheduler": "Blocked"})

    assert ("it is held", "-") == (row["CAUSE"], row["IT WOULD FIT"])


def test_pod_that_fits_as_far_as_is_judged_says_what_is_not() -> None:
    """With kube-scheduler's own words for cause, not those of an older Event."""
    report = {"verdict": "fits", "summary": "fits", "node": "n1", "changes": [], "notJudged": ["pod anti-affinity"]}
    words = "0/1 nodes are available: 1 node(s) didn't match pod anti-affinity rules."

    row = row_of({**report, "kubeScheduler": words})

    assert words == row["CAUSE"]
    assert "now, on node n1, unless kube-scheduler objects (pod anti-affinity)" == row["IT WOULD FIT"]


def test_member_of_a_gang_waits_for_the_one_that_does_not_fit() -> None:
    """The cause has the words on the gang, and the Pod's own Node is no help."""
    gang = "gang ranks (PodGroup): 3 Pods, 0 have a node, 3 wait; m2 fits nowhere beside the others: 0 of 1 nodes"
    row = row_of({"verdict": "gang", "summary": "it waits for m2", "node": None, "changes": [], "gang": gang})

    assert (f"it waits for m2; {gang}", "-") == (row["CAUSE"], row["IT WOULD FIT"])


KUEUE = "/apis/kueue.x-k8s.io/v1beta2/namespaces/ns/workloads"
HELD = {"verdict": "gated", "summary": "ns/p has scheduling gates: kueue.x-k8s.io/admission", "node": None}


def a_workload(pod: str = "p", *conditions: tuple[str, str, str], active: bool = True) -> dict[str, object]:
    """Return a Workload of Kueue for *pod* in the queue `team-a`; each of *conditions* has type, status and message."""
    return {
        "metadata": {"ownerReferences": [{"kind": "Pod", "name": "other"}, {"kind": "Pod", "name": pod}]},
        "spec": {"queueName": "team-a", "active": active},
        "status": {"conditions": [{"type": kind, "status": status, "message": m} for kind, status, m in conditions]},
    }


@pytest.mark.parametrize(
    ("workload", "words"),
    [
        pytest.param(
            a_workload("p", ("QuotaReserved", "False", "4k more needed")),
            "Kueue, queue team-a: 4k more needed",
            id="no quota",
        ),
        pytest.param(
            a_workload("p", ("QuotaReserved", "True", "in team-a"), ("Admitted", "False", "a check is pending")),
            "Kueue, queue team-a: a check is pending",
            id="a check",
        ),
        pytest.param(a_workload(), "Kueue, queue team-a: it has not judged the Pod yet", id="new"),
        pytest.param(a_workload(active=False), "Kueue, queue team-a: its Workload is deactivated", id="deactivated"),
        pytest.param(
            a_workload("p", ("QuotaReserved", "True", ""), ("Admitted", "True", "")),
            "Kueue, queue team-a: it has admitted the Pod, and removes the gate",
            id="admitted",
        ),
        pytest.param(
            a_workload("q"),
            "Kueue: it has no Workload for the Pod yet; of a Pod group, all Pods must exist",
            id="incomplete group",
        ),
    ],
)
def test_pod_gated_by_kueue_has_the_words_of_its_queue(workload: dict[str, object], words: str) -> None:
    """As the cause in `waiting`, too."""
    answers = {**of_schedulers("a"), KUEUE: {"items": [workload]}}

    report = explanation(FakeSource(answers, {("a", "/explain/ns/p"): HELD}), "ns", "p")

    assert (words, words) == (report["queue"], remedies(report).cause)


def test_queue_that_may_not_be_read_is_said_to_be_unknown() -> None:
    """The rest of the report is shown."""
    answers = {**of_schedulers("a"), KUEUE: ReadError(KUEUE, "workloads is forbidden", 403)}

    report = explanation(FakeSource(answers, {("a", "/explain/ns/p"): HELD}), "ns", "p")

    unknown = "Kueue: its reason is unknown, because its Workloads cannot be read: workloads is forbidden"
    assert unknown == report["queue"]


def test_pod_gated_by_another_has_no_words_of_kueue() -> None:
    """Kueue is not asked."""
    gated = {**HELD, "summary": "ns/p has scheduling gates: example.com/quota"}

    report = explanation(FakeSource(of_schedulers("a"), {("a", "/explain/ns/p"): gated}), "ns", "p")

    assert gated == report


@pytest.mark.parametrize(("amount", "text"), [(None, "-"), (0.0, "0s"), (61, "1m1s"), (3600, "1h"), (90061, "1d1h")])
def test_spans_are_short(amount: float | None, text: str) -> None:
    """Two units are enough."""
    assert text == seconds(amount)
