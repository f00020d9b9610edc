"""
The commands of the documentation work as written.
"""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml

from controlplane.machines import network
from hamicommon.wire.node_devices import decode_node_devices
from harness.cluster import ROOT
from harness.clusters import names
from harness.clusters.real import IMAGES, RealCluster, without_release
from harness.clusters.release import CHART, HAMI, INSTALL
from harness.documents.reader import COMMAND_SECONDS, Reader
from harness.manifests import a_pod
from harness.residents import running, settle
from testbed import registry
from testbed.ports import free_port
from testbed.waiting import eventually

pytestmark = [pytest.mark.real_only, pytest.mark.timeout(1800)]

SERVICES = {"webhook": "webhook", "scheduler": "scheduler", "device-plugin": "devicePlugin", "monitor": "monitor"}
"""The name of each service in the pages, and its key in the chart."""
REGISTER = "hami.io/node-nvidia-register"
PREDECESSOR = "kube-system"
"""The namespace of the release that stands for HAMi."""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """What a reader has: the checkout, with room for the files that the commands write."""
    folder = tmp_path / "checkout"
    folder.mkdir()
    for name in (".venv", "Makefile", "charts", "examples", "tools"):
        (folder / name).symlink_to(ROOT / name)
    return folder


@asynccontextmanager
async def registry_of(cluster: RealCluster, folder: Path) -> AsyncIterator[str]:
    """
    Serve a throwaway registry in *folder* during a block, and yield its name.

    It is on this machine, where the pages push, and in the network of the cluster, where the Nodes pull.
    """
    port = free_port()
    name, inside = f"127.0.0.1:{port}", f"{network.CONTROL_ADDRESS}:{port}"
    enter = ("nsenter", f"--target={cluster.control_plane.control.living_pid()}", "--net")
    with registry.serving(folder, name), registry.serving(folder, inside, enter):
        cluster.control_plane.use_registry(name, inside)
        yield name


async def annotations(cluster: RealCluster) -> set[str]:
    """Return our annotation keys that are left on any Node."""
    nodes, _ = await cluster.api.list("/api/v1/nodes")
    return {key for node in nodes for key in node["metadata"].get("annotations", {}) if key.startswith("hami.io/")}


async def marked(cluster: RealCluster) -> set[str]:
    """Return the Nodes whose inventory says that their device plugin needs no node lock."""
    nodes, _ = await cluster.api.list("/api/v1/nodes")
    texts = {node["metadata"]["name"]: node["metadata"]["annotations"].get(REGISTER, "[]") for node in nodes}
    return {name for name, text in texts.items() if any(each.finds_owners for each in decode_node_devices(text))}


async def test_installation_works_as_documented_and_leaves_nothing(
    pytestconfig: pytest.Config, checkout: Path, tmp_path: Path
) -> None:
    """Push, install, verify, uninstall, on Nodes without any image; then the short way of README."""
    minor = pytestconfig.getoption("--kubernetes")
    async with without_release(minor) as cluster, registry_of(cluster, tmp_path / "registry") as name:
        reader = Reader(cluster, "docs/install.md", checkout, NODE=cluster.nodes[0].name, REGISTRY=name)
        for step in ("push", "label", "install", "try"):
            await reader.does(step)

        assert "identity" in await reader.does("see-node")
        assert cluster.nodes[0].name in await reader.does("see-way")
        assert "/ 3000 MiB" in await reader.does("see-pod")
        assert ",NVIDIA,3000,25:;" in await reader.does("see-grant")
        async with names.served(cluster.control_plane):
            await reader.does("check")
        assert "share-1" in await reader.does("ask")
        assert (await reader.begins("page")).startswith("http://127.0.0.1:")

        await reader.does("uninstall")
        configurations = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
        assert ([], set()) == ((await cluster.api.list(configurations))[0], await annotations(cluster))
        assert set() == reader.unread

        await Reader(cluster, "README.md", checkout, NODE=cluster.nodes[0].name, REGISTRY=name).does("install")
        assert "/ 3000 MiB" in await reader.does("see-pod")


