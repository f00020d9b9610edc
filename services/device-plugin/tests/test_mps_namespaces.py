"""
A Node whose compute MPS limits by a namespace for each container.

NVIDIA's programs are a stand-in, which the plugin runs in a driver's root.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from device_plugin_apiserver import ApiServer
from device_plugin_kubelet import Kubelet
from device_plugin_process import A100, FAKE_DRIVER, NODE, T4, PluginProcess, a_node, a_pod, needs_fake_driver

from hami_device_plugin.decide.allocate.namespaces import is_ours, namespace_name
from hami_device_plugin.decide.probe.enforcement import MpsServer
from hamicommon.wire.limits_file import decode_limits_file
from testbed.driver.hardware import FIRST_DRIVER_WITH_MPS, FakeDriver
from testbed.driver.mps import MpsControl, daemon_pid, driver_root

pytestmark = [
    needs_fake_driver,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to mount and change to a driver's root"),
]
ANNOTATION = "hami.io/node-enforcement"
TENANT: dict[str, Any] = {"runAsNonRoot": True, "allowPrivilegeEscalation": False}
UNAVAILABLE = 46
OF_T4 = f"multiprocessors of device {T4}"
CLIENT = """
import ctypes, os, time
cuda = ctypes.CDLL("libcuda.so.1")
zero = ctypes.c_uint64(0)
# They open the hardware, whose folder is root's.
cuda.fake_truth_memory(0, zero), cuda.fake_truth_busy_ns(0, zero, zero, zero)
os.seteuid(60000)
print(cuda.cuInit(0), cuda.cuCtxCreate_v2(ctypes.byref(ctypes.c_void_p()), 0, 1), flush=True)
time.sleep(60)
"""
MULTIPROCESSORS = """
import ctypes, os
cuda, count, zero = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(), ctypes.c_uint64(0)
# It opens the hardware, whose folder is root's.
cuda.fake_truth_memory(0, zero), cuda.fake_truth_busy_ns(0, zero, zero, zero)
os.seteuid(60000)
assert (0, 0) == (cuda.cuInit(0), cuda.cuDeviceGetAttribute(ctypes.byref(count), 16, 0))
print(count.value, flush=True)
"""


class MpsNode:
    """The plugin's host, with a driver's root that has MPS."""

    def __init__(self, host: Path, root: Path) -> None:
        self.host = host
        server = MpsServer("/", str(root), is_required=False)
        self.pipes = Path(server.folder_here)
        self.control = MpsControl(root / "usr/bin/nvidia-cuda-mps-control", self.pipes, {})

    @asynccontextmanager
    async def plugin(
        self, api: ApiServer, kubelet: Kubelet, setting: str = "mps", mode: str = "mps", **environ: str
    ) -> AsyncIterator[PluginProcess]:
        """Run the plugin; *mode* is that of the Node."""
        api.put("nodes", a_node())
        (self.host / "config.json").write_text(json.dumps({"nodeconfig": [{"name": NODE, "operatingmode": mode}]}))
        roots = (f"--driver-root-ctr-path={self.root}", "--nvidia-driver-root=/")
        flags = (f"--compute-enforcement={setting}", f"--cgroup-root={self.host}/cgroup", *roots)
        async with PluginProcess(self.host, api, kubelet, *flags, **environ) as plugin:
            yield await plugin.serving()

    @property
    def root(self) -> Path:
        """The driver's root."""
        return self.control.program.parents[2]

    def percents(self) -> dict[str, str]:
        """Return the percentage of each namespace of a container, as the daemon lists it."""
        rows = self._ask("namespace", "list", "--server=hami", "--format=csv,noheader").splitlines()
        return {row.split(",")[0]: row.split(",")[4] for row in rows if is_ours(row.split(",")[0])}

    def _ask(self, *words: str) -> str:
        pipes = {"CUDA_MPS_PIPE_DIRECTORY": str(self.pipes)}
        command = [str(self.control.program), *words]
        return subprocess.run(command, env=os.environ | pipes, capture_output=True, text=True, check=True).stdout

    def kill_daemon(self) -> None:
        """Kill the daemon, as a fault would."""
        os.kill(daemon_pid(self.pipes), signal.SIGKILL)


@pytest.fixture
def node(host: Path) -> Iterator[MpsNode]:
    """A Node with a driver that has MPS 3."""
    (host / "hardware").mkdir()
    FakeDriver(host / "hardware").load(version=FIRST_DRIVER_WITH_MPS)
    with driver_root(host, FAKE_DRIVER, host / "hardware") as root:
        made = MpsNode(host, root)
        yield made
        with suppress(subprocess.CalledProcessError, FileNotFoundError):
            made._ask("quit")


