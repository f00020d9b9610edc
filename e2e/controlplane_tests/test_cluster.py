"""
A running cluster: what its users rely on, and how it survives what tests do to it.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from controlplane.cluster import ControlPlane
from controlplane.machines.machine import Machine, MachineError
from controlplane.programs import build
from controlplane_tests.conftest import PROBE_IMAGE, until
from minicluster.pids import start_ticks
from testbed.driver.hardware import TWO_NODES, FakeNode

pytestmark = pytest.mark.timeout(600)


def _create(cluster: ControlPlane, name: str, node: str, *arguments: str, **more: Any) -> None:
    """Create a Pod on *node* with one container, the probe with *arguments*. *more* is merged into the container."""
    manifest = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "nodeName": node,
            "restartPolicy": "Always" if arguments[:1] == ("serve",) else "Never",
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "main", "image": PROBE_IMAGE, "args": list(arguments), **more}],
        },
    }
    cluster.kubectl("create", "-f", "-", content=yaml.safe_dump(manifest))


def _pod(cluster: ControlPlane, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(cluster.kubectl("get", "pod", name, "-o", "json"))
    return found


def _in_phase(cluster: ControlPlane, name: str, phase: str) -> dict[str, Any]:
    def probe() -> dict[str, Any] | None:
        found = _pod(cluster, name)
        return found if found["status"]["phase"] == phase else None

    found: dict[str, Any] = until(probe, f"Pod {name} is {phase}")
    return found


def _output(cluster: ControlPlane, name: str) -> list[str]:
    _in_phase(cluster, name, "Succeeded")
    return cluster.kubectl("logs", name).splitlines()


@pytest.fixture(scope="module")
def server(cluster: ControlPlane) -> ControlPlane:
    """Return the cluster, with a Pod `server` on node-b that listens on port 8080, and its Service."""
    _create(cluster, "server", "node-b", "serve", "8080")
    _in_phase(cluster, "server", "Running")
    cluster.kubectl("expose", "pod", "server", "--port=80", "--target-port=8080")
    return cluster


def test_nodes_have_the_requested_properties(cluster: ControlPlane) -> None:
    """These are name, label, version and different addresses."""
    nodes = json.loads(cluster.kubectl("get", "nodes", "-l", "gpu=on", "-o", "json"))["items"]

    assert [node.name for node in TWO_NODES] == [node["metadata"]["name"] for node in nodes]
    assert {build.KUBERNETES[build.DEFAULT_KUBERNETES]} == {
        node["status"]["nodeInfo"]["kubeletVersion"] for node in nodes
    }
    addresses = [node["status"]["addresses"][0] for node in nodes]
    assert [("InternalIP", "10.99.0.11"), ("InternalIP", "10.99.0.12")] == [
        (address["type"], address["address"]) for address in addresses
    ]


def test_logs_and_exec_reach_a_container(server: ControlPlane) -> None:
    """They pass the API server, and trust the kubelet's certificate."""
    assert "serving as server\n" == server.kubectl("logs", "server")
    said = server.kubectl("exec", "server", "--", "/usr/local/bin/probe", "environment")
    assert "HOSTNAME=server" in said.splitlines()


def test_service_is_reached_from_another_node(server: ControlPlane) -> None:
    """kube-proxy translates its cluster address into the Pod's."""
    address = server.kubectl("get", "service", "server", "-o", "jsonpath={.spec.clusterIP}")

    _create(server, "client", "node-a", "ask", f"{address}:80")

    assert ["server"] == _output(server, "client")


def test_api_server_reaches_a_service(server: ControlPlane) -> None:
    """It uses the endpoints, as for a webhook, because its machine has no kube-proxy."""
    assert "server" == server.kubectl("get", "--raw", "/api/v1/namespaces/default/services/server:80/proxy/")


def test_kubelet_has_only_the_rights_of_its_node(cluster: ControlPlane) -> None:
    """It may not even read another Node."""
    kubeconfig = cluster.node("node-a").folder / "kubelet.kubeconfig"
    asked = cluster.node("node-a").machine.run(
        ["kubectl", f"--kubeconfig={kubeconfig}", "auth", "whoami", "-o", "jsonpath={.status.userInfo.username}"]
    )

    assert "system:node:node-a" == asked
    with pytest.raises(MachineError, match="node 'node-a' cannot read 'node-b', only its own Node object"):
        cluster.node("node-a").machine.run(["kubectl", f"--kubeconfig={kubeconfig}", "get", "node", "node-b"])


