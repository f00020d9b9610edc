"""
A Node whose operator runs MPS, which limits compute there in place of the library.
"""

import json
import socket
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from device_plugin_apiserver import ApiServer
from device_plugin_kubelet import RESOURCE, Kubelet
from device_plugin_process import A100, NODE, T4, PluginProcess, a_node, a_pod, needs_fake_driver

from hami_device_plugin.decide.allocate.allocation import Grant, Mount
from hami_device_plugin.decide.allocate.container_limits import MpsError, thread_percentage, with_mps
from hami_device_plugin.decide.probe.enforcement import MpsDaemon
from hamicommon.model import Share
from hamicommon.wire.limits_file import decode_limits_file
from testbed.driver.hardware import FakeDriver

ANNOTATION = "hami.io/node-enforcement"
EXCLUSIVE_PROCESS = 3
PIPE = "/mps/nvidia.com/gpu/pipe"


def test_client_has_the_daemons_folders_and_its_part() -> None:
    """Under the paths and variables of NVIDIA's own device plugin."""
    grant = Grant(env={"A": "1"}, mounts=(Mount("/a", "/b", is_read_only=True),))

    found = with_mps(grant, 30, MpsDaemon("/run/nvidia/mps", "nvidia.com/gpu"))

    assert {
        "A": "1",
        "CUDA_MPS_PIPE_DIRECTORY": PIPE,
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "30",
    } == found.env
    assert (
        *grant.mounts,
        Mount(PIPE, "/run/nvidia/mps/nvidia.com/gpu/pipe", is_read_only=False),
        Mount("/dev/shm", "/run/nvidia/mps/shm", is_read_only=False),
    ) == found.mounts
    assert {"CUDA_MPS_PIPE_DIRECTORY"} == with_mps(Grant(), 100, MpsDaemon("/m", "r")).env.keys()


@pytest.mark.parametrize(("percents", "expected"), [((30,), 30), ((30, 30), 30), ((0,), 100), ((0, 100), 100)])
def test_part_is_that_of_every_share(percents: tuple[int, ...], expected: int) -> None:
    """A share of 0 percent has no limit, as in the library."""
    assert expected == thread_percentage([Share(f"GPU-{i}", "NVIDIA", 1, each) for i, each in enumerate(percents)])


def test_shares_that_differ_in_compute_are_refused() -> None:
    """MPS would give all of them the same."""
    granted = "30 % of GPU-a, 50 % of GPU-b"

    with pytest.raises(MpsError, match=f"one limit of compute for all devices of a container, .* granted {granted}"):
        thread_percentage([Share("GPU-a", "NVIDIA", 1, 30), Share("GPU-b", "NVIDIA", 1, 50)])


class MpsNode:
    """The plugin's host, with the folders of an MPS daemon and GPUs that only its clients may use."""

    def __init__(self, host: Path) -> None:
        self.host, self.root = host, host / "mps"
        self.pipe = self.root / RESOURCE / "pipe"
        self.pipe.mkdir(parents=True)
        (self.root / "shm").mkdir()
        (host / "hardware").mkdir()
        self.set_compute_mode(EXCLUSIVE_PROCESS)

    def set_compute_mode(self, mode: int) -> None:
        """Set the mode of both GPUs, as `nvidia-smi --compute-mode` does."""
        for uuid in (A100, T4):
            FakeDriver(self.host / "hardware").set(uuid, compute_mode=mode)

    @contextmanager
    def daemon(self) -> Iterator[None]:
        """Accept clients. A daemon that is killed leaves its socket."""
        (self.pipe / "control").unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(self.pipe / "control"))
            server.listen()
            yield

    @asynccontextmanager
    async def plugin(self, api: ApiServer, kubelet: Kubelet, *flags: str) -> AsyncIterator[PluginProcess]:
        """Run the plugin in mode `mps`."""
        api.put("nodes", a_node())
        entries = [{"name": NODE, "operatingmode": "mps"}]
        (self.host / "config.json").write_text(json.dumps({"nodeconfig": entries}))
        async with PluginProcess(self.host, api, kubelet, f"--mps-root={self.root}", *flags) as plugin:
            yield await plugin.serving()


@pytest.fixture
def node(host: Path) -> MpsNode:
    """A host whose GPUs take clients of MPS only."""
    return MpsNode(host)


async def started(
    plugin: PluginProcess, api: ApiServer, kubelet: Kubelet, granted: str, name: str = "p", **env: str
) -> Mapping[str, Any]:
    """Let a Pod's container with the variables *env* start, and return the edits of its spec."""
    pod = a_pod(name, f"{granted}:;", "main=1")
    pod["spec"]["containers"][0]["env"] = [{"name": name, "value": value} for name, value in env.items()]
    api.put("pods", pod)
    replica = f"{T4}-{len(plugin.specs())}"
    answer = await kubelet.allocate(f"uid-{name}", name, "main", replica)
    await kubelet.pre_start(replica)
    return plugin.specs()[answer.cdi_devices[0].name]