def a_tenants_pod(name: str, percent: int, **security: Any) -> dict[str, Any]:
    """Return a Pod whose container has *percent* of a device."""
    pod: dict[str, Any] = a_pod(name, f"{T4},NVIDIA,2000,{percent}:;", "main=1")
    pod["spec"]["containers"][0]["securityContext"] = security
    return pod


async def started(
    plugin: PluginProcess, api: ApiServer, kubelet: Kubelet, percent: int, name: str = "p", **security: Any
) -> Mapping[str, Any]:
    """Let a Pod's container with *percent* of a device start, and return the edits of its spec."""
    api.put("pods", a_tenants_pod(name, percent, **security))
    replica = f"{T4}-{len(plugin.specs())}"
    answer = await kubelet.allocate(f"uid-{name}", name, "main", replica)
    await kubelet.pre_start(replica)
    return plugin.specs()[answer.cdi_devices[0].name]


def pipes(edits: Mapping[str, Any]) -> dict[str, str]:
    """Return where the container has which folder of MPS."""
    return {
        one["containerPath"]: one["hostPath"] for one in edits.get("mounts", ()) if "nvidia-mps" in one["containerPath"]
    }


def policy(node: MpsNode, pod: str) -> str | None:
    """Return the library's policy for the compute of a container."""
    [limits] = (node.host / f"hook/vgpu/containers/uid-{pod}_main").glob("limits")
    return decode_limits_file(limits.read_bytes()).environment.get("GPU_CORE_UTILIZATION_POLICY")


async def test_container_gets_a_namespace_with_its_percentage(node: MpsNode, api: ApiServer, kubelet: Kubelet) -> None:
    """Where programs look without being told, and where its variable says. The library leaves compute alone."""
    name = namespace_name("uid-p", "main")
    async with node.plugin(api, kubelet) as plugin:
        edits = await started(plugin, api, kubelet, 20, **TENANT)
        await plugin.until(lambda: "MPS, by a namespace" in api.annotations("nodes", "", NODE).get(ANNOTATION, ""))
        _, metrics = await plugin.get("/metrics")

    folder = f"/run/hami/mps/hami/{name}"
    assert {"/tmp/nvidia-mps": folder, "/run/nvidia-mps": folder} == pipes(edits)
    assert "CUDA_MPS_PIPE_DIRECTORY=/tmp/nvidia-mps" in edits["env"]
    assert {name: "20.00"} == node.percents()
    assert "disable" == policy(node, "p")
    assert 'hami_device_plugin_compute_enforcement{by="mps"} 1.0' in metrics


@pytest.mark.parametrize(
    ("percent", "expected"),
    [
        (20, [f"container main asks for 20 % and gets 20 of 108 {OF_T4}, 18.5 %: MPS rounds down"]),
        (50, []),
    ],
)
async def test_pod_that_gets_less_than_it_asked_for_is_told(
    node: MpsNode, api: ApiServer, kubelet: Kubelet, percent: int, expected: list[str]
) -> None:
    """MPS gives pairs of multiprocessors. A container that starts again is not told again."""
    async with node.plugin(api, kubelet) as plugin:
        await started(plugin, api, kubelet, percent, **TENANT)
        await kubelet.pre_start(f"{T4}-0")
        await plugin.until(lambda: len(expected) == len(api.events("ComputeRounded")))
        await asyncio.sleep(0.5)

        assert expected == [event["message"] for event in api.events("ComputeRounded")]


async def test_container_starts_though_nobody_knows_what_it_gets(
    node: MpsNode, api: ApiServer, kubelet: Kubelet
) -> None:
    """The plugin cannot be a client itself, as without a library of CUDA that runs in its image."""
    async with node.plugin(api, kubelet, FAKE_DRIVER_FAULTS="cuInit:*:999") as plugin:
        edits = await started(plugin, api, kubelet, 20, **TENANT)

    assert pipes(edits)
    assert {namespace_name("uid-p", "main"): "20.00"} == node.percents()
    assert [] == api.events("ComputeRounded")


MAY_BE_ROOT = pytest.mark.parametrize("security", [{}, {"runAsUser": 1000}, {**TENANT, "runAsUser": 0}])


@MAY_BE_ROOT
async def test_library_limits_a_container_that_may_be_root(
    node: MpsNode, api: ApiServer, kubelet: Kubelet, security: dict[str, Any]
) -> None:
    """Root may change any namespace by the folder of its own, so it gets none."""
    async with node.plugin(api, kubelet) as plugin:
        edits = await started(plugin, api, kubelet, 20, **security)

    assert {} == pipes(edits)
    assert policy(node, "p") is None


