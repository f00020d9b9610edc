"""
Labels, annotations and variables of several sources are merged: no key twice, the user's value first, selectors fixed.
"""

from typing import Any

import pytest
import yaml

from .chart import (
    HAMI_DEFAULTS,
    INSTALLATIONS,
    PLATFORMS,
    Json,
    OnceLoader,
    TwiceError,
    everything,
    given,
    needs_helm,
    objects,
    one,
    pod_spec,
)

pytestmark = needs_helm

SELECTING = {"app.kubernetes.io/name", "app.kubernetes.io/instance", "app.kubernetes.io/component"}
"""The labels of the selectors in the chart's Deployments, DaemonSets, Services and PodMonitors."""
OURS = [
    *sorted(SELECTING),
    "app.kubernetes.io/version",
    "app.kubernetes.io/part-of",
    "app.kubernetes.io/managed-by",
    "helm.sh/chart",
    "hami.io/webhook",
]
COMPONENTS = ("webhook", "scheduler", "devicePlugin", "monitor")


def labels(source: str) -> dict[str, str]:
    """Return a label for each key of ours, and one that every source has."""
    return dict.fromkeys([*OURS, "team"], source)


def component(name: str) -> Json:
    """Return a component's values, which overlap with ours, with the common ones and with themselves."""
    twice = [{"name": "NODE_NAME", "value": "first"}, {"name": "NODE_NAME", "value": "last"}]
    ours = [{"name": key, "value": "mine"} for key in ("HOOK_PATH", "HAMI_NODELOCK_EXPIRE", "HAMI_WIRE_VERSION")]
    return {
        "labels": labels(name),
        "annotations": {"note": name},
        "podLabels": labels(f"{name}-pod"),
        "podAnnotations": {"note": name, "checksum/kube-scheduler": "mine"},
        "serviceAccount": {"annotations": {"note": name}},
        "extraEnv": twice + ours,
    }


OVERLAPS: Json = {
    "nameOverride": "123",
    "wireVersion": "2.9",
    "global": {"labels": labels("global"), "annotations": {"note": "global", "cert-manager.io/inject-ca-from": "mine"}},
    **{name: component(name) for name in COMPONENTS},
    "podMonitor": {"enabled": True, "labels": labels("podMonitor")},
    "dashboards": {"enabled": True, "labels": labels("dashboards")},
    "alerts": {"enabled": True, "labels": labels("alerts")},
    "usageRules": {"enabled": True, "labels": labels("usageRules")},
}
OVERLAPS["webhook"] |= {"tls": {"mode": "cert-manager"}, "replicas": 2}
OVERLAPS["scheduler"] |= {
    "replicas": 2,
    "service": {"labels": labels("service"), "annotations": {"note": "service"}},
    "gpuSchedulerPolicy": "topology-aware",
    "kubeScheduler": {"extraEnv": component("kube")["extraEnv"]},
}
OVERLAPS["devicePlugin"] |= {
    "service": {"labels": labels("old-name"), "annotations": {"note": "old-name"}},
    "migStrategy": "mixed",
}


@pytest.fixture(scope="module")
def overlapping() -> tuple[Json, ...]:
    """The objects of an installation in which every source sets the same keys."""
    return everything(*given(OVERLAPS))


def workloads(found: tuple[Json, ...]) -> list[Json]:
    """Return the Deployments and DaemonSets among *found*."""
    return [each for each in found if each["kind"] in ("Deployment", "DaemonSet")]


def test_loader_rejects_a_key_twice() -> None:
    """At any depth, also if both values are equal."""
    with pytest.raises(TwiceError, match=r"b: twice in one map, .*line 1, column 5"):
        yaml.load("a: [{b: 1, b: 1}]", OnceLoader)


@pytest.mark.parametrize(
    "file", [*INSTALLATIONS.values(), *HAMI_DEFAULTS.values(), *PLATFORMS.values()], ids=lambda file: file.stem
)
def test_no_key_is_twice_in_an_example(file: Any) -> None:
    """Each values file in ci/ and platforms/, and HAMi's."""
    assert everything("--values", str(file))


