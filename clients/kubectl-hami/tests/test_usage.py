"""
Device-hours, from the monitors, an archive and Prometheus.
"""

import json
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from kubectl_hami.answer.usage import hours, ordered, totals
from kubectl_hami.commands.usage import span
from kubectl_hami.main import parser
from kubectl_hami.values.cluster import ClusterSnapshot

from .builders import a_cluster, a_node
from .prometheus import Prometheus

HELD, USED = "hami_namespace_held_seconds_total", "hami_namespace_used_seconds_total"


def counted(node: str, namespace: str, held_seconds: float, used_seconds: float = 0, model: str = "T4") -> bytes:
    """Return the scrape of a Node on which one namespace has held a model."""
    labels = f'{{device_type="{model}",namespace="{namespace}",node="{node}"}}'
    return f"{HELD}{labels} {held_seconds}\n{USED}{labels} {used_seconds}\n".encode()


def added(
    now: ClusterSnapshot, earlier: ClusterSnapshot | None = None, of: str = "namespaces", **options: str
) -> list[tuple[Any, ...]]:
    """Return namespace, model, held and used hours of each row."""
    problems: list[str] = []
    rows = hours(of, totals(of, now, earlier, problems), **options)
    assert [] == problems
    return [(row.namespace, row.model, row.held_hours, row.used_hours) for row in rows]


def test_hours_of_a_namespace_are_those_of_all_nodes() -> None:
    """By model, because a device-hour of each has its price; most held first."""
    monitors = {
        "n1": counted("n1", "a", 3600, 900) + counted("n1", "b", 18000),
        "n2": counted("n2", "a", 1800) + counted("n2", "a", 360, model="A100"),
    }

    rows = added(a_cluster(monitors=monitors))

    assert [("b", "T4", 5.0, 0.0), ("a", "T4", 1.5, 0.25), ("a", "A100", 0.1, 0.0)] == rows
    assert ["a", "a"] == [row[0] for row in added(a_cluster(monitors=monitors), namespace="a")]


def test_idle_closes_the_books_of_a_model() -> None:
    """What was offered is what was held and what was idle."""
    names = {"offered": 7200, "held": 5400, "idle": 1800}
    labels = '{device_type="T4",device_uuid="GPU-a",node="n1"}'
    scrape = "".join(f"hami_device_{name}_seconds_total{labels} {value}\n" for name, value in names.items()).encode()

    [row] = hours(
        "models", totals("models", a_cluster(monitors={"n1": scrape + counted("n1", "a", 5400, 3600)}), None, [])
    )

    assert (2.0, 1.5, 0.5, 1.0) == (row.offered_hours, row.held_hours, row.idle_hours, row.used_hours)


def test_hours_since_an_archive_are_what_was_added() -> None:
    """A Node that joined since counts whole; a counter whose file was lost began at zero."""
    earlier = a_cluster(
        nodes=(a_node("n1"), a_node("n2")),
        monitors={"n1": counted("n1", "a", 3600, 1800), "n2": counted("n2", "a", 36000)},
    )
    monitors = {
        "n1": counted("n1", "a", 7200, 2700),
        "n2": counted("n2", "a", 3600),
        "n3": counted("n3", "b", 360),
    }

    assert [("a", "T4", 2.0, 0.25), ("b", "T4", 0.1, 0.0)] == added(a_cluster(monitors=monitors), earlier)


@pytest.mark.parametrize("nodes", [(), (a_node("n1"),)], ids=["Nodes unknown", "monitor silent"])
def test_node_that_the_archive_did_not_measure_is_left_out_and_named(nodes: tuple[dict[str, Any], ...]) -> None:
    """Its counters may be years old."""
    problems: list[str] = []
    now, earlier = a_cluster(monitors={"n1": counted("n1", "a", 3600)}), a_cluster(nodes=nodes)

    assert [] == list(totals("namespaces", now, earlier, problems))
    assert ["node n1 is left out: the archive has no metrics of its monitor"] == problems


