"""
Who limits the memory of a container, and what it is told to the Node's people.
"""

import asyncio
import json
import subprocess
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pynvml
import pytest
from device_plugin_apiserver import ApiServer
from device_plugin_generator import FakeGenerator
from device_plugin_kubelet import Kubelet
from device_plugin_process import A100, DEVICES, FAKE_DRIVER, NODE, T4, PluginProcess, a_node, a_pod, needs_fake_driver

from hami_device_plugin import __version__
from hami_device_plugin.decide.allocate.cdi.edits import Edits
from hami_device_plugin.decide.allocate.cdi.spec import NVIDIAS_LIMITS, LimitHook, with_limits
from hami_device_plugin.decide.allocate.container_limits import ContainerLimits, check_demand, container_limits
from hami_device_plugin.decide.probe.enforcement import (
    Enforcement,
    EnforcementError,
    choose_enforcement,
)
from hamicommon.model import Share
from hamicommon.runtime.host.records import UNPRELOADED, recorded
from testbed.driver.hardware import FIRST_DRIVER_WITH_LIMITS, FakeDriver, StandInCgroups
from testbed.driver.memory_limits import NO_LIMIT, limit_memory, memory_limits

GIB = 1 << 30
MIB = 1 << 20
BY_LIBRARY = Enforcement("library", "driver 570 is too old")
BY_DRIVER = Enforcement("driver", "r", backend="dmem")
ON_MISC = Enforcement("driver", "r", backend="misc")
DEMAND: dict[str, Any] = {"hami.io/enforcement": "driver"}
ANNOTATION = "hami.io/node-enforcement"
REGISTER = "hami.io/node-nvidia-register"
LIMIT_HOOK = FAKE_DRIVER.parent / "hami-limit-hook"
SIZES = {"GPU-a": 16 * GIB, "GPU-b": 8 * GIB}


def a_share(uuid: str = "GPU-a", memory_mib: int = 3000, core_percent: int = 30) -> Share:
    """Return a share."""
    return Share(uuid, "NVIDIA", memory_mib, core_percent)


def limited(
    *shares: Share, node: Enforcement = BY_DRIVER, is_oversubscribed: bool = False, **annotations: str
) -> ContainerLimits:
    """Return how a container with *shares* is limited."""
    named = {f"hami.io/{name}": value for name, value in annotations.items()}
    return container_limits(shares, named, node, SIZES, is_oversubscribed=is_oversubscribed)


def test_driver_limits_each_device_to_its_share_beside_the_library() -> None:
    """The library still limits compute and shows the share."""
    shares = a_share(), a_share("GPU-b::1", 500)

    by_driver = ContainerLimits(has_library=True, by_driver={"GPU-a": 3000 * MIB, "GPU-b": 500 * MIB})
    assert by_driver == limited(*shares) == limited(*shares, node=ON_MISC)
    assert ContainerLimits(has_library=True) == limited(*shares, node=BY_LIBRARY)


def test_whole_device_has_neither_library_nor_limit() -> None:
    """It is alone on the device. How the other containers of the Node are limited does not matter."""
    whole = a_share(memory_mib=16384, core_percent=100)

    assert ContainerLimits(has_library=False) == limited(whole) == limited(whole, node=BY_LIBRARY)
    assert ContainerLimits(has_library=False) == limited(whole, a_share("GPU-b", 8192, 100))


def test_driver_is_told_on_misc_that_a_container_has_no_limit() -> None:
    """Of a whole device and of a share of 0 MiB. Else it may inherit the limit of a container that has ended."""
    whole, free = a_share(memory_mib=16384, core_percent=100), a_share("GPU-b", 0)

    assert ContainerLimits(has_library=False, by_driver={"GPU-a": None}) == limited(whole, node=ON_MISC)
    assert {"GPU-a": 3000 * MIB, "GPU-b": None} == limited(a_share(), free, node=ON_MISC).by_driver


