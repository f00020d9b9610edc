"""
The roles for people: an operator may read exactly what the client reads, and a viewer is told what is left out.
"""

import json
import re
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from hamicommon.model import Device, Share
from hamicommon.wire.node_devices import encode_node_devices
from hamicommon.wire.pod_devices import encode_pod_devices
from kubectl_hami import main as client
from kubectl_hami.read import kube
from kubectl_hami.read.source import Endpoint, ReadError

from .chart import Json, needs_helm, objects, one

pytestmark = needs_helm

NOW = datetime(2026, 11, 25, 12, tzinfo=UTC)
Right = tuple[str, str, str]
"""Verb, API group, and resource with its subresource."""


def granted(kind: str, name: str) -> set[Right]:
    """Return the rights in a role of the chart."""
    return {
        (verb, group, resource)
        for rule in one(kind, name)["rules"]
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }


def asked(path: str) -> tuple[Right, str]:
    """
    Return the right that the API server checks for a GET of *path*, and its namespace, empty for the cluster.

    Source: https://kubernetes.io/docs/reference/access-authn-authz/authorization/#determine-the-request-verb
    """
    head, *parts = urlsplit(path).path.strip("/").split("/")
    group, parts = ("", parts[1:]) if head == "api" else (parts[0], parts[2:])
    namespace = ""
    if parts[0] == "namespaces" and len(parts) > 2:
        namespace, parts = parts[1], parts[2:]
    resource, name, subresource = [*parts, "", ""][:3]
    return ("get" if name else "list", group, f"{resource}/{subresource}".rstrip("/")), namespace


