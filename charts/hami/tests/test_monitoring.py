"""
Dashboards and alerts query exported metrics, and Prometheus may scrape them.
"""

import json
import re

import pytest
import yaml

from .chart import CHART, needs_helm, objects, one, pod_spec

SERVICES = ("webhook", "scheduler", "device-plugin", "monitor")
ALERTS = yaml.safe_load((CHART / "alerts.yaml").read_text())
USAGE_RULES = yaml.safe_load((CHART / "usage-rules.yaml").read_text())
DASHBOARDS = {file.name: json.loads(file.read_text()) for file in sorted(CHART.glob("dashboards/*.json"))}
OF_A_HISTOGRAM = re.compile(r"_(bucket|sum|count)$")
EVERYTHING = ("--values", str(CHART / "ci/monitored-values.yaml"))


def exported() -> set[str]:
    """Return the metrics in the services' READMEs, which other tests compare with a scrape."""
    readmes = [(CHART.parents[1] / "services" / name / "README.md").read_text() for name in SERVICES]
    return {name for readme in readmes for name in re.findall(r"`(hami_[a-z_]+)[`{]", readme)}


def asked(expression: str) -> set[str]:
    """Return the metrics in a query."""
    found = set(re.findall(r"(?<![:\w])hami_[a-z_]+", expression))
    return {OF_A_HISTOGRAM.sub("", name) if name not in exported() else name for name in found}


def label_values(metric: str, label: str) -> set[str]:
    """Return the values of *label* of *metric* in the services' READMEs, which other tests compare with the code."""
    readmes = [(CHART.parents[1] / "services" / name / "README.md").read_text() for name in SERVICES]
    rows = [row for readme in readmes for row in readme.splitlines() if f"`{metric}`" in row.partition(" | ")[0]]
    listed = re.findall(rf"`{label}`: ((?:`[^`]+`(?:, )?)+)", "\n".join(rows))
    return {value for values in listed for value in re.findall(r"`([^`]+)`", values)}


def asked_values(expression: str) -> set[tuple[str, str, str]]:
    """Return each metric, label and value in a query, without dashboard variables."""
    return {
        (OF_A_HISTOGRAM.sub("", metric) if metric not in exported() else metric, label, value)
        for metric, selector in re.findall(r"\b(hami_[a-z_]+)\{([^}]*)\}", expression)
        for label, values in re.findall(r'([a-z_]+)\s*(?:=~|!~|!=|=)\s*"([^"]*)"', selector)
        for value in values.split("|")
        if not value.startswith("$")
    }


RECORDED = {rule["record"]: rule["expr"] for group in USAGE_RULES["groups"] for rule in group["rules"]}
QUERIES = {
    **RECORDED,
    **{rule["alert"]: rule["expr"] for group in ALERTS["groups"] for rule in group["rules"]},
    **{
        f"{name}: {panel['title']} {target['refId']}": target["expr"]
        for name, board in DASHBOARDS.items()
        for panel in board["panels"]
        for target in panel["targets"]
    },
}


@pytest.mark.parametrize("where", QUERIES)
def test_queried_metrics_exist(where: str) -> None:
    """A renamed metric empties a panel and silences an alert. Prometheus itself writes `up`."""
    recorded = re.findall(r"\w+:\w+:\w+", QUERIES[where])
    assert asked(QUERIES[where]) or recorded or re.search(r"\bup\b", QUERIES[where])
    assert set(recorded) <= RECORDED.keys()
    assert set() == asked(QUERIES[where]) - exported()


@pytest.mark.parametrize("where", [where for where in QUERIES if asked_values(QUERIES[where])])
def test_queried_label_values_exist(where: str) -> None:
    """An unknown label value empties a panel and silences an alert."""
    for metric, label, value in asked_values(QUERIES[where]):
        assert value in label_values(metric, label), f"{metric}{{{label}}}"


@needs_helm
def test_alerts_find_services_by_the_jobs_that_pod_monitors_give() -> None:
    """The job is a label of the Pods; the Node is one of the targets on Nodes."""
    pod_monitors = {name: one("PodMonitor", f"hami-{name}", *EVERYTHING)["spec"] for name in SERVICES}
    labels = {found["selector"]["matchLabels"][found["jobLabel"]] for found in pod_monitors.values()}
    node = {"sourceLabels": ["__meta_kubernetes_pod_node_name"], "targetLabel": "node"}
    with_node = {
        name for name, found in pod_monitors.items() if node in found["podMetricsEndpoints"][0].get("relabelings", [])
    }

    for query in QUERIES.values():
        for pattern in re.findall(r'job=~?"([^"]+)"', query):
            assert any(re.fullmatch(pattern, label) for label in labels), pattern
    assert {f"hami-{name}" for name in with_node} == set(re.findall(r'job="([^"]+)"', QUERIES["HamiNodeWithoutPlugin"]))
    assert all(re.search(rf"hami-\(.*\b{name}\b.*\)", QUERIES["HamiServiceDown"]) for name in SERVICES)


def test_bind_alert_queries_failed_binds() -> None:
    """The alert queries the outcome of a failed bind."""
    assert {("hami_scheduler_bind_seconds", "outcome", "error")} == asked_values(QUERIES["HamiBindErrors"])
    assert {"ok", "error"} == label_values("hami_scheduler_bind_seconds", "outcome")


@pytest.mark.parametrize("name", DASHBOARDS)
def test_dashboard_works_in_any_grafana(name: str) -> None:
    """It has no fixed data source, no foreign id, and no panel twice."""
    board = DASHBOARDS[name]

    assert {"id", "uid"}.isdisjoint(board)
    assert {"$datasource"} == {panel["datasource"]["uid"] for panel in board["panels"]}
    assert len(board["panels"]) == len({panel["id"] for panel in board["panels"]})


def test_alert_has_summary_description_and_severity() -> None:
    """The person on call needs a summary, a description and a severity."""
    for rule in (rule for group in ALERTS["groups"] for rule in group["rules"]):
        assert rule["labels"]["severity"] in {"critical", "warning"}
        assert {"summary", "description"} == set(rule["annotations"])


@needs_helm
def test_alerts_rules_and_dashboards_are_rendered_unchanged() -> None:
    """Helm does not render the braces of Prometheus and Grafana."""
    dashboards = one("ConfigMap", "hami-dashboards", *EVERYTHING)["data"]

    assert ALERTS == one("PrometheusRule", "hami-alerts", *EVERYTHING)["spec"]
    assert USAGE_RULES == one("PrometheusRule", "hami-usage-rules", *EVERYTHING)["spec"]
    assert DASHBOARDS == {name: json.loads(text) for name, text in dashboards.items()}


@needs_helm
@pytest.mark.parametrize("service", SERVICES)
def test_metrics_port_is_the_same_everywhere(service: str) -> None:
    """Container, PodMonitor and NetworkPolicy name the same port."""
    workload = next(
        o
        for o in objects(*EVERYTHING)
        if o["kind"] in {"Deployment", "DaemonSet"} and o["metadata"]["name"] == f"hami-{service}"
    )
    ports = {port["name"]: port["containerPort"] for port in pod_spec(workload)["containers"][-1]["ports"]}
    monitor = one("PodMonitor", f"hami-{service}", *EVERYTHING)["spec"]
    policy = one("NetworkPolicy", f"hami-{service}", *EVERYTHING)["spec"]

    assert "metrics" == monitor["podMetricsEndpoints"][0]["port"]
    assert ports["metrics"] == policy["ingress"][0]["ports"][0]["port"]
    assert monitor["selector"] == policy["podSelector"] == workload["spec"]["selector"]