@pytest.mark.parametrize(
    "share",
    [
        pytest.param(a_share(memory_mib=16383, core_percent=100), id="one MiB less"),
        pytest.param(a_share(memory_mib=16384, core_percent=0), id="not exclusive"),
        pytest.param(a_share(memory_mib=16384, core_percent=99), id="limited compute"),
        pytest.param(a_share(memory_mib=32768, core_percent=100), id="more than it has"),
        pytest.param(a_share("GPU-c", 16384, 100), id="size unknown"),
    ],
)
def test_device_that_is_not_whole_keeps_the_library(share: Share) -> None:
    """Another container may be on it, or the share is not what the device has."""
    assert limited(share).has_library
    assert limited(a_share(memory_mib=16384, core_percent=100), share).has_library


def test_limit_is_no_larger_than_the_device() -> None:
    """The driver refuses such a limit. An oversubscribed share may be larger, and the library counts the rest."""
    found = limited(a_share(memory_mib=20000), is_oversubscribed=True)

    assert ContainerLimits(has_library=True, by_driver={"GPU-a": 16 * GIB}) == found


def test_driver_allows_the_operators_margin_above_a_share() -> None:
    """For contexts. No limit is larger than the device."""

    def with_margin(*shares: Share) -> ContainerLimits:
        return container_limits(shares, {}, BY_DRIVER, SIZES, is_oversubscribed=False, margin_mib=400)

    assert {"GPU-a": 3400 * MIB, "GPU-b": 8192 * MIB} == with_margin(a_share(), a_share("GPU-b", 8000)).by_driver
    assert ContainerLimits(has_library=False) == with_margin(a_share(memory_mib=16384, core_percent=100))


def test_share_without_a_limit_has_none_by_the_driver() -> None:
    """A share of 0 MiB may have all that is free, unless its Pod demands a limit."""
    assert {} == limited(a_share(memory_mib=0)).by_driver
    with pytest.raises(EnforcementError, match="a share of 0 MiB has none: device GPU-a"):
        limited(a_share("GPU-b"), a_share(memory_mib=0), enforcement="driver")


def test_pod_may_demand_the_driver_alone() -> None:
    """It has a hard share and no preload."""
    assert ContainerLimits(has_library=False, by_driver={"GPU-a": 3000 * MIB}) == limited(
        a_share(), enforcement="driver"
    )


def test_demand_that_the_node_cannot_meet_is_refused() -> None:
    """The container would have no limit at all. The message says what to do."""
    with pytest.raises(EnforcementError, match="does not have: driver 570 is too old; remove the annotation, or use"):
        limited(a_share(), node=BY_LIBRARY, enforcement="driver")
    with pytest.raises(EnforcementError, match="deviceMemoryScaling is above 1"):
        limited(a_share(), is_oversubscribed=True, enforcement="driver")
    check_demand(DEMAND, Enforcement("mig", "r"), is_oversubscribed=False)


@pytest.mark.parametrize("value", ["Driver", "library", "none", "driver "])
def test_unknown_demand_is_refused(value: str) -> None:
    """It may have been meant as the known one."""
    with pytest.raises(EnforcementError, match=f"is {value!r}; it must be 'driver', or be removed"):
        limited(a_share(), enforcement=value)


def test_setting_decides_together_with_what_the_driver_can() -> None:
    """A Node whose driver cannot is an error only if it is required."""
    found = choose_enforcement("auto", None, backend="misc")
    assert ("driver", "misc") == (found.by, found.backend)
    assert found == choose_enforcement("required", None, backend="misc")
    assert Enforcement("library", "p") == choose_enforcement("auto", "p")
    assert "library: --memory-enforcement=none" == str(choose_enforcement("none", None))
    with pytest.raises(EnforcementError, match="required: the driver cannot limit memory: p"):
        choose_enforcement("required", "p")


