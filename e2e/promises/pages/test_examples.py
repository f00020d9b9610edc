"""
Every example of a policy or a vendor places its containers as its README says.

The Nodes are objects without a kubelet, so Pods are bound and never start. Every example is tested twice: through
webhook, kube-scheduler and scheduler on the embedded cluster, and with `hami-scheduler simulate`, the command of its
README.
"""

import json
import re
import shlex
import subprocess
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
import pytest_asyncio
import yaml

from hamicommon.config.device_config import load_device_config
from hamicommon.model import Object
from hamicommon.pod.reading import read_pod
from harness.cluster import ROOT, Cluster, Settings
from harness.clusters import embedded
from harness.clusters.embedded import BIN
from harness.manifests import a_pod
from minicluster.client import ApiError
from testbed.folders import short_folder
from testbed.waiting import eventually

pytestmark = pytest.mark.embedded_only

EXAMPLES = ROOT / "examples"
DEVICE_CONFIG = EXAMPLES / "device-config.yaml"
ALLOCATED_KEYS = [vendor.allocated_key for vendor in load_device_config(DEVICE_CONFIG.read_text()).vendors()]
FOLDERS = {path.parent.name: path.parent for path in sorted(EXAMPLES.glob("*/*/nodes.yaml"))}
NOTHING = ("", "none", "", "", "")

Row = tuple[str, ...]
"""Pod, container, Node, device, MiB and compute: a row of a README's table."""


def promised(name: str) -> list[Row]:
    """Return the rows of the table in an example's README."""
    lines = [line for line in (FOLDERS[name] / "README.md").read_text().splitlines() if line.startswith("|")]
    assert "| Pod | Container | Node | Device | Memory | Compute |" == lines[0]
    return [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in lines[2:]]


def documents(name: str, file: str) -> list[Object]:
    """Return the objects in one file of an example, or none if the file does not exist."""
    path = FOLDERS[name] / file
    return list(yaml.safe_load_all(path.read_text())) if path.exists() else []


def granted(pod: Object) -> list[Row]:
    """Return a row for each share of a bound Pod."""
    spec, annotations = pod["spec"], pod["metadata"]["annotations"]
    containers = [container["name"] for container in [*spec.get("initContainers", []), *spec["containers"]]]
    by_vendor = [read_pod(pod).granted(key).shares for key in ALLOCATED_KEYS if key in annotations]
    return [
        (
            pod["metadata"]["name"],
            containers[position],
            spec["nodeName"],
            share.uuid,
            f"{share.memory_mib} MiB",
            str(share.core_percent),
        )
        for position in range(len(containers))
        for shares in by_vendor
        for share in shares[position]
    ]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def control_plane() -> AsyncIterator[Cluster]:
    """A cluster without Nodes, with devices of every vendor enabled."""
    async with embedded.running(short_folder(), (), Settings(device_config=DEVICE_CONFIG)) as cluster:
        yield cluster


@pytest_asyncio.fixture(loop_scope="session")
async def nodes(control_plane: Cluster, request: pytest.FixtureRequest) -> AsyncIterator[Cluster]:
    """The Nodes of one example, and a namespace with its quota."""
    name = request.getfixturevalue("name")
    await control_plane.use_namespace(f"example-{name}")
    found = documents(name, "nodes.yaml")
    for node in found:
        await control_plane.create(node)
        await control_plane.api.patch(f"/api/v1/nodes/{node['metadata']['name']}/status", {"status": node["status"]})
    quotas = documents(name, "quota.yaml")
    for quota in quotas:
        await control_plane.create(quota)
    names = [node["metadata"]["name"] for node in found]
    await scheduler_sees(control_plane, [*names, *(control_plane.namespace for _ in quotas)], are_there=True)
    await kube_scheduler_sees(control_plane, names)
    yield control_plane
    await control_plane.delete_all_pods(grace_seconds=0)
    for node_name in names:
        await control_plane.api.delete(f"/api/v1/nodes/{node_name}")
    await scheduler_sees(control_plane, names, are_there=False)