@MAY_BE_ROOT
async def test_where_mps_is_required_a_container_that_may_be_root_does_not_start(
    node: MpsNode, api: ApiServer, kubelet: Kubelet, security: dict[str, Any]
) -> None:
    """Its Event says what to write."""
    async with node.plugin(api, kubelet, "mps-required") as plugin:
        with pytest.raises(Exception, match="root may change its limits: set allowPrivilegeEscalation: false and"):
            await started(plugin, api, kubelet, 20, **security)
    assert {} == node.percents()


async def test_namespace_goes_with_its_container_and_stays_while_the_plugin_is_away(
    node: MpsNode, api: ApiServer, kubelet: Kubelet
) -> None:
    """The daemon outlives the plugin, killed or not."""
    async with node.plugin(api, kubelet) as plugin:
        await started(plugin, api, kubelet, 20, **TENANT)
        await started(plugin, api, kubelet, 30, "q", **TENANT)
        await plugin.kill()
    both = {namespace_name("uid-p", "main"): "20.00", namespace_name("uid-q", "main"): "30.00"}
    assert both == node.percents()

    api.remove("pods", "default", "q")
    async with node.plugin(api, kubelet) as plugin:
        await plugin.until(lambda: {namespace_name("uid-p", "main"): "20.00"} == node.percents())


async def test_namespaces_are_made_again_when_the_daemon_has_lost_them(
    node: MpsNode, api: ApiServer, kubelet: Kubelet
) -> None:
    """The Pod has an Event, because its programs may have run without a limit meanwhile."""
    name = namespace_name("uid-p", "main")
    async with node.plugin(api, kubelet) as plugin:
        await started(plugin, api, kubelet, 20, **TENANT)
        state = {"name": "main", "containerID": "containerd://1", "state": {"running": {}}}
        pod = a_tenants_pod("p", 20, **TENANT)
        api.put("pods", {**pod, "status": {"phase": "Running", "containerStatuses": [state]}})
        node.kill_daemon()
        await plugin.until(lambda: bool(api.events("ComputeLimitRestored")))
        assert {name: "20.00"} == node.percents()
        _, metrics = await plugin.get("/metrics")
    assert "hami_device_plugin_mps_namespaces_restored_total 1.0" in metrics


async def test_container_that_ran_is_without_its_limit_after_the_daemon_has_ended(
    node: MpsNode, api: ApiServer, kubelet: Kubelet
) -> None:
    """Its mount is the folder that went with the daemon. The Event says that later programs have no limit either."""
    async with node.plugin(api, kubelet) as plugin:
        edits = await started(plugin, api, kubelet, 20, **TENANT)
        folder = f"{node.root}{pipes(edits)['/tmp/nvidia-mps']}"
        inside = 'mkdir -p /tmp/nvidia-mps && mount --bind "$0" /tmp/nvidia-mps && while read -r _; do "$@"; done'
        command = ["unshare", "--mount", "sh", "-c", inside, folder, sys.executable, "-c", MULTIPROCESSORS]
        driver = {"LD_LIBRARY_PATH": str(FAKE_DRIVER), "FAKE_DRIVER_DIR": str(node.host / "hardware")}
        pipe = asyncio.subprocess.PIPE
        container = await asyncio.create_subprocess_exec(
            *command, env={"PATH": os.environ["PATH"], **driver}, stdin=pipe, stdout=pipe
        )
        assert container.stdin is not None
        assert container.stdout is not None
        container.stdin.write(b"\n")
        limited = int(await container.stdout.readline())
        state = {"name": "main", "containerID": "containerd://1", "state": {"running": {}}}
        pod = a_tenants_pod("p", 20, **TENANT)
        api.put("pods", {**pod, "status": {"phase": "Running", "containerStatuses": [state]}})
        node.kill_daemon()
        await plugin.until(lambda: bool(api.events("ComputeLimitRestored")))
        container.stdin.write(b"\n")
        unlimited = int(await container.stdout.readline())
        container.stdin.close()
        await container.wait()
        _, metrics = await plugin.get("/metrics")

    assert (20, 108) == (limited, unlimited)
    assert "hami_device_plugin_mps_restarts_total 1.0" in metrics
    [event] = api.events("ComputeLimitRestored")
    assert "later ones too" in str(event)


async def test_program_with_an_empty_environment_is_a_client(node: MpsNode, api: ApiServer, kubelet: Kubelet) -> None:
    """As a tenant, in a mount namespace like its container's."""
    async with node.plugin(api, kubelet) as plugin:
        edits = await started(plugin, api, kubelet, 20, **TENANT)
        async with a_client(node, edits):
            metrics = ""
            while 'hami_device_plugin_mps_clients{container="main",namespace="default",pod="p"} 1.0' not in metrics:
                await asyncio.sleep(0.2)
                _, metrics = await plugin.get("/metrics")