def test_answer_that_is_no_scrape_is_left_out_and_named() -> None:
    """The others still count."""
    problems: list[str] = []
    now = a_cluster(monitors={"n1": f"{HELD}{{".encode(), "n2": counted("n2", "a", 3600)})

    assert 1 == len(hours("namespaces", totals("namespaces", now, None, problems)))
    assert ["node n1 is left out: its monitor's answer is not in Prometheus' text format"] == problems


def run(*arguments: str) -> int:
    """Run the command."""
    options = parser().parse_args(["usage", *arguments])
    code: int = options.command(options)
    return code


def test_prometheus_knows_the_hours_of_a_span(prometheus: Prometheus, capsys: pytest.CaptureFixture[str]) -> None:
    """No cluster is read for it."""
    labels = {"namespace": "team-a", "device_type": "T4"}
    for metric, seconds in ((HELD, 86400), (USED, 43200)):
        result = [{"metric": labels, "value": [1, str(seconds)]}]
        prometheus.answers[metric] = json.dumps({"data": {"result": result}}).encode()

    assert 0 == run("--since", "24h", "--prometheus", prometheus.url)

    assert [
        ["NAMESPACE", "MODEL", "HELD", "h", "USED", "h", "USED", "%"],
        ["team-a", "T4", "24.00", "12.00", "50"],
    ] == [line.split() for line in capsys.readouterr().out.splitlines()]
    asked = urlsplit(prometheus.asked[0])
    assert "/api/v1/query" == asked.path
    assert f"({HELD})[86400s:60s]" in parse_qs(asked.query)["query"][0]


def test_what_prometheus_refuses_is_its_own_sentence(prometheus: Prometheus) -> None:
    """Such as a query with too many samples."""
    prometheus.status, prometheus.answer = 422, b'{"status": "error", "error": "too many samples"}'

    with pytest.raises(Exception, match="refuses: too many samples"):
        run("--since", "52w", "--prometheus", prometheus.url)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--since", "24h"], "keep sums without their history; add --prometheus URL"),
        (["--since", "yesterday"], "neither a span such as 24h nor an archive"),
        (["--since", "1m"], "at least 5m"),
        (["--prometheus", "http://127.0.0.1:1"], "write a span such as 24h"),
        (["--prometheus", "http://127.0.0.1:1", "--since", "24h", "--context", "c"], "is read alone"),
        (["models", "-n", "a"], "give -n with namespaces or pods"),
    ],
)
def test_question_that_nothing_can_answer_says_what_to_add(arguments: list[str], words: str) -> None:
    """Before anything is read."""
    with pytest.raises(Exception, match=words):
        run(*arguments)


def test_span_is_a_number_with_a_unit() -> None:
    """As in Prometheus, whole."""
    assert [5400, 86400, 2592000] == [span(text) for text in ("90m", "24h", "30d")]


def test_nodes_have_what_their_devices_offered_and_who_used_them() -> None:
    """In the order that is asked for; of equal rank in that of names."""

    def scrape(node: str, held_seconds: float, used_seconds: float) -> bytes:
        labels = f'{{device_type="T4",device_uuid="GPU-a",node="{node}"}}'
        device = (
            f"hami_device_offered_seconds_total{labels} 7200\nhami_device_held_seconds_total{labels} {held_seconds}\n"
        )
        return device.encode() + counted(node, "a", 0, used_seconds)

    monitors = {"n1": scrape("n1", 3600, 0), "n2": scrape("n2", 1800, 900)}
    rows = hours("nodes", totals("nodes", a_cluster(monitors=monitors), None, []))

    assert [("n1", 2.0, 1.0, 0.0), ("n2", 2.0, 0.5, 0.25)] == [
        (row.node, row.offered_hours, row.held_hours, row.used_hours) for row in rows
    ]
    assert ["n2", "n1"] == [row.node for row in ordered(rows, "used")]