def test_hook_of_nvidias_gives_way_to_ours() -> None:
    """Its one value for all devices comes from variables of the container."""
    nvidias = [{"path": "/h", "args": ["nvidia-cdi-hook", name]} for name in ("update-ldcache", NVIDIAS_LIMITS)]
    edits, hook = Edits(hooks=tuple(nvidias)), LimitHook("/p", "/run/nvidia/driver", "/sys/fs/cgroup")

    places = ["--driver-root", "/run/nvidia/driver", "--cgroup", "/sys/fs/cgroup"]
    arguments = ["hami-limit-hook", *places, "GPU-a=1", "GPU-b=max"]
    ours = {"hookName": "createRuntime", "path": "/p", "args": arguments, "timeout": 30}
    assert (nvidias[0], ours) == with_limits(edits, hook, {"GPU-a": 1, "GPU-b": None}).hooks
    assert edits == with_limits(edits, hook, {})


class Node:
    """The plugin's host, with a driver that holds limits and a stand-in for cgroup v2."""

    def __init__(self, host: Path, backend: str) -> None:
        self.fake = FakeGenerator(host, FAKE_DRIVER / "libnvidia-ml.so.1")
        self.driver = FakeDriver(host / "hardware")
        self.devices = host / "hardware/devices.csv"
        self.devices.parent.mkdir()
        self.devices.write_text(DEVICES)
        self.cgroups = StandInCgroups(host / "cgroup", self.devices if backend == "dmem" else None)
        self.limit_hook = host / "toolkit/hami-limit-hook"
        self.limit_hook.write_bytes(b"the limit hook")
        self.use_driver(FIRST_DRIVER_WITH_LIMITS)

    def use_driver(self, version: str) -> None:
        """Install and load the driver of this version."""
        self.fake.install(version)
        self.driver.load(version=version)

    @property
    def variables(self) -> dict[str, str]:
        """The environment of a process of the host."""
        here = {"LD_LIBRARY_PATH": str(FAKE_DRIVER), "FAKE_DRIVER_DIR": str(self.driver.folder)}
        return here | self.cgroups.variables("/")

    def switch_to_mig(self, uuid: str) -> None:
        """Switch a GPU to MIG mode."""
        program = (
            "import pynvml as n; n.nvmlInit(); n.nvmlDeviceSetMigMode(n.nvmlDeviceGetHandleByUUID(sys.argv[1]), 1)"
        )
        subprocess.run([sys.executable, "-c", f"import sys; {program}", uuid], env=self.variables, check=True)

    @asynccontextmanager
    async def plugin(self, api: ApiServer, kubelet: Kubelet, *flags: str) -> AsyncIterator[PluginProcess]:
        """Run the plugin, which may not come to serve."""
        api.put("nodes", a_node())
        ours = (f"--limit-hook={self.limit_hook}", f"--cgroup-root={self.cgroups.root}")
        host, variables = self.fake.host, self.cgroups.variables("/")
        async with PluginProcess(host, api, kubelet, *self.fake.flags, *ours, *flags, **variables) as plugin:
            yield plugin


@pytest.fixture
def backend(request: pytest.FixtureRequest) -> str:
    """What holds the driver's limits."""
    return str(getattr(request, "param", "misc"))


both = pytest.mark.parametrize("backend", ["misc", "dmem"], indirect=True)


@pytest.fixture
def node(host: Path, backend: str) -> Node:
    """A host whose driver can limit memory."""
    return Node(host, backend)


async def started(
    plugin: PluginProcess, api: ApiServer, kubelet: Kubelet, allocated: str, **annotations: str
) -> dict[str, Any]:
    """Let a Pod's container start, and return the edits of its spec."""
    named: dict[str, Any] = {f"hami.io/{name}": value for name, value in annotations.items()}
    api.put("pods", a_pod("p", f"{allocated}:;", "main=1", **named))
    await plugin.serving()
    answer = await kubelet.allocate("uid-p", "p", "main", f"{T4}-0")
    await kubelet.pre_start(f"{T4}-0")
    return plugin.specs()[answer.cdi_devices[0].name]


def limits_in(edits: dict[str, Any]) -> list[list[str]]:
    """Return what each hook of ours sets."""
    hooks = [hook for hook in edits["hooks"] if hook["hookName"] == "createRuntime"]
    return [[word for word in hook["args"] if "=" in word] for hook in hooks]