async def test_where_mps_is_required_a_program_that_leaves_its_namespace_has_no_device(
    node: MpsNode, api: ApiServer, kubelet: Kubelet
) -> None:
    """The device takes programs of MPS only, until a container has all of it."""
    async with node.plugin(api, kubelet, "mps-required") as plugin:
        await started(plugin, api, kubelet, 20, **TENANT)
        assert f"0 {UNAVAILABLE}" == await at_a_stranger(node)

        api.remove("pods", "default", "p")
        api.put("pods", a_pod("q", f"{T4},NVIDIA,16384,100:;", "main=1"))
        answer = await kubelet.allocate("uid-q", "q", "main", f"{T4}-1")
        await kubelet.pre_start(f"{T4}-1")
        assert {} == pipes(plugin.specs()[answer.cdi_devices[0].name])
        assert "0 0" == await at_a_stranger(node)


@asynccontextmanager
async def a_client(node: MpsNode, edits: Mapping[str, Any]) -> AsyncIterator[None]:
    """Run an idle program as a tenant, in a mount namespace like its container's."""
    folder = f"{node.root}{pipes(edits)['/tmp/nvidia-mps']}"
    inside = f'mkdir -p /tmp/nvidia-mps && mount --bind {folder} /tmp/nvidia-mps && exec "$@"'
    command = ["unshare", "--mount", "sh", "-c", inside, "sh", sys.executable, "-c", CLIENT]
    driver = {"LD_LIBRARY_PATH": str(FAKE_DRIVER), "FAKE_DRIVER_DIR": str(node.host / "hardware")}
    variables = {"PATH": os.environ["PATH"], **driver}
    client = await asyncio.create_subprocess_exec(*command, env=variables, stdout=asyncio.subprocess.PIPE)
    assert client.stdout is not None
    try:
        assert b"0 0\n" == await client.stdout.readline()
        yield
    finally:
        client.send_signal(signal.SIGKILL)
        await client.wait()


async def test_where_mps_is_required_a_device_that_is_held_is_not_given_away_until_it_is_free(
    node: MpsNode, api: ApiServer, kubelet: Kubelet
) -> None:
    """The client of a server that has ended holds it. The plugin serves, and takes the device when it is free."""
    async with node.plugin(api, kubelet, "mps-required") as plugin:
        edits = await started(plugin, api, kubelet, 20, **TENANT)
        async with a_client(node, edits):
            await plugin.kill()
            node.kill_daemon()
            async with node.plugin(api, kubelet, "mps-required") as again:
                await again.readiness(200)
                with pytest.raises(Exception, match=f"device {T4} is not MPS's, CUDA error {UNAVAILABLE}"):
                    await started(again, api, kubelet, 30, "q", **TENANT)


async def test_where_mps_is_required_strangers_are_kept_away_again_after_the_daemon_was_killed(
    node: MpsNode, api: ApiServer, kubelet: Kubelet
) -> None:
    """A new server takes each device as soon as the programs have ended that held it."""
    async with node.plugin(api, kubelet, "mps-required") as plugin:
        edits = await started(plugin, api, kubelet, 20, **TENANT)
        async with a_client(node, edits):
            node.kill_daemon()
            await plugin.until(lambda: "Namespaces of MPS cannot be kept" in plugin.events())
        await started(plugin, api, kubelet, 30, "q", **TENANT)
        assert f"0 {UNAVAILABLE}" == await at_a_stranger(node)


async def at_a_stranger(node: MpsNode) -> str:
    """Return the results of cuInit and of a context in a program without a namespace."""
    driver = {"LD_LIBRARY_PATH": str(FAKE_DRIVER), "FAKE_DRIVER_DIR": str(node.host / "hardware")}
    program = CLIENT.replace("time.sleep(60)", "")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", program), env=driver, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    return output.decode().strip()


@pytest.mark.parametrize(
    ("version", "because"),
    [("580.95.05", "driver 580.95.05: it needs r615 or later"), (FIRST_DRIVER_WITH_MPS, "has no /usr/bin/nvidia-cuda")],
)
async def test_node_without_mps_leaves_compute_to_the_library_and_says_why(
    node: MpsNode, api: ApiServer, kubelet: Kubelet, version: str, because: str
) -> None:
    """An older driver, or a driver's root without the program."""
    FakeDriver(node.host / "hardware").load(version=version)
    node.control.program.unlink()
    async with node.plugin(api, kubelet) as plugin:
        edits = await started(plugin, api, kubelet, 20, **TENANT)
        await plugin.until(lambda: because in api.annotations("nodes", "", NODE).get(ANNOTATION, ""))
    assert {} == pipes(edits)
    assert policy(node, "p") is None
    assert A100 in plugin.hardware
