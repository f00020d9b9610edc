"""
Plans of moves: what the scheduler is asked, what a person sees, and the lines that carry a plan out.
"""

from typing import Any

import orjson
import pytest

from kubectl_hami import main as program
from kubectl_hami.answer.moves import commands
from kubectl_hami.commands import defragment
from kubectl_hami.commands.command_line import BAD, UNKNOWN, WELL
from kubectl_hami.read.scheduler import move_plan
from kubectl_hami.read.source import Endpoint, ReadError

from .fakes import FakeSource, a_service
from .test_hostile import HOSTILE, OBEYED

BUDGETS = "/apis/policy/v1/poddisruptionbudgets"
BUDGET = {
    "metadata": {"namespace": "team-a", "name": "b", "generation": 2, "managedFields": [{}]},
    "spec": {"selector": {"matchLabels": {"app": "web"}}, "minAvailable": 1},
    "status": {"observedGeneration": 2, "disruptionsAllowed": 1, "currentHealthy": 2},
}


def a_spot(node: str, *indexes: int) -> dict[str, Any]:
    """Return devices of a Node."""
    return {"node": node, "devices": [{"id": f"GPU-{node}{index}", "index": index} for index in indexes]}


def a_plan(**parts: Any) -> dict[str, Any]:
    """Return a plan that moves one Pod for another."""
    move = {"namespace": "team-a", "pod": "web-1", "owner": "ReplicaSet/web", "gains": ["team-b/large"]}
    return {
        "goal": "pods",
        "moves": [{**move, "leaves": a_spot("node-a", 0), "gets": a_spot("node-b", 1)}],
        "fits": [{"namespace": "team-b", "pod": "large", "gets": a_spot("node-a", 0)}],
        "empties": [],
        "cordons": [{"node": "node-a", "devices": ["GPU-node-a0"], "before": []}],
        "fixed": [],
        "fixedCount": 0,
        "tries": 12,
        "isBest": True,
        **parts,
    }


class Asked(FakeSource):
    """A cluster whose scheduler answers *plan*, and that remembers the question."""

    def __init__(self, plan: Any, budgets: Any = None) -> None:
        scheduler = a_service("scheduler", "s", explain=9396)
        answers = {BUDGETS: {"items": [BUDGET]} if budgets is None else budgets, "/api/v1/pods": {"items": [scheduler]}}
        super().__init__(answers, {("s", "/defragment"): plan})
        self.question: Any = None

    def ask(self, endpoint: Endpoint, path: str, body: bytes | None = None) -> bytes:
        """Answer, and remember the question."""
        self.question = orjson.loads(body or b"null")
        return super().ask(endpoint, path, body)


def run(monkeypatch: pytest.MonkeyPatch, source: FakeSource, *arguments: str) -> int:
    """Run the command on *source*."""
    monkeypatch.setattr(defragment, "one_source", lambda _options: source)
    monkeypatch.setattr("sys.argv", ["kubectl-hami", "defragment", *arguments])
    return program.main()


