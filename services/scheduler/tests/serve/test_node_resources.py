"""
Nodes list what kube-scheduler looks for once a DeviceClass maps one of our resources, and only then.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from hami_scheduler.rules.node_resources import PLENTY, changes
from hami_scheduler.serve.background.node_resources import NodeResources
from hami_scheduler.serve.kube.api import KubeApi
from hamicommon.dra.names import TOKEN_CLASS
from hamicommon.runtime.api.kube import Kube

from ..support.api_server import ApiServer, an_api_server
from ..support.builders import NOW, vendors

VENDORS = [rules.vendor for rules in vendors()]
AMOUNTS = {"nvidia.com/gpumem", "nvidia.com/gpumem-percentage", "nvidia.com/gpucores", "nvidia.com/priority"}
GPU = {"nvidia.com/gpu": "20"}


class Trial:
    """A cluster of one Node with devices of NVIDIA, and what reviews it."""

    def __init__(self, api: ApiServer, kube: Kube) -> None:
        self.api = api
        self.mapped: list[str] = []
        """The DeviceClass of the count, at each review."""
        self.resources = NodeResources(KubeApi(kube, "test", lambda: NOW), lambda: VENDORS, self.mapped.append)
        api.put("nodes", {"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "8", **GPU}}})

    async def review(self) -> dict[str, str]:
        """Show it the Node, let it review, and return what the Node lists then, without the CPUs and the count."""
        self.resources.replace(self.api.objects["nodes"].values())
        await self.resources.review()
        listed: dict[str, str] = self.api.objects["nodes"]["n"]["status"]["allocatable"]
        return {name: value for name, value in listed.items() if name not in {"cpu", *GPU}}

    def map_by(self, device_class: str, created: str) -> None:
        """Let the DeviceClass of this name, from this time, map the count."""
        metadata = {"name": device_class, "creationTimestamp": created}
        self.api.put("deviceclasses", {"metadata": metadata, "spec": {"extendedResourceName": "nvidia.com/gpu"}})

    def map(self, name: str) -> None:
        """Let a DeviceClass map *name*."""
        self.api.put("deviceclasses", {"metadata": {"name": "gpu"}, "spec": {"extendedResourceName": name}})


@pytest_asyncio.fixture
async def trial(tmp_path: Path) -> AsyncIterator[Trial]:
    """Yield a cluster without DeviceClasses."""
    async with an_api_server() as api, await Kube.connect(api.kubeconfig(tmp_path), "test") as kube:
        yield Trial(api, kube)


async def test_nothing_is_written_without_a_device_class(trial: Trial) -> None:
    """Nor with one that maps another resource."""
    assert {} == await trial.review()
    trial.map("example.com/nic")
    assert {} == await trial.review()

    assert [] == trial.api.writes


async def test_node_lists_every_amount_once_the_count_is_mapped(trial: Trial) -> None:
    """One write is enough."""
    trial.map("nvidia.com/gpu")

    assert dict.fromkeys(AMOUNTS, PLENTY) == await trial.review()
    await trial.review()

    assert 1 == len(trial.api.writes)


async def test_node_no_longer_lists_them_without_the_device_class(trial: Trial) -> None:
    """The default scheduler would place Pods by them."""
    trial.map("nvidia.com/gpu")
    await trial.review()
    trial.api.remove("deviceclasses", "gpu")

    assert {} == await trial.review()


async def test_newest_device_class_of_the_count_is_known_at_each_review(trial: Trial) -> None:
    """By it the filter knows whether kube-scheduler gives tokens."""
    await trial.review()
    trial.map_by(TOKEN_CLASS, "2026-01-01T00:00:00Z")
    await trial.review()
    trial.map_by("gpu.nvidia.com", "2026-01-02T00:00:00Z")
    await trial.review()

    assert ["", TOKEN_CLASS, "gpu.nvidia.com"] == trial.mapped


async def test_our_device_class_is_written_again_once_another_is_gone(trial: Trial) -> None:
    """kube-scheduler has forgotten what all of them map then. At rest nothing is written."""

    def touched() -> list[str]:
        return [path for _, path, _ in trial.api.writes if "deviceclasses" in path]

    trial.map_by(TOKEN_CLASS, "2026-01-01T00:00:00Z")
    trial.map_by("gpu.nvidia.com", "2026-01-02T00:00:00Z")
    await trial.review()
    at_first = len(touched())
    await trial.review()
    trial.api.remove("deviceclasses", "gpu.nvidia.com")
    await trial.review()
    await trial.review()

    assert (1, 2) == (at_first, len(touched())), "once at the start, because nobody knows what was deleted before"
    assert all(path.endswith(TOKEN_CLASS) for path in touched())


async def test_failed_write_is_tried_again(trial: Trial) -> None:
    """The scheduler runs on, because only Pods with amounts wait."""
    trial.map("nvidia.com/gpu")
    trial.api.fail("/status", 403)

    assert {} == await trial.review()
    assert dict.fromkeys(AMOUNTS, PLENTY) == await trial.review()


async def test_api_server_without_device_classes_is_not_an_error(trial: Trial) -> None:
    """They are new in Kubernetes 1.34, in this version of the API."""
    trial.api.fail("/deviceclasses", 404)

    assert {} == await trial.review()


@pytest.mark.parametrize(
    ("mapped", "allocatable", "names"),
    [
        pytest.param({"nvidia.com/gpu"}, {}, set(), id="another node"),
        pytest.param({"nvidia.com/gpu"}, {**GPU, **dict.fromkeys(AMOUNTS, "0")}, AMOUNTS, id="its kubelet was reset"),
        pytest.param(
            {"nvidia.com/gpu"}, {**GPU, "nvidia.com/gpumem": "9"}, AMOUNTS - {"nvidia.com/gpumem"}, id="listed"
        ),
        pytest.param({"nvidia.com/gpu", "nvidia.com/gpumem"}, GPU, AMOUNTS - {"nvidia.com/gpumem"}, id="mapped, too"),
        pytest.param({"nvidia.com/gpu"}, {"nvidia.com/gpu": "0"}, AMOUNTS, id="plugin restarts"),
    ],
)
def test_names_to_list(mapped: set[str], allocatable: dict[str, str], names: set[str]) -> None:
    """Those that the Node lacks or lists with 0, and no DeviceClass maps, if it has a plugin for the count."""
    assert dict.fromkeys(names, PLENTY) == changes(VENDORS, mapped, allocatable)
