"""
Use over time from Prometheus, over real sockets.
"""

import json
from collections.abc import Sequence
from urllib.parse import parse_qs, urlsplit

import pytest

from kubectl_hami.page.history import Use
from kubectl_hami.page.prometheus import (
    DEVICE_BUSY,
    DEVICE_MEMORY,
    LIMIT_BYTES,
    SHARE_BUSY,
    SHARE_MEMORY,
    PrometheusPast,
    query,
)
from kubectl_hami.read.prometheus import PrometheusError

from ..prometheus import Prometheus

MIB = 1 << 20


def values(*pairs: tuple[float, float], **each: Sequence[tuple[float, float]]) -> bytes:
    """Return an answer with the one series of a sum, or with one of *each* device."""
    series: list[tuple[dict[str, str], Sequence[tuple[float, float]]]]
    series = [({}, pairs)] if pairs else [({"device_uuid": uuid}, of_device) for uuid, of_device in each.items()]
    found = [{"metric": labels, "values": [[time, str(value)] for time, value in of]} for labels, of in series]
    return json.dumps({"status": "success", "data": {"result": found}}).encode()


def test_series_of_a_pod_is_its_memory_in_mib_and_its_device_time_in_percent(prometheus: Prometheus) -> None:
    """Six hours up to now, one value a minute, summed over containers and devices; what is missing is unknown."""
    prometheus.answers = {
        SHARE_MEMORY: values((40, 3 * MIB), (100, 5 * MIB)),
        SHARE_BUSY: values((100, 0.25), (160, 0.5)),
    }

    found = PrometheusPast(prometheus.url).pod("team-a", "train", now=30000.0)

    asked = [urlsplit(path) for path in prometheus.asked]
    options = parse_qs(asked[0].query)
    assert ((40.0, 100.0, 160.0), "from Prometheus") == (found.times, found.source)
    assert (Use(3.0, None), Use(5.0, 25.0), Use(None, 50.0)) == found.uses
    assert ["/api/v1/query_range"] * 2 == [one.path for one in asked]
    assert (["8400.0"], ["30000.0"], ["60"]) == (options["start"], options["end"], options["step"])


def test_series_of_the_devices_of_a_node_come_with_two_questions(prometheus: Prometheus) -> None:
    """However many devices it has; what is no number, as after a division by nothing, is unknown."""
    prometheus.answers = {
        DEVICE_MEMORY: values(a=[(40, MIB), (100, 2 * MIB)], b=[(40, 7 * MIB)]),
        DEVICE_BUSY: values(a=[(40, 25.0), (100, float("nan"))], c=[(40, float("inf"))]),
    }

    found = PrometheusPast(prometheus.url).devices("node-a", now=30000.0)

    assert {"a": (Use(1, 25), Use(2, None)), "b": (Use(7, None),), "c": ()} == {
        uuid: series.uses for uuid, series in found.items()
    }
    assert ['sum by (device_uuid) (hami_host_gpu_memory_used_bytes{node="node-a"})'] == parse_qs(
        urlsplit(prometheus.asked[0]).query
    )["query"]
    assert 2 == len(prometheus.asked)


def test_a_pod_that_prometheus_does_not_know_has_no_history(prometheus: Prometheus) -> None:
    """That is no error: it may be a minute old."""
    prometheus.answer = b'{"data": {"result": []}}'

    assert () == PrometheusPast(prometheus.url).pod("team-a", "train", now=0.0).times


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"<html>Sign in", "does not answer as Prometheus does"),
        (b'{"data": {"result": [{"values": [["x"]]}]}}', "does not answer as Prometheus does"),
        (b" " * (LIMIT_BYTES + 2), f"answers with more than {LIMIT_BYTES} bytes"),
    ],
    ids=["login page", "wrong shape", "endless"],
)
def test_an_answer_of_something_else_is_one_sentence(prometheus: Prometheus, answer: bytes, words: str) -> None:
    """It names the server and what is wrong."""
    prometheus.answer = answer

    with pytest.raises(PrometheusError, match=f"{prometheus.url}.*{words}"):
        PrometheusPast(prometheus.url).pod("team-a", "train", now=0.0)


def test_a_prometheus_that_is_not_there_is_one_sentence() -> None:
    """Port 1 of loopback has no server."""
    with pytest.raises(PrometheusError, match=r"Prometheus at http://127\.0\.0\.1:1 does not answer"):
        PrometheusPast("http://127.0.0.1:1").pod("team-a", "train", now=0.0)


def test_names_are_quoted_in_the_query() -> None:
    """A name cannot end its string."""
    assert 'sum(hami_vgpu_memory_used_bytes{namespace="a\\"} or up{x=\\"",pod="p\\\\\\n"})' == query(
        SHARE_MEMORY, namespace='a"} or up{x="', pod="p\\\n"
    )