def test_question_names_the_pods_and_brings_what_is_read_of_the_budgets(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scheduler has no right to read budgets; the caller has."""
    source = Asked(a_plan())

    assert WELL == run(monkeypatch, source, "large", "pod/other", "-n", "team-b", "--moves", "7")

    assert {"pods": [{"namespace": "team-b", "name": "large"}, {"namespace": "team-b", "name": "other"}]}.items() <= (
        source.question.items()
    )
    assert ("devices", 7) == (source.question["empty"], source.question["moves"])
    assert source.question["budgets"] == [
        {
            "metadata": {"namespace": "team-a", "name": "b", "generation": 2},
            "spec": {"selector": {"matchLabels": {"app": "web"}}},
            "status": {"observedGeneration": 2, "disruptionsAllowed": 1},
        }
    ]


def test_plan_is_a_table_with_its_gain_and_the_lines_that_carry_it_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the order in which they must be run."""
    run(monkeypatch, Asked(a_plan()), "large", "-n", "team-b")

    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["NAMESPACE", "POD", "OWNER", "FROM", "TO", "GAIN"] == rows[0]
    assert ["team-a", "web-1", "ReplicaSet/web", "node-a/0", "node-b/1", "team-b/large", "fits"] == rows[1]
    assert ["team-b/large", "would", "get", "node-a/0"] in rows
    words = ["annotate", "label", "annotate"]
    assert words == [row[1] for row in rows if row[:1] == ["kubectl"]]


def test_lines_close_devices_mark_pods_and_open_what_was_open_before() -> None:
    """What somebody else has closed stays closed."""
    moves = [{"namespace": namespace, "pod": pod} for namespace, pod in (("n", "x"), ("m", "z"), ("n", "y"))]
    cordons = [
        {"node": "a", "devices": ["GPU-2"], "before": ["GPU-1"]},
        {"node": "b", "devices": ["GPU-3", "GPU-4"], "before": []},
    ]

    assert (
        "kubectl annotate --overwrite node a hami.io/device-cordon=GPU-1,GPU-2",
        "kubectl annotate --overwrite node b hami.io/device-cordon=GPU-3,GPU-4",
        "kubectl label --overwrite pods --namespace n x y hami.io/eviction-plan=defragment"
        "  # the descheduler evicts them",
        "kubectl label --overwrite pods --namespace m z hami.io/eviction-plan=defragment"
        "  # the descheduler evicts them",
        "kubectl annotate --overwrite node a hami.io/device-cordon=GPU-1  # once all of them run again",
        "kubectl annotate --overwrite node b hami.io/device-cordon-",
    ) == commands({"moves": moves, "cordons": cordons})


def test_pod_that_would_still_wait_is_bad_news(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With who stays, why, and that the search ended early."""
    fixed = [{"namespace": "n", "pod": f"p{number}", "node": "a", "why": "it is bare"} for number in range(3)]
    fits = [{"namespace": "team-b", "pod": "large", "gets": None}]
    plan = a_plan(moves=[], cordons=[], fits=fits, fixed=fixed, fixedCount=3, isBest=False)

    assert BAD == run(monkeypatch, Asked(plan), "large")

    assert capsys.readouterr().out.splitlines() == [
        "team-b/large would still wait: no moves were found that let it fit",
        "the search ended after 12 tries or at --moves: there may be a better plan",
        "3 holders of devices must stay where they are:",
        "  n/p0 and 2 more: it is bare",
    ]


def test_pod_that_fits_now_needs_no_move(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """And nothing is proposed."""
    assert WELL == run(monkeypatch, Asked(a_plan(moves=[], cordons=[])), "large")

    assert "team-b/large would get node-a/0 now, without a move\n" == capsys.readouterr().out


@pytest.mark.parametrize(
    ("goal", "empties", "words", "code"),
    [
        ("devices", [a_spot("node-a", 0)], "1 device would become empty with 1 move", WELL),
        ("nodes", [a_spot("a", 0, 1), a_spot("b", 0)], "2 nodes would become empty with 1 move", WELL),
        ("devices", [], "0 devices would become empty with 1 move", BAD),
    ],
)
def test_without_a_pod_devices_or_nodes_become_empty(
    goal: str,
    empties: list[Any],
    words: str,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Nothing to gain is bad news."""
    source = Asked(a_plan(goal=goal, fits=[], empties=empties))

    assert code == run(monkeypatch, source, "--empty", goal)

    assert words in capsys.readouterr().out
    assert ([], goal) == (source.question["pods"], source.question["empty"])


def test_json_has_the_plan_and_its_lines(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """For programs."""
    plan = a_plan()

    run(monkeypatch, Asked(plan), "large", "-o", "json")

    assert {"cluster": "fake", **plan, "commands": list(commands(plan))} == orjson.loads(capsys.readouterr().out)


@pytest.mark.parametrize("form", ["table", "wide", "json", "yaml"])
def test_terminal_gets_nothing_that_it_obeys(
    form: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever tenants call their controllers and budgets."""
    plan = a_plan(fixed=[{"namespace": "n", "pod": "p", "node": "a", "why": HOSTILE}], fixedCount=1)
    plan["moves"][0]["owner"] += HOSTILE

    run(monkeypatch, Asked(plan), "large", "-o", form)

    assert [] == OBEYED.findall(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        pytest.param(("large", "--empty", "nodes"), "--empty nodes: give it without a POD", id="two goals"),
        pytest.param(("deploy/large",), "'deploy/large' is not the name of a Pod", id="no Pod"),
        pytest.param(("--from", "x.tar.gz"), "--from: a plan needs the scheduler of a cluster", id="archive"),
    ],
)
def test_wrong_question_is_one_sentence(
    arguments: tuple[str, ...], words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before anything is read."""
    assert UNKNOWN == run(monkeypatch, FakeSource({}), *arguments)

    assert words in capsys.readouterr().err


def test_plan_without_the_right_to_list_budgets_is_refused() -> None:
    """It might evict more of a budget's Pods than it allows."""
    source = Asked(a_plan(), ReadError(BUDGETS, "poddisruptionbudgets.policy is forbidden", 403))

    with pytest.raises(ReadError, match="is forbidden"):
        move_plan(source, {})
    assert source.question is None


def test_scheduler_that_plans_nothing_is_said_to_be_older() -> None:
    """It has no such path."""
    with pytest.raises(ReadError, match="is of an older version, which plans no moves"):
        move_plan(Asked(ReadError("Pod hami/s, port 9396", "404: Not Found", 404)), {})