def run_hook(hook: dict[str, Any], proc: Path, variables: dict[str, str]) -> None:
    """Run *hook* of a spec as a runtime does for the process 4242 of *proc*."""
    command = [hook["path"], *hook["args"][1:], "--proc", str(proc)]
    subprocess.run(command, input=b'{"pid": 4242}', env=variables, check=True)


@needs_fake_driver
@both
async def test_container_gets_the_hook_beside_the_library(node: Node, api: ApiServer, kubelet: Kubelet) -> None:
    """The hook of this version is on the host, and calls the driver below the host's root."""
    async with node.plugin(api, kubelet) as plugin:
        edits = await started(plugin, api, kubelet, f"{T4},NVIDIA,2000,20")

    assert [[f"{T4}={2000 * MIB}"]] == limits_in(edits)
    [hook] = [hook for hook in edits["hooks"] if hook["hookName"] == "createRuntime"]
    assert f"{node.fake.host}/hook/vgpu/hami-limit-hook.{__version__}" == hook["path"]
    assert b"the limit hook" == Path(hook["path"]).read_bytes()
    assert ["--driver-root", "/run/nvidia/driver", "--cgroup", str(node.cgroups.root)] == hook["args"][1:5]
    assert "/etc/ld.so.preload" in json.dumps(edits["mounts"])


@needs_fake_driver
@pytest.mark.skipif(not LIMIT_HOOK.exists(), reason="the hook is not built: make native")
@both
async def test_hook_of_the_spec_has_the_driver_limit_the_container(
    node: Node, api: ApiServer, kubelet: Kubelet
) -> None:
    """A runtime runs it as the spec says, with the state of the container. Other devices have no limit."""
    host, leaf = node.fake.host, node.cgroups.create("/kubepods/pod1/c1")
    flags = (f"--nvidia-driver-root={node.fake.driver_root}", f"--limit-hook={LIMIT_HOOK}")
    async with node.plugin(api, kubelet, *flags) as plugin:
        edits = await started(plugin, api, kubelet, f"{T4},NVIDIA,2000,20")
    (host / "proc/4242").mkdir(parents=True)
    (host / "proc/4242/cgroup").write_text("0::/kubepods/pod1/c1\n")
    [hook] = [hook for hook in edits["hooks"] if hook["hookName"] == "createRuntime"]
    before = memory_limits(leaf, node.variables)
    run_hook(hook, host / "proc", node.variables)

    assert before[0] == before[1] in ("none", f"0 {NO_LIMIT}")
    assert [before[0], f"0 {2000 * MIB}"] == memory_limits(leaf, node.variables)
    assert {} == node.cgroups.soft_limits()


@needs_fake_driver
@pytest.mark.parametrize(
    ("granted", "demand", "limits"),
    [
        pytest.param(f"{T4},NVIDIA,2000,20", "driver", [[f"{T4}={2000 * MIB}"]], id="driver demanded"),
        pytest.param(f"{T4},NVIDIA,16384,100", "", [[f"{T4}=max"]], id="whole device"),
    ],
)
async def test_container_without_the_library_has_the_device_and_a_record(
    node: Node, api: ApiServer, kubelet: Kubelet, granted: str, demand: str, limits: list[list[str]]
) -> None:
    """It has no preload, no limits of the library and no region. The record on the host is removed with the Pod."""
    containers = node.fake.host / "hook/vgpu/containers"
    async with node.plugin(api, kubelet) as plugin:
        edits = await started(plugin, api, kubelet, granted, enforcement=demand)
        assert {"uid-p_main"} == recorded(containers, UNPRELOADED)
        assert [] == list((containers / "uid-p_main").glob("*.cache"))
        api.remove("pods", "default", "p")
        await plugin.until(lambda: not recorded(containers, UNPRELOADED))

    assert limits == limits_in(edits)
    assert "vgpu" not in json.dumps(edits["mounts"])
    assert "/dev/nvidia1" in [device["path"] for device in edits["deviceNodes"]]
    assert ["NVIDIA_VISIBLE_DEVICES=void"] == edits["env"]


