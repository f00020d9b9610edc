"""
Alerts fire when they should and not before, and device-hours are right, by Prometheus' own evaluation.
"""

import json
import re
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from kubectl_hami.answer.usage import COUNTERS, query

from .chart import CHART
from .promtool import MissingError, promtool

ALERTS = yaml.safe_load((CHART / "alerts.yaml").read_text())
USAGE_RULES = yaml.safe_load((CHART / "usage-rules.yaml").read_text())
PAGE = (CHART.parents[1] / "docs/usage.md").read_text()
NAMES = [rule["alert"] for group in ALERTS["groups"] for rule in group["rules"]]

PLUGIN = 'up{job="hami-device-plugin", namespace="hami", node="n1", instance="p"}'
OTHER = 'up{job="hami-device-plugin", namespace="hami", node="n2", instance="q"}'
MONITOR = 'up{job="hami-monitor", namespace="hami", node="n1", instance="m"}'
SHARE = 'namespace="ns", pod="p", container="c", device_uuid="GPU-a"'


class Case(NamedTuple):
    """Series over time, and when an alert must be silent and when it must fire."""

    alert: str
    series: dict[str, str]
    silent: str
    fires: str


CASES = [
    Case("HamiServiceDown", {'up{job="hami-webhook", namespace="hami"}': "1x10 0x60"}, "14m", "20m"),
    Case("HamiNoLeader", {'hami_scheduler_leader{namespace="hami", instance="a"}': "1x10 0x60"}, "12m", "14m"),
    Case("HamiNodeWithoutPlugin", {MONITOR: "1x60", PLUGIN: "1x10 0x60", OTHER: "1x60"}, "20m", "30m"),
    Case(
        "HamiKubeletRejectsPods",
        {'hami_scheduler_kubelet_rejections_total{namespace="hami", instance="a"}': "0x20 2 4 6 8x60"},
        "20m",
        "26m",
    ),
    Case(
        "HamiContainerWithoutDevices",
        {'hami_device_plugin_unserved_containers{node="n1"}': "0x10 1x60"},
        "9m",
        "12m",
    ),
    Case("HamiPodWaits", {'hami_scheduler_longest_wait_seconds{namespace="hami"}': "0+60x100"}, "64m", "70m"),
    Case("HamiLedgerDrift", {'hami_scheduler_ledger_drift_total{instance="a"}': "0x20 1x60"}, "20m", "22m"),
    Case(
        "HamiGrantedAboveCapacity",
        {'hami_scheduler_devices_above_capacity{namespace="hami", instance="a"}': "0x10 1x60"},
        "10m",
        "13m",
    ),
    Case("HamiTakeoverStuck", {'hami_scheduler_unfenced_pods{namespace="hami"}': "0x10 40x60"}, "11m", "14m"),
    Case("HamiSchedulerBlind", {'hami_scheduler_watch_age_seconds{collection="pods"}': "0+60x60"}, "10m", "12m"),
    Case(
        "HamiBindErrors",
        {
            'hami_scheduler_bind_seconds_count{outcome="ok"}': "0+8x90",
            'hami_scheduler_bind_seconds_count{outcome="error"}': "0x30 0+2x60",
        },
        "30m",
        "80m",
    ),
    Case("HamiUnreadableObjects", {'hami_scheduler_contained_problems_total{kind="Pod"}': "0x20 1x60"}, "20m", "22m"),
    Case(
        "HamiCertificateEnds",
        {'hami_webhook_certificate_expiry_timestamp_seconds{instance="a"}': f"{7 * 86400 + 1200}x60"},
        "20m",
        "21m",
    ),
    Case("HamiPodsPassBy", {'hami_webhook_unasked_resources{instance="a"}': "0x10 2x60"}, "20m", "22m"),
    Case("HamiDeviceConfigRefused", {'hami_device_config_refused{instance="a"}': "0x10 1x60"}, "15m", "17m"),
    Case(
        "HamiNotRegistered",
        {'hami_device_plugin_registrations_total{result="error", instance="p"}': "0x10 0+1x60"},
        "12m",
        "20m",
    ),
    Case(
        "HamiAllocationErrors",
        {'hami_device_plugin_allocations_total{call="Allocate", result="error"}': "0x10 0+1x60"},
        "12m",
        "20m",
    ),
    Case("HamiDeviceUnhealthy", {'hami_device_plugin_devices{health="unhealthy"}': "0x10 1x60"}, "15m", "17m"),
    Case("HamiDriverSilent", {'hami_monitor_driver_available{instance="m"}': "1x10 0x60"}, "20m", "22m"),
    Case(
        "HamiAccountsStopped", {'hami_monitor_accounts_timestamp_seconds{instance="m"}': "0+60x10 600x60"}, "30m", "32m"
    ),
    Case("HamiRegionsRefused", {'hami_monitor_regions_refused{reason="truncated"}': "0x10 1x60"}, "25m", "27m"),
    Case("HamiOutsideGrant", {f'hami_monitor_watchdog_findings{{{SHARE}, kind="k"}}': "0x10 1x60"}, "11m", "13m"),
    Case(
        "HamiShareExceeded",
        {
            f"hami_vgpu_memory_used_bytes{{{SHARE}}}": "100x10 101x60",
            f"hami_vgpu_memory_limit_bytes{{{SHARE}}}": "100x70",
        },
        "15m",
        "17m",
    ),
]


@pytest.fixture(scope="session", name="promtool")
def promtool_program() -> Path:
    """Return Prometheus' program, or skip the test and say why there is none."""
    try:
        return promtool()
    except MissingError as error:
        pytest.skip(str(error))