def test_every_request_is_in_the_audit_log(server: ControlPlane) -> None:
    """An entry has user, verb and object."""

    def found() -> bool:
        entries = (json.loads(line) for line in server.audit_log.read_text().splitlines())
        return any(
            entry["verb"] == "create"
            and entry["objectRef"].get("resource") == "pods"
            and entry["objectRef"].get("name") == "server"
            and entry["user"]["username"] == "kubernetes-admin"
            for entry in entries
            if "objectRef" in entry
        )

    until(found, "the Pod's creation is in the audit log")


def test_existing_image_is_not_imported_again(
    cluster: ControlPlane, probe_image: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Name and digest identify it."""
    commands: list[list[str]] = []
    run = Machine.run

    def watched(machine: Machine, argv: list[str], *more: Any) -> str:
        commands.append(argv)
        return run(machine, argv, *more)

    monkeypatch.setattr(Machine, "run", watched)

    cluster.load_image(probe_image)

    assert ["list", "list"] == [argv[-1] for argv in commands]


def test_up_again_changes_nothing(cluster: ControlPlane) -> None:
    """Every part is still the same process."""
    before = cluster.status()

    cluster.up(TWO_NODES)

    assert before == cluster.status()
    assert {"ready", "runs"} == {health for *_, health in before}


@pytest.mark.parametrize(
    ("machine", "part"), [("control", "etcd"), ("control", "kube-apiserver"), ("node-a", "containerd")]
)
def test_up_repairs_what_crashed(server: ControlPlane, machine: str, part: str) -> None:
    """The part runs again. Other parts and containers are still the same processes."""
    container = _pod(server, "server")["status"]["containerStatuses"][0]["containerID"]
    pid = server.node("node-b").container_pid(container)
    before = {(row[0], row[1]): row[2] for row in server.status()}

    server.machine(machine).kill_service(part)

    server.up(TWO_NODES)

    after = {(row[0], row[1]): row[2] for row in server.status()}
    assert before.keys() == after.keys()
    assert None not in after.values()
    assert before[machine, part] != after[machine, part]
    assert pid == server.node("node-b").container_pid(container)
    _create(server, f"after-{part}", "node-a", "list")
    assert [] == _output(server, f"after-{part}")


def test_containers_outlive_the_kubelet(server: ControlPlane) -> None:
    """It is killed, does not restart by itself, and adopts them after its start."""
    node = server.node("node-b")
    container = _pod(server, "server")["status"]["containerStatuses"][0]["containerID"]
    pid = node.container_pid(container)

    node.kill_kubelet()
    assert node.machine.services()["kubelet"] is None
    assert b"/usr/local/bin/probe\0serve\x008080\0" == Path(f"/proc/{pid}/cmdline").read_bytes()

    node.start_kubelet()
    assert pid == node.container_pid(container)
    _create(server, "after-kubelet", "node-b", "list")
    assert [] == _output(server, "after-kubelet")


def test_power_cut_of_a_node(server: ControlPlane) -> None:
    """Containers and volatile files are gone, kept files are there, and node and Pods run again."""
    node = server.node("node-b")
    container = _pod(server, "server")["status"]["containerStatuses"][0]["containerID"]
    pid = node.container_pid(container)
    node.path("/usr/local/vgpu/kept").touch()
    node.path("/run/lost").touch()

    node.restart()

    assert node.path("/usr/local/vgpu/kept").exists()
    assert not node.path("/run/lost").exists()
    assert start_ticks(pid) is None
    with pytest.raises(MachineError, match="node-b runs no container"):
        node.container_pid(container)

    def runs_again() -> bool:
        status = _pod(server, "server")["status"]["containerStatuses"][0]
        return bool(status["containerID"] != container and status["ready"])

    until(runs_again, "the server runs again")


def test_node_is_added_and_removed(server: ControlPlane) -> None:
    """A third node has the same images, and reaches the Pods of the others, which its removal does not affect."""
    server.add_node(FakeNode.of("node-c", "Tesla T4", 16384, 1))
    address = _pod(server, "server")["status"]["podIP"]
    _create(server, "visitor", "node-c", "ask", f"{address}:8080")
    assert ["server"] == _output(server, "visitor")

    server.remove_node("node-c")

    assert "node/node-a\nnode/node-b\n" == server.kubectl("get", "nodes", "-o", "name")
    assert not (server.folder / "node-c").exists()


def test_helm_reaches_the_cluster(cluster: ControlPlane) -> None:
    """It uses the same kubeconfig as kubectl."""
    assert "NAME" in cluster.helm("list", "--all-namespaces")
