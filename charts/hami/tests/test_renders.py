"""
Rendered manifests equal reviewed text, and are valid for each supported Kubernetes.
"""

import functools
import re
from pathlib import Path

import kubernetes_validate
import pytest

from .chart import (
    CHART,
    FIRST,
    HAMI_DEFAULTS,
    INSTALLATIONS,
    KUBERNETES,
    PARTS,
    PLATFORMS,
    RefusedError,
    everything,
    needs_helm,
    objects,
    run,
    text,
)

pytestmark = needs_helm

GOLDEN = Path(__file__).parent / "golden"
NODE_MINORS = ["1.28", "1.29", "1.30"]
"""Of these the chart installs only what runs on every Node."""
MINORS = ["1.31", "1.32", "1.33", "1.34", "1.35", "1.36", "1.37"]
CLAIM_MINORS = ["1.34", "1.35", "1.36", "1.37"]
"""Of these the chart installs shares by ResourceClaims."""
OTHERS = {
    "cert-manager.io/v1": {
        "Issuer": lambda spec: spec == {"selfSigned": {}},
        "Certificate": lambda spec: {"secretName", "dnsNames", "issuerRef"} == set(spec),
    },
    "monitoring.coreos.com/v1": {
        "PodMonitor": lambda spec: {"jobLabel", "selector", "podMetricsEndpoints"} == set(spec),
        "PrometheusRule": lambda spec: all(
            {"alert", "expr", "labels"} <= set(rule) or {"record", "expr"} == set(rule)
            for group in spec["groups"]
            for rule in group["rules"]
        ),
    },
}
"""Kinds outside Kubernetes, and a check of their spec."""

# Without the cache, each object parses the definitions again, which takes longer than the validation.
kubernetes_validate.utils.schema_contents = functools.cache(kubernetes_validate.utils.schema_contents)


@pytest.fixture(params=INSTALLATIONS)
def installation(request: pytest.FixtureRequest) -> Path:
    """An example of a values file."""
    return INSTALLATIONS[request.param]


@pytest.mark.parametrize(
    "file", [*INSTALLATIONS.values(), *HAMI_DEFAULTS.values(), *PLATFORMS.values()], ids=lambda file: file.stem
)
def test_lint_finds_nothing(file: Path) -> None:
    """Warnings fail the test too."""
    run("lint", "--strict", "--kube-version", KUBERNETES, *FIRST, "--values", str(file), str(CHART))


def without_versions(manifests: str) -> str:
    """Return *manifests* with VERSION for each version that a release changes."""
    images = "|".join(PARTS)
    manifests = re.sub(r"(helm\.sh/chart: hami)-\S+", r"\1-VERSION", manifests)
    manifests = re.sub(r"(app\.kubernetes\.io/version): \S+", r"\1: VERSION", manifests)
    return re.sub(rf"(/hami/(?:{images})):[\w.-]+", r"\1:VERSION", manifests)


def test_each_service_has_its_own_version() -> None:
    """The tag of its image, and the label of its objects."""
    tags = set(re.findall(r"/hami/([a-z-]+):([\w.-]+)", text()))
    labels = {
        each["metadata"]["labels"]["app.kubernetes.io/component"]: each["metadata"]["labels"][
            "app.kubernetes.io/version"
        ]
        for each in objects()
        if each["kind"] in ("DaemonSet", "Deployment")
    }

    assert set(PARTS.items()) == tags
    assert {f"hami-{name}": version for name, version in PARTS.items()} == labels


@pytest.mark.parametrize("name", INSTALLATIONS)
def test_render_equals_the_golden_file(name: str, request: pytest.FixtureRequest) -> None:
    """
    The golden file shows what a change of a template does; `.venv/bin/pytest charts --write-golden` rewrites it.

    It has no version of the chart and of the services, so that a release does not change it.
    """
    golden = GOLDEN / f"{name}.yaml"
    rendered = without_versions(text("--values", str(INSTALLATIONS[name])))
    if request.config.getoption("--write-golden"):
        golden.write_text(rendered)

    assert golden.read_text() == rendered


@pytest.mark.parametrize("minor", MINORS)
def test_every_object_is_valid_in_kubernetes(installation: Path, minor: str) -> None:
    """The API's schema knows every field."""
    if installation == INSTALLATIONS["claims"] and minor not in CLAIM_MINORS:
        pytest.skip("the chart refuses shares by claims there")
    assert_valid(installation, minor)


@pytest.mark.parametrize("platform", PLATFORMS)
@pytest.mark.parametrize("minor", [MINORS[0], MINORS[-1]])
def test_every_object_for_a_platform_is_valid_in_kubernetes(platform: str, minor: str) -> None:
    """In the oldest and the newest Kubernetes."""
    assert_valid(PLATFORMS[platform], minor)


@pytest.mark.parametrize("minor", NODE_MINORS)
def test_every_object_of_a_node_is_valid_in_older_kubernetes(minor: str) -> None:
    """Device plugin and monitor, beside another webhook and scheduler."""
    assert_valid(INSTALLATIONS["node-only"], minor)


def assert_valid(installation: Path, minor: str) -> None:
    """Fail if the API's schema of Kubernetes *minor* does not know a field."""
    for each in everything("--values", str(installation), kubernetes=f"{minor}.0"):
        checks = OTHERS.get(each["apiVersion"])
        if checks is None:
            kubernetes_validate.validate(each, minor, strict=True)
        else:
            assert checks[each["kind"]](each["spec"]), each  # type: ignore[no-untyped-call]


@pytest.mark.parametrize(("kept", "off"), [("webhook", "scheduler"), ("scheduler", "webhook")])
def test_older_kubernetes_takes_no_scheduler(kept: str, off: str) -> None:
    """The kube-scheduler of 1.30 has no /livez."""
    with pytest.raises(RefusedError, match=rf"{kept}\.enabled=true needs Kubernetes 1\.31, and this is v1\.30\.9"):
        text("--set", f"{off}.enabled=false", kubernetes="1.30.9")


def test_kubernetes_before_the_oldest_is_refused() -> None:
    """Nothing of ours was read against its API."""
    with pytest.raises(RefusedError, match=r"requires kubeVersion: >=1\.28"):
        text("--values", str(INSTALLATIONS["node-only"]), kubernetes="1.27.9")


def test_object_names_are_unique(installation: Path) -> None:
    """Of two objects with one name, Helm would apply only one."""
    names = [(o["kind"], o["metadata"]["name"]) for o in everything("--values", str(installation))]

    assert sorted(set(names)) == sorted(names)


def test_every_template_translates_first() -> None:
    """Each template first translates HAMi's names, because Helm guarantees no order."""
    templates = [*CHART.rglob("templates/**/*.yaml"), CHART / "templates/NOTES.txt"]

    assert [] == [t.name for t in templates if not t.read_text().startswith('{{- include "hami.translate" . }}\n')]


def test_long_release_names_are_shortened() -> None:
    """A Service's name is a DNS label, and Pod names extend those of workloads."""
    rendered = [each for each in objects(release="r" * 53) if each["kind"] in {"Service", "Deployment", "DaemonSet"}]

    assert max(len(each["metadata"]["name"]) for each in rendered) <= 63


def test_release_of_another_name_adds_the_charts() -> None:
    """Names begin with the release, plus `hami` unless the release contains it, as in HAMi's chart."""
    deployments = [each["metadata"]["name"] for each in objects(release="gpu") if each["kind"] == "Deployment"]

    assert ["gpu-hami-scheduler", "gpu-hami-webhook"] == sorted(deployments)