def test_no_key_is_twice_if_all_sources_overlap(overlapping: tuple[Json, ...]) -> None:
    """Common, of a component, of a Pod, under HAMi's names, and the chart's."""
    kinds = {each["kind"] for each in overlapping}

    assert {"Service", "ServiceAccount", "PodMonitor", "PrometheusRule", "ConfigMap", "Certificate"} <= kinds


def test_users_label_overrides_ours(overlapping: tuple[Json, ...]) -> None:
    """The more specific source wins: a component's before the common ones, and all before the chart's."""
    expected = {
        ("Deployment", "webhook"): "webhook",
        ("DaemonSet", "monitor"): "monitor",
        ("Service", "scheduler"): "service",
        ("Service", "device-plugin-monitor"): "old-name",
        ("PodMonitor", "webhook"): "podMonitor",
        ("PrometheusRule", "alerts"): "alerts",
        ("ConfigMap", "dashboards"): "dashboards",
        ("ServiceAccount", "webhook"): "global",
    }
    found = {
        (each["kind"], each["metadata"]["name"].removeprefix("hami-123-").removeprefix("hami-")): {
            each["metadata"]["labels"][key] for key in ("team", "helm.sh/chart", "app.kubernetes.io/part-of")
        }
        for each in overlapping
    }

    assert {key: {value} for key, value in expected.items()} == {key: found[key] for key in expected}


def test_selectors_select_the_pods_whatever_the_labels(overlapping: tuple[Json, ...]) -> None:
    """The labels that select a Pod are the chart's on every object, so nothing loses or gains Pods."""
    pods = [each["spec"]["template"]["metadata"]["labels"] for each in workloads(overlapping)]
    selectors = [each["spec"]["selector"] for each in overlapping if "selector" in each.get("spec", {})]
    selectors = [selector.get("matchLabels", selector) for selector in selectors]

    assert len(workloads(overlapping)) == 4
    assert all(set(selector) == SELECTING for selector in selectors)
    assert all(sum(selector.items() <= pod.items() for pod in pods) == 1 for selector in selectors)
    assert {("123", "hami", f"hami-{name}") for name in ("webhook", "scheduler", "device-plugin", "monitor")} == {
        tuple(pod[f"app.kubernetes.io/{key}"] for key in ("name", "instance", "component")) for pod in pods
    }
    assert {"ignore"} == {pod["hami.io/webhook"] for pod in pods}


def test_users_annotation_overrides_the_common_one(overlapping: tuple[Json, ...]) -> None:
    """What the chart computes stays: the checksum that restarts Pods, and the source of the webhook's CA."""
    (scheduler,) = [each for each in workloads(overlapping) if each["metadata"]["name"].endswith("scheduler")]
    (webhook,) = [each for each in overlapping if each["kind"] == "MutatingWebhookConfiguration"]
    pod = scheduler["spec"]["template"]["metadata"]["annotations"]

    assert "scheduler" == scheduler["metadata"]["annotations"]["note"] == pod["note"]
    assert len(pod["checksum/kube-scheduler"]) == 64
    assert webhook["metadata"]["annotations"]["cert-manager.io/inject-ca-from"].endswith("-webhook")


def test_empty_label_of_a_component_overrides_the_common_one() -> None:
    """Empty is a value."""
    values = {"commonLabels": {"team": "a"}, "monitor": {"labels": {"team": ""}, "podLabels": {"team": ""}}}
    daemonset = one("DaemonSet", "hami-monitor", *given(values))

    assert "" == daemonset["metadata"]["labels"]["team"]
    assert "" == daemonset["spec"]["template"]["metadata"]["labels"]["team"]


def test_variable_is_once_in_a_container(overlapping: tuple[Json, ...]) -> None:
    """A user's overrides ours, and the last of two is left. Server-side apply rejects a name twice."""
    for workload in workloads(overlapping):
        for container in pod_spec(workload)["containers"]:
            variables = [(each["name"], each.get("value")) for each in container["env"]]

            assert len(dict(variables)) == len(variables)
            assert ("NODE_NAME", "last") in variables
            assert ("HOOK_PATH", "mine") in variables


def test_number_as_release_name_is_a_label() -> None:
    """A label is a string, so the name is quoted."""
    rendered = objects(release="7")

    assert {"7"} == {each["metadata"]["labels"]["app.kubernetes.io/instance"] for each in rendered}