def variables(edits: Mapping[str, Any]) -> dict[str, str]:
    """Return the variables that *edits* set."""
    return dict(each.split("=", 1) for each in edits["env"])


def said(api: ApiServer) -> str:
    """Return what the Node says about its limits."""
    return api.annotations("nodes", "", NODE).get(ANNOTATION, "")


@needs_fake_driver
async def test_container_is_a_client_with_its_part_and_no_limit_of_the_library(
    node: MpsNode, api: ApiServer, kubelet: Kubelet
) -> None:
    """Both would be a part of a part. The library still limits memory, and the Node says who limits compute."""
    with node.daemon():
        async with node.plugin(api, kubelet) as plugin:
            edits = await started(plugin, api, kubelet, f"{T4},NVIDIA,2000,20")
            whole = await started(plugin, api, kubelet, f"{A100},NVIDIA,40960,100", "q")
            await plugin.until(lambda: said(api).endswith("; compute: MPS"))
            _, ready = await plugin.get("/readyz")
            _, metrics = await plugin.get("/metrics")
    [limits] = (node.host / "hook/vgpu/containers/uid-p_main").glob("limits")

    assert ("20", PIPE) == (
        variables(edits)["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"],
        variables(edits)["CUDA_MPS_PIPE_DIRECTORY"],
    )
    mounted = {mount["containerPath"]: mount["hostPath"] for mount in edits["mounts"]}
    assert (str(node.pipe), f"{node.root}/shm") == (mounted[PIPE], mounted["/dev/shm"])
    assert "disable" == decode_limits_file(limits.read_bytes()).environment["GPU_CORE_UTILIZATION_POLICY"]
    assert 2000 << 20 == decode_limits_file(limits.read_bytes()).devices[T4].memory_bytes
    assert "; compute: MPS" in ready
    assert 'hami_device_plugin_compute_enforcement{by="mps"} 1.0' in metrics
    assert 'hami_device_plugin_compute_enforcement{by="library"} 0.0' in metrics
    assert PIPE == variables(whole)["CUDA_MPS_PIPE_DIRECTORY"]
    assert "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE" not in variables(whole)


@needs_fake_driver
async def test_container_does_not_start_without_the_daemon_that_limits_it(
    node: MpsNode, api: ApiServer, kubelet: Kubelet
) -> None:
    """Its socket may still be there. The kubelet tries again."""
    api.put("pods", a_pod("p", f"{T4},NVIDIA,2000,20:;", "main=1"))
    with ExitStack() as running:
        running.enter_context(node.daemon())
        async with node.plugin(api, kubelet) as plugin:
            running.close()
            await kubelet.allocate("uid-p", "p", "main", f"{T4}-0")
            with pytest.raises(Exception, match=r"Pod default/p, container main: MPS limits .* no daemon answers"):
                await kubelet.pre_start(f"{T4}-0")
            assert 0 == len(plugin.specs())
            running.enter_context(node.daemon())
            await kubelet.pre_start(f"{T4}-0")
            assert 1 == len(plugin.specs())


@needs_fake_driver
@pytest.mark.parametrize(
    ("trouble", "because"),
    [
        pytest.param("no daemon", "no daemon answers at ", id="no daemon"),
        pytest.param("no shared memory", "/mps/shm is no folder", id="no shared memory"),
        pytest.param("shared", "is not in compute mode EXCLUSIVE_PROCESS, so a program that does not", id="shared"),
        pytest.param("lock", "under the node lock answers are HAMi's", id="lock"),
    ],
)
async def test_library_limits_compute_where_mps_would_not_hold(
    node: MpsNode, api: ApiServer, kubelet: Kubelet, trouble: str, because: str
) -> None:
    """The Node says why, and looks again."""
    flags = ["--allocation=lock"] if trouble == "lock" else []
    if trouble == "no shared memory":
        (node.root / "shm").rmdir()
    if trouble == "shared":
        node.set_compute_mode(0)
    with node.daemon():
        if trouble == "no daemon":
            (node.pipe / "control").unlink()
        async with node.plugin(api, kubelet, *flags) as plugin:
            await plugin.until(lambda: because in said(api))
            if trouble == "lock":
                return
            edits = await started(plugin, api, kubelet, f"{T4},NVIDIA,2000,20")
            assert "CUDA_MPS" not in json.dumps(edits)
            assert "GPU_CORE_UTILIZATION_POLICY" not in variables(edits)
            if trouble == "shared":
                node.set_compute_mode(EXCLUSIVE_PROCESS)
                await plugin.until(lambda: said(api).endswith("; compute: MPS"))


@needs_fake_driver
async def test_limit_that_was_switched_off_is_none_of_mps(node: MpsNode, api: ApiServer, kubelet: Kubelet) -> None:
    """By the Pod's author, as in HAMi."""
    with node.daemon():
        async with node.plugin(api, kubelet) as plugin:
            edits = await started(plugin, api, kubelet, f"{T4},NVIDIA,2000,20", GPU_CORE_UTILIZATION_POLICY="disable")

    assert "CUDA_MPS_PIPE_DIRECTORY" in variables(edits)
    assert "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE" not in variables(edits)