@needs_fake_driver
@both
async def test_who_limits_memory_is_said_everywhere(node: Node, api: ApiServer, kubelet: Kubelet, backend: str) -> None:
    """In the log, /readyz, the Node's annotation, which `explain` shows, and metrics."""
    expected = f"driver: the driver limits memory by cgroup ({backend}), the library limits compute"
    async with node.plugin(api, kubelet) as plugin:
        await plugin.serving()
        await plugin.until(lambda: api.annotations("nodes", "", NODE).get(ANNOTATION) == expected)
        _, ready = await plugin.get("/readyz")
        _, metrics = await plugin.get("/metrics")

    assert f"memory is limited by {expected}" in ready.splitlines()
    assert 'hami_device_plugin_memory_enforcement{by="driver"} 1.0' in metrics
    assert 'hami_device_plugin_memory_enforcement{by="library"} 0.0' in metrics
    backends = {
        name: f'hami_device_plugin_memory_backend{{backend="{name}"}} 1.0' in metrics for name in ("dmem", "misc")
    }
    assert {name: name == backend for name in backends} == backends
    assert "Memory is limited" in plugin.events()


@needs_fake_driver
@pytest.mark.parametrize(
    ("flag", "because"),
    [
        pytest.param("--memory-enforcement=none", "--memory-enforcement=none", id="switched off"),
        pytest.param("--device-list-strategy=envvar", "the driver's hook needs native CDI", id="no native CDI"),
        pytest.param("--cgroup-root=/nowhere", "it needs cgroup v2, which is not mounted at /nowhere", id="cgroup v1"),
        pytest.param("--limit-hook=/nowhere", "/nowhere cannot be installed as", id="no hook"),
        pytest.param("old driver", "it needs r615 or later, cgroup v2 and a GPU without MIG", id="old driver"),
        pytest.param("old kernel", "has neither the controller dmem with the GPUs (Linux 6.14)", id="old kernel"),
        pytest.param("MIG mode", f"device {A100}: it is in MIG mode, in which it takes limits", id="MIG mode"),
        pytest.param(
            "no rights", "Insufficient Permissions; the plugin needs the capability SYS_ADMIN", id="no rights"
        ),
        pytest.param("no cgroup", "a cgroup of the plugin's own, to try the driver's limits", id="no cgroup"),
    ],
)
async def test_library_limits_alone_where_the_driver_cannot(
    node: Node, api: ApiServer, kubelet: Kubelet, flag: str, because: str
) -> None:
    """The Node says why. A Pod that demands the driver does not start there, and its Event says the same."""
    flags = [flag] if flag.startswith("--") else []
    if flag == "old driver":
        node.use_driver("570.124.06")
    elif flag == "old kernel":
        (node.cgroups.root / "cgroup.controllers").write_text("cpu memory\n")
    elif flag == "MIG mode":
        node.switch_to_mig(A100)
    elif flag == "no rights":
        node.driver.fail(pynvml.NVML_ERROR_NO_PERMISSION, call="nvmlDeviceSetMemoryLimits_v1")
    elif flag == "no cgroup":
        (node.cgroups.root / "hami-device-plugin").write_text("not a folder")
    async with node.plugin(api, kubelet, *flags) as plugin:
        edits = await started(plugin, api, kubelet, f"{T4},NVIDIA,2000,20")
        said = api.annotations("nodes", "", NODE)[ANNOTATION]
        api.put("pods", a_pod("q", f"{T4},NVIDIA,2000,20:;", "main=1", **DEMAND))
        await kubelet.allocate("uid-q", "q", "main", f"{T4}-1")
        with pytest.raises(
            Exception, match=r"Pod default/q, container main: annotation hami.io/enforcement"
        ) as refusal:
            await kubelet.pre_start(f"{T4}-1")
        written = len(plugin.specs())

    assert said.startswith("library: ")
    assert because in said
    assert because in str(refusal.value)
    assert 1 == written
    assert "hami-limit-hook" not in json.dumps(edits)


