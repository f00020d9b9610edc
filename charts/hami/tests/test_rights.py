"""
Each ServiceAccount has the reviewed rights, and each service uses all of its rights and no others.
"""

import re
from pathlib import Path

import pytest

from .chart import CHART, Json, needs_helm, objects

GOLDEN = Path(__file__).parent / "golden/rights.txt"
SERVICES = CHART.parents[1] / "services"
VERBS = {
    "get": "get",
    "create": "create",
    "merge_patch": "patch",
    "replace": "update",
    "delete": "delete",
    "items": "list",
    "pages": "list",
    "watch_lines": "watch",
}
"""Methods of `hamicommon.runtime.api.kube.Kube`, with the verb that the API server checks."""


def rights(made: tuple[Json, ...]) -> list[str]:
    """Return one line for each rule of each ServiceAccount, and of each role that nobody has: who, scope, rule."""
    named = {(o["kind"], o["metadata"]["name"]): o for o in made}
    unbound = {key for key in named if key[0] in ("ClusterRole", "Role")}
    lines = []
    for binding in (o for o in made if o["kind"].endswith("RoleBinding")):
        role = binding["roleRef"]
        where = "in " + binding["metadata"]["namespace"] if binding["kind"] == "RoleBinding" else "everywhere"
        for subject in binding["subjects"]:
            who = f"{subject['name']} {where}:"
            found = named.get((role["kind"], role["name"]))
            if found is None:
                lines.append(f"{who} all of {role['kind']} {role['name']}")
                continue
            unbound.discard((role["kind"], role["name"]))
            lines += [f"{who} {described(rule)}" for rule in found["rules"]]
    for kind, name in unbound:
        lines += [f"nobody, {kind} {name}: {described(rule)}" for rule in named[kind, name]["rules"]]
    return sorted(lines)


def described(rule: Json) -> str:
    """Return verbs, resources, groups and names of *rule* on one line."""
    groups = [group or "core" for group in rule["apiGroups"]]
    only = f", only {', '.join(rule['resourceNames'])}" if "resourceNames" in rule else ""
    return f"{', '.join(rule['verbs'])} {', '.join(rule['resources'])} ({', '.join(groups)}){only}"


@needs_helm
def test_rights_equal_the_golden_file(request: pytest.FixtureRequest) -> None:
    """`.venv/bin/pytest charts --write-golden` rewrites the file for review."""
    written = "".join(f"{line}\n" for line in rights(objects("--set", "image.registry=localhost")))
    if request.config.getoption("--write-golden"):
        GOLDEN.write_text(written)

    assert GOLDEN.read_text() == written


@needs_helm
def test_monitor_may_evict_only_if_the_settings_name_a_finding() -> None:
    """The right is for any Pod of the cluster, because RBAC knows no Nodes."""
    evict = ("--set", "image.registry=localhost", "--set", "monitor.watchdog.evict={memory-above-grant}")
    more = set(rights(objects(*evict))) - set(GOLDEN.read_text().splitlines())

    assert {"hami-monitor everywhere: create pods/eviction (core)"} == more
    assert set() == set(rights(objects(*evict, "--set", "monitor.watchdog.enabled=false"))) & more


def test_no_right_is_a_wildcard() -> None:
    """No verb or resource is a wildcard, and only one Secret is named."""
    lines = GOLDEN.read_text().splitlines()

    assert [] == [line for line in lines if "*" in line]
    assert ["only hami-webhook-tls"] == [line.rpartition(", ")[2] for line in lines if "secrets" in line]


@pytest.mark.parametrize("service", ["webhook", "scheduler", "device-plugin", "monitor"])
def test_service_has_exactly_the_rights_it_uses(service: str) -> None:
    """The verbs in its rules are those of the API client's methods in its source."""
    source = "\n".join(
        file.read_text()
        for name in ("kube.py", "kube/*.py", "certificate_loop.py")
        for file in (SERVICES / service / "src").rglob(name)
    )
    called = {VERBS[method] for method in re.findall(rf"kube\.({'|'.join(VERBS)})\(", source)} | {"list", "watch"}
    mine = [line for line in GOLDEN.read_text().splitlines() if line.startswith(f"hami-{service} ")]
    allowed = {verb for line in mine for verb in re.findall(r"\b(get|list|watch|create|update|patch|delete)\b", line)}

    of_kube_scheduler = {"update"} if service == "scheduler" else set()  # its Lease

    assert called == allowed - of_kube_scheduler