def evaluate(program: Path, folder: Path, rules: str, series: dict[str, str], expected: list[dict[str, Any]]) -> None:
    """Let Prometheus evaluate the chart's *rules* over *series*, one value a minute; fail unless that is *expected*."""
    test = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": expected,
    }
    path = folder / "test.yaml"
    path.write_text(yaml.safe_dump({"rule_files": [str(CHART / rules)], "evaluation_interval": "1m", "tests": [test]}))
    done = subprocess.run([program, "test", "rules", path], capture_output=True, text=True, check=False)

    assert 0 == done.returncode, done.stdout + done.stderr


def one(expression: str, at: str, *values: float) -> dict[str, Any]:
    """Expect that *expression*, without labels, has *values* at the time *at*."""
    return {"expr": expression, "eval_time": at, "exp_samples": [{"labels": "{}", "value": value} for value in values]}


@pytest.mark.parametrize("rules", ["alerts.yaml", "usage-rules.yaml"])
def test_prometheus_accepts_the_rules(rules: str, promtool: Path) -> None:
    """Expressions, names and templates."""
    done = subprocess.run([promtool, "check", "rules", CHART / rules], capture_output=True, text=True, check=False)

    assert 0 == done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("query", re.findall(r"^```promql\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
def test_query_of_the_page_is_one(query: str, promtool: Path, tmp_path: Path) -> None:
    """It is copied as it is, and asks for series that the chart records."""
    recorded = {rule["record"] for group in USAGE_RULES["groups"] for rule in group["rules"]}
    path = tmp_path / "query.yaml"
    rule = {"record": "query:of:page", "expr": query}
    path.write_text(yaml.safe_dump({"groups": [{"name": "page", "rules": [rule]}]}))
    done = subprocess.run([promtool, "check", "rules", path], capture_output=True, text=True, check=False)

    assert 0 == done.returncode, done.stdout + done.stderr
    assert set(re.findall(r"\w+:\w+:\w+", query)) - recorded <= {"device_type:price_of_a_device_hour:euro"}


@pytest.mark.parametrize("name", ["hami", "usage"])
def test_prometheus_accepts_the_queries_of_a_dashboard(name: str, promtool: Path, tmp_path: Path) -> None:
    """With values for the variables that Grafana fills in."""
    panels = json.loads((CHART / f"dashboards/{name}.json").read_text())["panels"]
    queries = [target["expr"] for panel in panels for target in panel["targets"]]
    filled = [re.sub(r"\$__\w+", "5m", re.sub(r"\$[a-z]\w*", ".*", query)) for query in queries]
    assert not any("$" in query for query in filled)
    path = tmp_path / "queries.yaml"
    rules = [{"record": f"query:number:{number}", "expr": query} for number, query in enumerate(filled)]
    path.write_text(yaml.safe_dump({"groups": [{"name": name, "rules": rules}]}))
    done = subprocess.run([promtool, "check", "rules", path], capture_output=True, text=True, check=False)

    assert 0 == done.returncode, done.stdout + done.stderr


def test_each_alert_has_a_case() -> None:
    """A new alert shows here when it fires."""
    assert sorted(NAMES) == sorted(case.alert for case in CASES)


@pytest.mark.parametrize("case", CASES, ids=[case.alert for case in CASES])
def test_alert_fires_when_it_should_and_not_before(case: Case, promtool: Path, tmp_path: Path) -> None:
    """Once, and only this one."""
    firing = 'count(ALERTS{alertstate="firing"})'
    this = f'count(ALERTS{{alertname="{case.alert}", alertstate="firing"}})'
    expected = [one(firing, case.silent), one(this, case.fires, 1), one(firing, case.fires, 1)]

    evaluate(promtool, tmp_path, "alerts.yaml", case.series, expected)


def held(pod: str) -> str:
    """Return the name of the series of a namespace whose monitor is the Pod *pod*."""
    return f'hami_namespace_held_seconds_total{{node="n1", namespace="team", device_type="T4", instance="{pod}"}}'


def test_device_hours_have_no_gap_when_a_monitor_follows_another(promtool: Path, tmp_path: Path) -> None:
    """Four quarters of a device, for two hours; the second monitor begins where the first has ended."""
    series = {
        held("old"): "0+60x60 stale",
        held("new"): f"_x65 {65 * 60}+60x80",
        'hami_device_offered_seconds_total{node="n1", device_uuid="a", device_type="T4"}': "0+60x150",
        'hami_device_held_seconds_total{node="n1", device_uuid="a", device_type="T4"}': "0+60x150",
        'hami_device_offered_seconds_total{node="n1", device_uuid="b", device_type="T4"}': "0+60x150",
        'hami_device_idle_seconds_total{node="n1", device_uuid="b", device_type="T4"}': "0+60x150",
    }
    hours = "device_type:hami_device_{}_device_hours:increase1h"
    expected = [
        one("sum(namespace_device_type:hami_namespace_held_device_hours:increase1h)", "140m", 1),
        one("round(sum(namespace_device_type:hami_namespace_held_device_hours:increase1h) * 100)", "100m", 100),
        one(f"sum({hours.format('offered')})", "140m", 2),
        one(f"sum({hours.format('held')})", "140m", 1),
        one(f"sum({hours.format('idle')})", "140m", 1),
    ]

    evaluate(promtool, tmp_path, "usage-rules.yaml", series, expected)


def test_command_asks_for_the_device_hours_that_the_rules_record(promtool: Path, tmp_path: Path) -> None:
    """`kubectl hami usage` needs no rule, and joins monitors that follow each other too."""
    series = {held("old"): "0+60x60 stale", held("new"): f"_x65 {65 * 60}+60x80"}
    [counter, _] = COUNTERS["namespaces"]
    promql = query(counter, "namespaces", 7200)

    evaluate(promtool, tmp_path, "usage-rules.yaml", series, [one(f"round(sum({promql}) / 3600 * 100)", "140m", 200)])