@needs_fake_driver
async def test_driver_limits_once_it_answers(node: Node, api: ApiServer, kubelet: Kubelet) -> None:
    """A look that failed is asked again soon. The process and the devices stay."""
    node.driver.fail(999, call="nvmlDeviceSetMemoryLimits_v1")
    async with node.plugin(api, kubelet) as plugin:
        await plugin.serving()
        await plugin.until(lambda: ANNOTATION in api.annotations("nodes", "", NODE))
        before = api.annotations("nodes", "", NODE)[ANNOTATION]
        node.driver.recover()
        await plugin.until(lambda: api.annotations("nodes", "", NODE)[ANNOTATION].startswith("driver: "))
        await plugin.until(lambda: len(kubelet.registrations) == 2)
        edits = await started(plugin, api, kubelet, f"{T4},NVIDIA,2000,20")

    assert before.startswith("library: device ")
    assert "Unknown Error" in before
    assert [[f"{T4}={2000 * MIB}"]] == limits_in(edits)


@needs_fake_driver
async def test_node_that_cannot_do_what_is_required_offers_nothing(
    node: Node, api: ApiServer, kubelet: Kubelet
) -> None:
    """The kubelet gets no device, the scheduler sees none that is healthy, and everybody is told why."""
    because = "--memory-enforcement=required: the driver cannot limit memory: it needs cgroup v2"
    async with node.plugin(api, kubelet, "--memory-enforcement=required", "--cgroup-root=/nowhere") as plugin:
        await plugin.until(lambda: "Cannot serve devices" in plugin.events())
        status, reason = await plugin.get("/readyz")
        annotations = api.annotations("nodes", "", NODE)
        events = api.events("MemoryNotEnforced")

    assert (503, True) == (status, reason.startswith(because))
    assert annotations[ANNOTATION].startswith(f"none: {because}")
    assert [False, False] == [device.get("health", False) for device in json.loads(annotations[REGISTER])]
    assert 1 == len(events)
    assert not kubelet.registrations


@needs_fake_driver
async def test_node_that_can_do_what_is_required_serves(node: Node, api: ApiServer, kubelet: Kubelet) -> None:
    """As with `auto`."""
    async with node.plugin(api, kubelet, "--memory-enforcement=required") as plugin:
        edits = await started(plugin, api, kubelet, f"{A100},NVIDIA,2000,20")

    assert [[f"{A100}={2000 * MIB}"]] == limits_in(edits)


@needs_fake_driver
@pytest.mark.parametrize(
    ("setting", "offered_mib"), [pytest.param("auto", 15984, id="driver"), pytest.param("none", 16384, id="library")]
)
async def test_memory_that_the_driver_keeps_is_not_offered_where_it_holds_limits(
    node: Node, api: ApiServer, kubelet: Kubelet, setting: str, offered_mib: int
) -> None:
    """Else shares that add up to all memory would fail below their limits. A whole device is what is offered."""
    node.driver.set(T4, memory_reserved_mib=400)
    async with node.plugin(api, kubelet, f"--memory-enforcement={setting}", "--memory-margin-mib=100") as plugin:
        edits = await started(plugin, api, kubelet, f"{T4},NVIDIA,{offered_mib},100")
        await plugin.until(lambda: REGISTER in api.annotations("nodes", "", NODE))
        devices = json.loads(api.annotations("nodes", "", NODE)[REGISTER])

    assert [40960, offered_mib] == [device["devmem"] for device in devices]
    assert "vgpu" not in json.dumps(edits["mounts"])


@needs_fake_driver
async def test_demand_is_refused_under_the_lock(node: Node, api: ApiServer, kubelet: Kubelet) -> None:
    """No hook reaches a container there. The Pod is marked as failed."""
    async with node.plugin(api, kubelet, "--allocation=lock") as plugin:
        await plugin.serving()
        api.put("pods", a_pod("p", f"{T4},NVIDIA,2000,20:;", "main=1", **DEMAND))
        with pytest.raises(Exception, match="demands a limit by the driver alone, which this Node does not have"):
            await kubelet.allocate("uid-p", "p", "main", f"{T4}-0")
        phase = api.annotations("pods", "default", "p")["hami.io/bind-phase"]

    assert "failed" == phase