async def scheduler_sees(cluster: Cluster, names: Sequence[str], *, are_there: bool) -> None:
    """
    Wait until the scheduler knows something of each of *names*, or nothing of any of them.

    These are names of Nodes, which Pods on them have too, and of a namespace with a quota.
    """

    async def is_known() -> bool:
        text = await cluster.metrics("scheduler")
        return all((f'"{name}"' in text) is are_there for name in names)

    await eventually(is_known, f"the scheduler sees {', '.join(names)}: {are_there}")


async def kube_scheduler_sees(cluster: Cluster, nodes: Sequence[str]) -> None:
    """Wait until kube-scheduler has placed a Pod on each of *nodes*, and delete these Pods."""
    for node in nodes:
        is_node = {"key": "metadata.name", "operator": "In", "values": [node]}
        required = {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchFields": [is_node]}]}
        }
        await cluster.create(a_pod(f"on-{node}", spec={"affinity": {"nodeAffinity": required}}))

    async def are_bound() -> bool:
        return all([(await cluster.pod(f"on-{node}"))["spec"].get("nodeName") for node in nodes])

    await eventually(are_bound, f"kube-scheduler sees {', '.join(nodes)}")
    await cluster.delete_all_pods(grace_seconds=0)


async def placed(cluster: Cluster, pod: Object) -> list[Row]:
    """Create *pod*, and return its shares, or a row that says that webhook or scheduler rejected it."""
    name = pod["metadata"]["name"]
    try:
        await cluster.create(pod)
    except ApiError as error:
        if "quota" not in error.message:
            raise
        return [(name, *NOTHING)]

    async def decided() -> list[Row]:
        found = await cluster.pod(name)
        if found["spec"].get("nodeName"):
            return granted(found)
        refusals = [event for event in await cluster.events(name) if event["reason"] == "FilteringFailed"]
        return [(name, *NOTHING)] if refusals else []

    return await eventually(decided, f"{name} is decided")


@pytest.mark.parametrize("name", FOLDERS)
async def test_example_is_placed_as_documented(nodes: Cluster, name: str) -> None:
    """The Pods are created one after the other."""
    rows = [row for pod in documents(name, "pods.yaml") for row in await placed(nodes, pod)]

    assert promised(name) == rows


@pytest.mark.parametrize("name", FOLDERS)
def test_example_is_simulated_as_documented(name: str) -> None:
    """The command of the README runs in the folder of the example."""
    rows = [row for report in simulated(FOLDERS[name], "-o", "json") for row in _rows(report)]

    assert promised(name) == rows


async def test_priority_reaches_the_container(control_plane: Cluster) -> None:
    """The library reads the priority from the environment, which no table shows."""
    await control_plane.use_namespace("example-priority-environment")
    made = await control_plane.apply(EXAMPLES / "policies/priority/pods.yaml")
    await control_plane.delete_all_pods()

    given = {pod["metadata"]["name"]: pod["spec"]["containers"][0]["env"] for pod in made}
    assert {
        "urgent": [{"name": "CUDA_TASK_PRIORITY", "value": "0"}],
        "patient": [{"name": "CUDA_TASK_PRIORITY", "value": "1"}],
    } == given


def simulated(folder: Path, *arguments: str) -> list[Object]:
    """Return the output of the command in a README."""
    found = re.search(r"```\n(hami-scheduler simulate .*)\n```", (folder / "README.md").read_text())
    assert found
    command = [*shlex.split(found[1]), *arguments]
    done = subprocess.run([BIN / command[0], *command[1:]], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode in {0, 1}, done.stderr
    reports: list[Object] = json.loads(done.stdout)
    return reports


def _rows(report: Object) -> Sequence[Row]:
    name = report["pod"].partition("/")[2]
    return [
        (
            name,
            given["container"],
            report["node"],
            given["device"],
            f"{given['memoryMib']} MiB",
            str(given["corePercent"]),
        )
        for given in report["gets"]
    ] or [(name, *NOTHING)]


def test_every_example_is_listed() -> None:
    """The README lists every folder."""
    listed = re.findall(r"^\| \[([a-z0-9-]+)\]\(([a-z]+/\1)/\)", (EXAMPLES / "README.md").read_text(), re.MULTILINE)

    folders = [path for path in EXAMPLES.glob("*/*") if path.is_dir()]
    assert sorted(str(path.relative_to(EXAMPLES)) for path in folders) == sorted(folder for _, folder in listed)