def a_pod(namespace: str, name: str, *ports: str, component: str = "", grant: str = "") -> Json:
    """Return a running Pod of a service with *ports*, or one that asks for a device: with *grant*, or waiting."""
    is_running = bool(component or grant)
    container: Json = {"name": "main", "ports": [{"name": port, "containerPort": 9000} for port in ports]}
    if not component:
        container["resources"] = {"limits": {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3000"}}
    return {
        "metadata": {
            "namespace": namespace,
            "name": name,
            "uid": name,
            "creationTimestamp": (NOW - timedelta(minutes=5)).isoformat(),
            "labels": {"app.kubernetes.io/component": component} if component else {},
            "annotations": {"hami.io/vgpu-devices-allocated": grant} if grant else {},
        },
        "spec": {
            "containers": [container],
            **({"nodeName": "n1"} if is_running else {"schedulerName": "hami-scheduler"}),
        },
        "status": {"phase": "Running" if is_running else "Pending"},
    }


DEVICE = Device("GPU-a", 10, 16384, 100, "NVIDIA-L40S")
PODS = [
    a_pod("hami", "scheduler-0", "metrics", "explain", component="hami-scheduler"),
    a_pod("hami", "monitor-0", "metrics", component="hami-monitor"),
    a_pod("hami", "webhook-0", "metrics", component="hami-webhook"),
    a_pod("hami", "device-plugin-0", "metrics", component="hami-device-plugin"),
    a_pod("team", "holds", grant=encode_pod_devices(((Share("GPU-a", "NVIDIA", 3000, 25),),))),
    a_pod("other", "holds", grant=encode_pod_devices(((Share("GPU-a", "NVIDIA", 5000, 25),),))),
    a_pod("team", "waits"),
]
NODE = {
    "metadata": {"name": "n1", "annotations": {"hami.io/node-nvidia-register": encode_node_devices((DEVICE,))}},
    "spec": {},
    "status": {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": {"nvidia.com/gpu": "10"}},
}
REFUSAL = {
    "metadata": {"namespace": "team", "name": "waits.1"},
    "reason": "FilteringFailed",
    "involvedObject": {"kind": "Pod", "namespace": "team", "name": "waits", "uid": "waits"},
    "lastTimestamp": NOW.isoformat(),
    "message": "0 of 1 nodes: 1 lacks 3000 MiB; asked: 1 NVIDIA device",
}
QUOTA = {
    "metadata": {"namespace": "team", "name": "gpu"},
    "spec": {"hard": {"limits.nvidia.com/gpumem": "4000"}},
    "status": {"hard": {"limits.nvidia.com/gpumem": "4000"}},
}
QUEUED = {
    "verdict": "gated",
    "pod": "team/queued",
    "summary": "team/queued has scheduling gates: kueue.x-k8s.io/admission",
    **dict.fromkeys(("asks", "gets", "nodes", "changes", "notes"), ()),
}
COLLECTIONS: dict[str, list[Json]] = {"pods": PODS, "nodes": [NODE], "events": [REFUSAL], "resourcequotas": [QUOTA]}
"""What the cluster has, by resource. Of all other kinds it has nothing."""


class Cluster:
    """A cluster whose API server allows what *may* allows, as Kubernetes says it for RBAC."""

    name = "fake"
    namespace = "team"
    patience_seconds = 5.0

    def __init__(self, may: Callable[[Right, str], bool]) -> None:
        self._may = may
        self.requests: set[tuple[Right, str]] = set()
        self.denied: set[tuple[Right, str]] = set()

    def now(self) -> datetime:
        """Return a fixed moment."""
        return NOW

    def get(self, path: str) -> bytes:
        """Return what the API server answers."""
        if path == "/version":  # every user may read it
            return json.dumps({"gitVersion": "v1.34.4"}).encode()
        right, namespace = asked(path)
        self._check(right, namespace, path)
        resource = right[2]
        if "/" in resource:
            return b""
        selector = parse_qs(urlsplit(path).query)
        items = [each for each in COLLECTIONS.get(resource, []) if namespace in ("", each["metadata"].get("namespace"))]
        fields = dict(part.split("=") for part in selector.get("fieldSelector", [""])[0].split(",") if part)
        return json.dumps({"items": [each for each in items if selects(fields, each)]}).encode()

    def ask(self, endpoint: Endpoint, path: str, body: bytes | None = None) -> bytes:
        """Answer as a scheduler that knows only the Pod `queued`, which Kueue gates, by a forwarded port."""
        for verb in ("get", "create"):
            self._check((verb, "", "pods/portforward"), endpoint.namespace, path)
        if path.endswith("/queued"):
            return json.dumps(QUEUED).encode()
        raise ReadError("the scheduler", "knows no such Pod", 404)

    def _check(self, right: Right, namespace: str, path: str) -> None:
        self.requests.add((right, namespace))
        if not self._may(right, namespace):
            self.denied.add((right, namespace))
            raise ReadError(path.partition("?")[0], f"{right[2]} is forbidden", 403)


def selects(fields: dict[str, str], found: Json) -> bool:
    """Return whether a field selector selects an object."""

    def value(path: str) -> Any:
        part: Any = found
        for name in path.split("."):
            part = part.get(name, {})
        return part

    return all(value(path) == wanted for path, wanted in fields.items())


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Run a command of the client against a cluster; return exit code, stdout and stderr."""

    def ran(cluster: Cluster, *words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(kube, "contexts", lambda *_: ({"fake": "team"}, "fake"))
        monkeypatch.setattr(kube, "connect", lambda *_, **__: [cluster])
        monkeypatch.setattr(sys, "argv", ["kubectl-hami", *words])
        code = client.main()
        return code, *capsys.readouterr()

    return ran


def operators() -> Cluster:
    """Return a cluster for somebody with both roles of an operator."""
    everywhere, here = granted("ClusterRole", "hami-operator"), granted("Role", "hami-operator")
    return Cluster(lambda right, namespace: right in everywhere or (namespace == "hami" and right in here))


def viewers() -> Cluster:
    """Return a cluster for somebody with the role of a viewer in the namespace `team`."""
    rights = granted("ClusterRole", "hami-viewer")
    return Cluster(lambda right, namespace: namespace == "team" and right in rights)


Run = Callable[..., tuple[int, str, str]]
COMMANDS = [
    ["top"],
    ["top", "nodes"],
    ["top", "pods"],
    ["top", "namespaces"],
    ["waiting"],
    ["explain", "waits"],
    ["explain", "queued"],
    ["simulate", "-f", "{manifest}"],
    ["fits", "-f", "{manifest}"],
    ["defragment", "waits"],
    ["grants"],
    ["usage"],
    ["doctor"],
    ["bundle", "--file", "{archive}"],
]


@pytest.fixture
def paths(tmp_path: Path) -> dict[str, str]:
    """The files that commands read and write."""
    manifest = tmp_path / "pod.json"
    manifest.write_text(json.dumps({"apiVersion": "v1", "kind": "Pod", **a_pod("team", "new")}))
    return {"manifest": str(manifest), "archive": str(tmp_path / "archive.tar.gz")}


def test_operator_may_read_all_that_the_client_reads_and_nothing_else(run: Run, paths: dict[str, str]) -> None:
    """Every command, and every resource of the roles is one that a command reads."""
    cluster = operators()
    for words in COMMANDS:
        _, _, said = run(cluster, *(word.format(**paths) for word in words))
        assert "forbidden" not in said

    rights = granted("ClusterRole", "hami-operator") | granted("Role", "hami-operator")
    read = {right[1:] for right, _ in cluster.requests}
    assert set() == cluster.denied
    assert {right[1:] for right in rights} == read
    assert {"get", "list", "watch", "create"} == {verb for verb, *_ in rights}
    assert {"pods/portforward"} == {resource for verb, _, resource in rights if verb == "create"}


def test_operator_reaches_pods_and_config_maps_of_the_services_only() -> None:
    """A forwarded port, the proxy, a log or a ConfigMap of a tenant is not an operator's to read."""
    everywhere = {resource for _, _, resource in granted("ClusterRole", "hami-operator")}

    assert {"configmaps", "pods/log", "pods/proxy", "pods/portforward", "secrets"}.isdisjoint(everywhere)


@pytest.mark.parametrize(
    ("words", "code", "shown", "left_out"),
    [
        (
            ["top", "pods"],
            0,
            [r"team +holds +n1 .*3000"],
            ["/api/v1/nodes: nodes is forbidden", "/api/v1/pods: .*; only the Pods of team count, and use is unknown"],
        ),
        (
            ["top", "namespaces"],
            0,
            [r"team +1 +1000 of 4000 nvidia.com/gpumem"],
            ["/api/v1/nodes: nodes is forbidden", "/api/v1/pods: .*; only the Pods of team count, and use is unknown"],
        ),
        (
            ["waiting"],
            0,
            [r"team +waits +5m +0 of 1 nodes: 1 lacks 3000 MiB"],
            ["/api/v1/pods: .*; only the Pods of team count", "what would help is unknown: .* all namespaces"],
        ),
        (
            ["usage"],
            2,
            ["device time is unknown"],
            ["/api/v1/nodes: nodes is forbidden", "/api/v1/pods: .*; only the Pods of team count, and use is unknown"],
        ),
        (["explain", "waits"], 2, [], ["explain: the scheduler: its answers show .* the chart's role hami-operator"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_viewer_sees_the_namespace_and_is_told_what_is_left_out(
    words: list[str], code: int, shown: list[str], left_out: list[str], run: Run
) -> None:
    """A RoleBinding gives nothing of the cluster: Nodes, other namespaces, the monitors and the scheduler."""
    ended, answer, said = run(viewers(), *words, "-n", "team")

    assert code == ended
    assert all(re.search(line, answer) for line in shown), answer
    assert len(left_out) == len(said.splitlines()), said
    assert all(re.search(line, said) for line in left_out), said
    assert "other" not in answer


def test_every_right_of_a_viewer_is_used(run: Run) -> None:
    """Pods, Events and ResourceQuotas of the namespace."""
    cluster = viewers()
    for words in COMMANDS[:5]:
        run(cluster, *words, "-n", "team")

    read = {right for right, namespace in cluster.requests - cluster.denied if namespace == "team"}
    assert {right[1:] for right in granted("ClusterRole", "hami-viewer")} == {right[1:] for right in read}


def test_roles_can_be_left_out() -> None:
    """For clusters in which only an administrator creates roles."""
    names = {each["metadata"]["name"] for each in objects("--set", "rbac.roles.create=false")}

    assert {"hami-viewer", "hami-operator"}.isdisjoint(names)


def test_no_role_is_added_to_kubernetes_own() -> None:
    """`view` and `edit` have all of a viewer's rights already, and must not get an operator's."""
    roles = [one("ClusterRole", f"hami-{name}") for name in ("viewer", "operator")]

    assert not any("aggregate-to" in label for role in roles for label in role["metadata"]["labels"])
