"""
The text of a scrape is the one that prometheus_client writes.
"""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Histogram, Info
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar, Sample

from hamicommon.runtime.serving.exposition import encoder
from hamicommon.runtime.serving.samples import set_samples

ACCEPTS = {
    "any": "*/*",
    "none": "",
    "text": "text/plain;version=1.0.0;escaping=allow-utf-8",
    "open": "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,text/plain;version=0.0.4;q=0.3",
    "open-older": "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75",
    "dots": "application/openmetrics-text;version=1.0.0;escaping=dots",
    "values": "text/plain;version=1.0.0;escaping=values",
}
in_every_form = pytest.mark.parametrize("accept", ACCEPTS.values(), ids=ACCEPTS)


class Families(Collector):
    """A registry of these families."""

    def __init__(self, *families: Metric) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def assert_same(accept: str, *families: Metric) -> None:
    """Fail unless *families* are written as by prometheus_client."""
    encode, content_type = choose_encoder(accept)
    write, own_content_type = encoder(accept)

    assert (encode(Families(*families)), content_type) == (b"".join(write(families)), own_content_type)


def a_gauge(*values: str, name: str = "hami_used_bytes", label: str = "pod", value: float = 1) -> GaugeMetricFamily:
    """Return a family with a sample for each value of its label."""
    family = GaugeMetricFamily(name, "Used.", labels=(label, "device_uuid"))
    for one in values:
        family.add_metric((one, "GPU-a"), value)
    return family


def a_family(*samples: Sample) -> Metric:
    """Return a gauge with exactly these samples."""
    family = Metric("g", "Help \\ with\nbreaks", "gauge")
    family.samples = list(samples)
    return family


@in_every_form
@pytest.mark.parametrize("value", ["a", "", 'a"b', "a\\", "a\nb", "a\rb", "%s", "{}", "é\U0001f600"])
def test_label_values_are_escaped(accept: str, value: str) -> None:
    """Some values of a family need an escape, and others do not."""
    assert_same(accept, a_gauge("first", value, "last"))


@in_every_form
@pytest.mark.parametrize(
    "value",
    [
        0.0,
        -0.0,
        1,
        True,
        2**63,
        2**53 + 1,
        999_999.5,
        1e6,
        1234567.5,
        1e-9,
        -1e9,
        float("inf"),
        -float("inf"),
        float("nan"),
    ],
)
def test_numbers_are_written_as_go_writes_them(accept: str, value: float) -> None:
    """Large ones have an exponent."""
    assert_same(accept, a_gauge("a", value=value))


@in_every_form
@pytest.mark.parametrize(
    "family",
    [
        pytest.param(a_gauge(), id="empty"),
        pytest.param(a_gauge("a", name="with.dots:and_colon"), id="name"),
        pytest.param(a_gauge("a", label="with.dots"), id="label"),
        pytest.param(a_gauge("a", label="__reserved"), id="reserved-label"),
        pytest.param(CounterMetricFamily("c", "Counted.", value=3, created=5), id="created"),
        pytest.param(a_family(Sample("g", {}, 1, 12.5), Sample("g", {}, 2)), id="timestamp"),
        pytest.param(a_family(Sample("g", {"a": "1"}, 1), Sample("g", {"b": "2", "a": "1"}, 1)), id="uneven-labels"),
        pytest.param(a_family(Sample("other", {"a": "1"}, 1), Sample("g_gsum", {}, 1)), id="other-names"),
    ],
)
def test_unusual_families_are_left_to_prometheus_client(accept: str, family: Metric) -> None:
    """And stand between the others in their place."""
    assert_same(accept, a_gauge("a"), family, a_gauge("b"))


@in_every_form
@pytest.mark.parametrize(
    "family", [Metric("g", "Used.", "gauge"), CounterMetricFamily("c", "Counted."), Metric("a.b", "Odd.", "gauge")]
)
def test_samples_that_share_labels_are_written_as_any(accept: str, family: Metric) -> None:
    """Two families may share their labels; a value that is unknown is left out, and one to escape is escaped."""
    plain, odd = {"pod": "a", "device": "GPU-a"}, {"pod": 'a"b', "device": "GPU-a"}
    other = GaugeMetricFamily("other", "Other.")
    set_samples(other, [(plain, 2**40)])
    set_samples(family, [(plain, 0.5), ({"pod": "c"}, None), (odd, -1)])

    assert 2 == len(family.samples)
    assert Sample(f"{family.name}_total" if family.type == "counter" else family.name, odd, -1) in family.samples
    assert_same(accept, other, family)


@in_every_form
def test_every_kind_of_metric_is_written(accept: str) -> None:
    """Counters with a time of creation, histograms with an exemplar, and information."""
    registry = CollectorRegistry()
    Counter("done", "Done.", ("result",), registry=registry).labels("ok").inc()
    Histogram("took_seconds", "Took.", ("verb",), registry=registry).labels("get").observe(0.3, {"trace": "1"})
    Info("build", "Build.", registry=registry).info({"version": "1"})

    assert_same(accept, *registry.collect())


@in_every_form
def test_exemplar_of_a_counter_is_kept(accept: str) -> None:
    """OpenMetrics has them, the older format does not."""
    family = Metric("c", "Counted.", "counter")
    family.samples = [Sample("c_total", {"a": "1"}, 1, None, Exemplar({"trace": "x"}, 1.0))]

    assert_same(accept, family)


@in_every_form
@given(samples=st.lists(st.tuples(st.dictionaries(st.sampled_from("abc"), st.text()), st.floats()), max_size=8))
@pytest.mark.property
def test_any_labels_and_values_are_written_the_same(accept: str, samples: list[tuple[dict[str, str], float]]) -> None:
    """Whatever a label holds."""
    assert_same(accept, a_family(*(Sample("g", labels, value) for labels, value in samples)))