UID, CONTAINER_ID = "0f0f0f0f-0000-4000-8000-000000000001", "c" * 64
LEAF = f"/kubepods/pod{UID}/{CONTAINER_ID}"


def running(allocated: str) -> dict[str, Any]:
    """Return a Pod whose container runs in the cgroup LEAF."""
    pod = a_pod("p", f"{allocated}:;", "main=1")
    pod["metadata"]["uid"] = UID
    state = {"running": {"startedAt": "2026-08-21T12:00:00Z"}}
    pod["status"] = {"phase": "Running"}
    pod["status"]["containerStatuses"] = [
        {"name": "main", "containerID": f"containerd://{CONTAINER_ID}", "state": state}
    ]
    return pod


@needs_fake_driver
@both
async def test_limit_that_the_driver_has_lost_is_set_again(
    node: Node, api: ApiServer, kubelet: Kubelet, backend: str
) -> None:
    """After a driver was loaded under a running container. An Event of the Pod and a metric say so."""
    leaf = node.cgroups.create(LEAF)
    limit_memory(leaf, {T4: 2000 * MIB}, node.variables)
    async with node.plugin(api, kubelet) as plugin:
        api.put("pods", running(f"{T4},NVIDIA,2000,20"))
        await plugin.serving()
        node.driver.unload(despite_clients=True)
        await plugin.until(lambda: "The driver is let go" in plugin.events() or bool(api.events("DriverGone")))
        node.driver.load()
        lost = memory_limits(leaf, node.variables)[1]
        await plugin.until(lambda: bool(api.events("MemoryLimitRestored")))
        _, metrics = await plugin.get("/metrics")

    assert {"misc": "none", "dmem": f"0 {NO_LIMIT}"}[backend] == lost
    assert f"0 {2000 * MIB}" == memory_limits(leaf, node.variables)[1]
    [event] = api.events("MemoryLimitRestored")
    assert (
        f"container main, device {T4}: the driver had no limit on memory and has a limit of 2000 MiB"
        in event["message"]
    )
    assert 'hami_device_plugin_memory_limits_restored_total{result="ok"} 1.0' in metrics


@needs_fake_driver
@both
async def test_limit_that_cannot_be_set_again_is_reported(node: Node, api: ApiServer, kubelet: Kubelet) -> None:
    """A container may have taken more meanwhile. The Event says what to do, once."""
    leaf = node.cgroups.create(LEAF)
    limit_memory(leaf, {T4: 9000 * MIB}, node.variables)
    variables = node.variables | node.cgroups.variables(LEAF) | {"CUDA_VISIBLE_DEVICES": T4}
    command = (sys.executable, "-c", f"import sys\n{TAKE}")
    taken = await asyncio.create_subprocess_exec(*command, env=variables, stdin=PIPE, stdout=PIPE)
    assert taken.stdout is not None
    assert b"0\n" == await taken.stdout.readline()
    async with node.plugin(api, kubelet) as plugin:
        api.put("pods", running(f"{T4},NVIDIA,2000,20"))
        await plugin.until(lambda: bool(api.events("MemoryLimitMissing")))
        _, metrics = await plugin.get("/metrics")
    taken.kill()
    await taken.wait()

    [event] = api.events("MemoryLimitMissing")
    assert f"container main, device {T4}: the driver does not take a limit of 2000 MiB: " in event["message"]
    assert 'hami_device_plugin_memory_limits_restored_total{result="error"} 1.0' in metrics
    assert f"0 {9000 * MIB}" == memory_limits(leaf, node.variables)[1]


TAKE = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
context, pointer = ctypes.c_void_p(), ctypes.c_uint64()
cuda.cuInit(0)
cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
cuda.cuCtxSetCurrent(context)
print(cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(3000 << 20)), flush=True)
sys.stdin.read()
"""
"""Takes 3000 MiB, prints the result, and waits."""
