"""
kubectl: the commands of people and of the documentation.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from conformance.peers.clusters import Peer
from conformance.peers.objects import IMAGE, Api, a_node, a_pod
from hamicommon.model import Object

MANIFEST = """
apiVersion: v1
kind: Pod
metadata: {name: p, labels: {a: LABEL}}
spec: {containers: [{name: main, image: busybox, env: [{name: X, value: "1"}]}]}
"""

Kubectl = Callable[..., Awaitable[str]]


@pytest.fixture
def kubectl(peer: Peer, api: Api, tmp_path: Path) -> Kubectl:
    """
    Return a function that runs kubectl in the test's namespace and returns its output and errors.

    The real cluster has its own kubectl. For the embedded one, the test is skipped where kubectl is not installed.
    """
    if not peer.kubectl:
        pytest.skip("kubectl is not installed")

    async def run(*arguments: str, stdin: str = "") -> str:
        process = await asyncio.create_subprocess_exec(
            *(*peer.kubectl, f"--kubeconfig={peer.kubeconfig}", f"--namespace={api.namespace}"),
            *(f"--cache-dir={tmp_path}", *arguments),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={**os.environ, "HOME": str(tmp_path)},
        )
        output, _ = await process.communicate(stdin.encode())
        return output.decode()

    return run


async def test_manifest(kubectl: Kubectl) -> None:
    """`apply` creates, keeps and changes an object, and `label`, `annotate`, `patch` and `delete` work."""
    said = [await kubectl("apply", "-f", "-", stdin=MANIFEST.replace("LABEL", text)) for text in ("one", "one", "two")]
    said.append(await kubectl("get", "pod", "p", "-o", "jsonpath={.metadata.labels.a}"))
    said.append(await kubectl("label", "pod", "p", "b=c"))
    said.append(await kubectl("annotate", "pod", "p", "b=c"))
    said.append(await kubectl("patch", "pod", "p", "-p", '{"metadata":{"labels":{"d":"e"}}}'))
    said.append((await kubectl("delete", "pod", "p"))[:15])

    changes = ["pod/p created\n", "pod/p unchanged\n", "pod/p configured\n", "two"]
    assert [*changes, "pod/p labeled\n", "pod/p annotated\n", "pod/p patched\n", 'pod "p" deleted'] == said


async def test_columns(api: Api, kubectl: Kubectl, cleanup: list[str]) -> None:
    """`get -o wide` prints the server's columns, including the Pod's Node."""
    node = f"n-{api.namespace}"
    cleanup.append(f"/api/v1/nodes/{node}")
    await api.create("/api/v1/nodes", a_node(node))
    await api.create_pod()
    await api.bind("p", node)

    pods = [line.split() for line in (await kubectl("get", "pods", "-o", "wide")).splitlines()]
    nodes = [line.split() for line in (await kubectl("get", "nodes", node)).splitlines()]

    assert [
        "NAME",
        "READY",
        "STATUS",
        "RESTARTS",
        "AGE",
        "IP",
        "NODE",
        "NOMINATED",
        "NODE",
        "READINESS",
        "GATES",
    ] == pods[0]
    assert ["p", "0/1", "Pending", "0"] == pods[1][:4]
    assert ["<none>", node, "<none>", "<none>"] == pods[1][5:]
    assert ["NAME", "STATUS", "ROLES", "AGE", "VERSION"] == nodes[0]
    assert [node, "Ready", "<none>"] == nodes[1][:3]


@pytest.mark.parametrize(
    ("status", "shown"),
    [
        ({"phase": "Failed", "reason": "UnexpectedAdmissionError"}, ["0/1", "UnexpectedAdmissionError"]),
        ({"phase": "Running", "containerStatuses": [{"state": {"running": {}}, "ready": True}]}, ["1/1", "Running"]),
        (
            {"phase": "Pending", "containerStatuses": [{"state": {"waiting": {"reason": "CreateContainerError"}}}]},
            ["0/1", "CreateContainerError"],
        ),
    ],
)
async def test_status_column(api: Api, kubectl: Kubectl, status: Object, shown: list[str]) -> None:
    """The status column shows the reason of the Pod or of its container."""
    await api.create_pod()
    common = {"name": "main", "image": IMAGE, "imageID": "", "restartCount": 0, "ready": False}
    statuses = [{**common, **found} for found in status.pop("containerStatuses", [])]
    await api.patch(f"{api.pods}/p/status", {"status": {**status, "containerStatuses": statuses}})

    row = (await kubectl("get", "pods", "--no-headers")).split()

    assert shown == row[1:3]


async def test_describe(api: Api, kubectl: Kubectl) -> None:
    """`describe` shows the Events of the Pod and none of an earlier Pod with the same name."""
    pod = await api.create_pod()
    about = {"kind": "Pod", "namespace": api.namespace, "name": "p", "uid": pod["metadata"]["uid"]}
    for name, told in (("mine", about), ("other", {**about, "uid": "x"})):
        event = {
            "metadata": {"name": name},
            "involvedObject": told,
            "type": "Normal",
            "reason": name,
            "message": "hello",
        }
        await api.create(f"{api.place}/events", event)

    described = await kubectl("describe", "pod", "p")

    assert ("mine" in described, "other" in described) == (True, False)


async def test_events_are_listed(api: Api, kubectl: Kubectl) -> None:
    """`events --for` finds the Events about a Pod."""
    pod = await api.create_pod()
    about = {"kind": "Pod", "apiVersion": "v1", "namespace": api.namespace, "name": "p", "uid": pod["metadata"]["uid"]}
    event = {"metadata": {"name": "e"}, "involvedObject": about, "type": "Normal", "reason": "Why", "message": "hello"}
    await api.create(f"{api.place}/events", event)

    rows = (await kubectl("events", "--for=pod/p", "--no-headers")).splitlines()

    assert [["Normal", "Why", "Pod/p", "hello"]] == [row.split()[1:] for row in rows]


async def test_watch(api: Api, kubectl: Kubectl) -> None:
    """`get -w` prints a line for each change until its request times out."""
    await api.create_pod("p")
    watching = asyncio.ensure_future(kubectl("get", "pods", "-w", "--request-timeout=3"))
    await asyncio.sleep(1.5)
    await api.create_pod("q")

    names = [line.split()[0] for line in (await watching).splitlines()[:3]]

    assert ["NAME", "p", "q"] == names


async def test_typed_create(api: Api, kubectl: Kubectl, cleanup: list[str]) -> None:
    """`create namespace`, `configmap`, `secret`, `quota` and `auth can-i` work, which send protobuf."""
    team = f"{api.namespace}-team"
    cleanup.append(f"/api/v1/namespaces/{team}")
    said = [
        await kubectl("create", "namespace", team),
        await kubectl("create", "configmap", "c", "--from-literal=key=value"),
        await kubectl("create", "secret", "generic", "s", "--from-literal=key=value"),
        await kubectl("create", "quota", "q", "--hard=pods=2,requests.nvidia.com/gpu=4"),
        await kubectl("auth", "can-i", "delete", "pods"),
    ]

    made = [f"namespace/{team} created\n", "configmap/c created\n", "secret/s created\n", "resourcequota/q created\n"]
    assert [*made, "yes\n"] == said
    assert {"key": "value"} == (await api.get(f"{api.config_maps}/c"))["data"]
    assert {"key": "dmFsdWU="} == (await api.get(f"{api.place}/secrets/s"))["data"]
    quota = await api.get(f"{api.place}/resourcequotas/q")
    assert {"pods": "2", "requests.nvidia.com/gpu": "4"} == quota["spec"]["hard"]


async def test_wait(api: Api, kubectl: Kubectl) -> None:
    """`wait` returns once a condition holds or a field has a value."""
    await api.create_pod()
    waits = ["--for=condition=Ready", "--for=jsonpath={.status.phase}=Running"]
    waiting = asyncio.gather(*(kubectl("wait", "pod/p", how, "--timeout=20s") for how in waits))
    await asyncio.sleep(0.5)
    conditions = [{"type": "Ready", "status": "True"}]
    await api.patch(f"{api.pods}/p/status", {"status": {"phase": "Running", "conditions": conditions}}, "strategic")

    assert ["pod/p condition met\n"] * 2 == await waiting


async def test_cordon_and_taint(api: Api, kubectl: Kubectl, cleanup: list[str]) -> None:
    """`cordon` and `taint` change a Node's spec."""
    node = f"n-{api.namespace}"
    cleanup.append(f"/api/v1/nodes/{node}")
    await api.create("/api/v1/nodes", a_node(node))

    said = [await kubectl("cordon", node), await kubectl("taint", "node", node, "gpu=yes:NoSchedule")]

    assert [f"node/{node} cordoned\n", f"node/{node} tainted\n"] == said
    spec = (await api.get(f"/api/v1/nodes/{node}"))["spec"]
    assert (True, True) == (
        spec["unschedulable"],
        {"key": "gpu", "value": "yes", "effect": "NoSchedule"} in spec["taints"],
    )


async def test_selected_deletion(api: Api, kubectl: Kubectl) -> None:
    """`delete -l` deletes the objects with the label, and waits until they are gone."""
    for name, label in (("a", "x"), ("b", "y")):
        await api.create(api.pods, a_pod(name, metadata={"labels": {"l": label}}))

    await kubectl("delete", "pods", "-l", "l=x")

    assert ["b"] == await api.names(api.pods)