@pytest.mark.parametrize(("version", "seed"), [("2.8", 1)])
async def test_migration_works_as_documented_in_any_order_and_back(
    pytestconfig: pytest.Config, checkout: Path, tmp_path: Path, version: str, seed: int
) -> None:
    """
    The page's commands replace each service, and no running Pod notices.

    Our chart stands for HAMi. It writes the wire forms of *version* and allocates with the node lock.
    """
    choice = random.Random(seed)
    workloads, minor = IMAGES / "workloads.tar", pytestconfig.getoption("--kubernetes")
    async with without_release(minor, [workloads]) as cluster, registry_of(cluster, tmp_path / "registry") as name:
        await Reader(cluster, "docs/install.md", checkout, REGISTRY=name).does("push")
        (checkout / "hami-values.yaml").write_text(hami_values(name))
        reader = Reader(
            cluster, "docs/migrate.md", checkout, REGISTRY=name, WORKLOADS=cluster.namespace, HAMI_VERSION=version
        )
        predecessor = await Predecessor.installed(cluster, name, version)
        await settle(cluster)
        await reader.does("save", HAMI_VALUES="saved.yaml")
        assert version == yaml.safe_load((checkout / "saved.yaml").read_text())["wireVersion"]
        await reader.does("before")
        await reader.does("begin")
        for service in choice.sample(list(SERVICES), len(SERVICES)):
            await predecessor.switch(service, False)
            await reader.does(f"{service}-on")
            await reader.does(f"{service}-check")
            await placed(cluster, f"after-{service}")
            await reader.does("compare")
        for service in choice.sample(list(SERVICES), len(SERVICES)):
            await reader.does(f"{service}-off")
            await predecessor.switch(service, True)
            await placed(cluster, f"back-{service}")
            await reader.does("compare")
        await reader.does("leave")
        assert set() == await marked(cluster)

        await reader.does("begin")
        await predecessor.end()
        for service in choice.sample(list(SERVICES), len(SERVICES)):
            await reader.does(f"{service}-on")
        await reader.does("finish")
        await reader.does("remove-hami")
        await placed(cluster, "after-all")
        await reader.does("compare")
        assert set() == reader.unread
        await running(cluster)


def hami_values(registry_name: str) -> str:
    """Return HAMi's values, with kube-scheduler in the registry of the pages, and a common registry without images."""
    values = yaml.safe_load((ROOT / "charts/hami/hami-defaults/2.10.yaml").read_text())
    values["global"]["imageRegistry"] = "mirror.invalid"
    values["scheduler"]["kubeScheduler"]["image"] |= {"registry": registry_name, "repository": "kube-scheduler"}
    return yaml.safe_dump(values)


class Predecessor:
    """The release that is replaced."""

    def __init__(self, cluster: RealCluster, registry_name: str, version: str) -> None:
        self._cluster = cluster
        self._values = {"image.registry": registry_name, "wireVersion": version, "devicePlugin.allocation": "lock"}

    @classmethod
    async def installed(cls, cluster: RealCluster, registry_name: str, version: str) -> "Predecessor":
        """Install the release, and wait until every Node offers devices."""
        found = cls(cluster, registry_name, version)
        await found._upgrade()
        for node in cluster.nodes:
            await cluster.node_ready(node.name, COMMAND_SECONDS)
        return found

    async def switch(self, service: str, is_on: bool) -> None:
        """Enable or disable one of its services."""
        self._values[f"{SERVICES[service]}.enabled"] = str(is_on).lower()
        await self._upgrade()

    async def end(self) -> None:
        """Disable all its services."""
        self._values |= {f"{key}.enabled": "false" for key in SERVICES.values()}
        await self._upgrade()

    async def _upgrade(self) -> None:
        given = [f"--set={name}={value}" for name, value in self._values.items() if name != "wireVersion"]
        given.append(f"--set-string=wireVersion={self._values['wireVersion']}")
        await asyncio.to_thread(
            self._cluster.control_plane.helm,
            *(*INSTALL, HAMI, str(CHART), f"--namespace={PREDECESSOR}", *given),
        )


async def placed(cluster: RealCluster, name: str) -> None:
    """Let one more Pod run and end, with the present services."""

    async def created() -> bool:
        await cluster.create(a_pod(name, gpu=1, gpumem=1000))
        return True

    await eventually(created, f"{name} is admitted")
    await cluster.pod_in_phase(name, "Running", 60)
    await cluster.delete_pod(name)
