"""
A container gets a MIG instance by the names and the device files that NVIDIA's plugin gives it.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from device_plugin_apiserver import ApiServer
from device_plugin_kubelet import RESOURCE, Kubelet
from device_plugin_mig_process import (
    CUT_A100,
    INSTANCES,
    PLAIN_T4,
    SMALL,
    a_plugin,
    a_promised_pod,
    promised,
)
from device_plugin_process import A100, PluginProcess, a_node, a_pod, needs_fake_driver

from hami_device_plugin.adapters.nvml import mig
from hami_device_plugin.adapters.nvml.mig import MigNvml
from hami_device_plugin.decide.allocate.allocation import GrantPolicy
from hami_device_plugin.decide.mig.grant import (
    Address,
    CapabilityError,
    GrantedInstance,
    capability_files,
    decode_minors,
    instance_grant,
    needs_address,
)
from hami_device_plugin.decide.probe.strategy import ENVVAR, VOLUME_MOUNTS
from hamicommon.runtime.host.nvml import Nvml
from testbed.driver.mig.files import device_files, mig_minors, show_mig

SECOND = Address(gpu_index=1, gpu_minor=2, index=1, gpu_instance_id=9, compute_instance_id=0)
NUMBERS = ("--device-id-strategy=index", "--pass-device-specs", "--device-list-strategy=envvar")


class Driver(MigNvml):
    """A driver that knows one instance."""

    def __init__(self) -> None:
        super().__init__(Nvml())
        self.asked: list[str] = []

    async def address(self, mig_uuid: str) -> Address:
        """Return its address."""
        self.asked.append(mig_uuid)
        return SECOND


def nodes(edits: dict[str, Any]) -> list[tuple[str, str]]:
    """Return path and host's path of each device file in *edits*."""
    return [(node["path"], node["hostPath"]) for node in edits.get("deviceNodes", ())]


def test_capabilities_are_found_by_the_gpus_minor_number() -> None:
    """Its index may be another one."""
    found = capability_files(SECOND, decode_minors(mig_minors(3)))

    assert device_files(2, 9)[1:] == list(found)


def test_instance_without_a_capability_says_which_is_missing() -> None:
    """The driver lists those of the GPUs that it has."""
    with pytest.raises(CapabilityError, match="MIG instance 1:1: the driver lists no capability gpu2/gi9/access"):
        capability_files(SECOND, decode_minors(mig_minors(1)))


def test_missing_list_names_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver without MIG has none."""
    monkeypatch.setattr(mig, "MINORS", tmp_path / "mig-minors")

    with pytest.raises(CapabilityError, match=r"mig-minors cannot be read: No such file"):
        mig.read_minors()


@pytest.mark.parametrize(
    ("strategies", "expected"),
    [
        pytest.param((ENVVAR,), ("1:1", []), id="envvar"),
        pytest.param((VOLUME_MOUNTS,), ("/var/run/nvidia-container-devices", ["1:1"]), id="volume-mounts"),
        pytest.param(("cdi-cri",), ("void", []), id="native CDI"),
    ],
)
def test_instance_is_listed_by_index_where_devices_are(
    strategies: tuple[str, ...], expected: tuple[str, Sequence[str]]
) -> None:
    """Under native CDI nothing lists devices, so the driver need not be asked."""
    policy = GrantPolicy("/usr/local", list_strategies=strategies, indices={})

    grant = instance_grant([GrantedInstance("MIG-1", "1:1")], policy)

    listed = [mount.container_path.rpartition("/")[2] for mount in grant.mounts]
    assert expected == (grant.env["NVIDIA_VISIBLE_DEVICES"], listed)
    assert needs_address(policy) is ("cdi-cri" not in strategies)


def test_files_of_a_gpu_are_passed_once_for_two_instances() -> None:
    """With those of every container, below the host's root."""
    policy = GrantPolicy("/usr/local", minors={}, control_nodes=("/dev/nvidiactl",), dev_root="/host/")
    instances = [GrantedInstance(f"MIG-{number}", "", tuple(device_files(2, number))) for number in (7, 8)]

    grant = instance_grant(instances, policy)

    expected = ["/dev/nvidiactl", *device_files(2, 7), *device_files(2, 8)[1:]]
    assert [(path, f"/host{path}") for path in expected] == [
        (node.container_path, node.host_path) for node in grant.device_nodes
    ]


async def test_driver_is_not_asked_unless_numbers_are_needed() -> None:
    """A start costs one call more only where a flag says so."""
    driver = Driver()

    granted = await driver.granted(["MIG-1"], GrantPolicy("/usr/local"))

    assert ((GrantedInstance("MIG-1"),), []) == (granted, driver.asked)


@needs_fake_driver
async def test_new_instance_is_given_by_index_and_with_its_device_files(
    host: Path, api: ApiServer, kubelet: Kubelet, may_mount: None
) -> None:
    """The second one of the GPU is 0:1. Its files are those of its GPU instance and compute instance."""
    api.put("nodes", a_node())
    for number, name in enumerate("pq"):
        api.put("pods", a_promised_pod(name, start=number))
    plugin = a_plugin(host, api, kubelet, *NUMBERS)
    plugin.proc = show_mig(host / "proc")
    async with plugin:
        await plugin.serving()
        for number, name in enumerate("pq"):
            answer = await kubelet.allocate(f"uid-{name}", name, "main", f"{A100}-{number}")
            await kubelet.pre_start(f"{A100}-{number}")

        edits = plugin.specs()[answer.cdi_devices[0].name]
        environment = plugin.environment(answer)
        expected = device_files(0, promised(api, "q")["gpuInstanceID"])

    assert "0:1" == environment["NVIDIA_VISIBLE_DEVICES"]
    assert [(path, path) for path in expected] == [node for node in nodes(edits) if node[0] in expected]
    others = set(device_files(0, promised(api, "p")["gpuInstanceID"])[1:])
    assert others.isdisjoint(path for path, _ in nodes(edits))


@needs_fake_driver
@pytest.mark.parametrize("strategy", ["single", "mixed"])
async def test_existing_instance_is_given_by_index_and_with_its_device_files(
    host: Path, api: ApiServer, kubelet: Kubelet, may_mount: None, strategy: str
) -> None:
    """Under each strategy, by the number of the instance on its GPU."""
    api.put("nodes", a_node())
    plugin = PluginProcess(host, api, kubelet, f"--mig-strategy={strategy}", *NUMBERS)
    plugin.hardware = CUT_A100 + (PLAIN_T4 if strategy == "mixed" else "")
    plugin.proc = show_mig(host / "proc")
    resource = SMALL if strategy == "mixed" else RESOURCE
    async with plugin:
        await plugin.serving()
        await plugin.until(lambda: strategy == "single" or bool(kubelet.others))
        api.put("pods", a_pod("p", f"{INSTANCES[1]},NVIDIA,4864,100:;", "main=1"))
        answer = await kubelet.allocate("uid-p", "p", "main", INSTANCES[1], resource=resource)
        await kubelet.pre_start(INSTANCES[1], resource=resource)

        edits = plugin.specs()[answer.cdi_devices[0].name]
        environment = plugin.environment(answer)

    assert "0:1" == environment["NVIDIA_VISIBLE_DEVICES"]
    # The fake driver numbers the instances of its file from 1.
    assert device_files(0, 2) == [path for path, _ in nodes(edits) if path in device_files(0, 2)]


@needs_fake_driver
async def test_instance_is_given_by_index_under_the_lock_too(
    host: Path, api: ApiServer, kubelet: Kubelet, may_mount: None
) -> None:
    """The kubelet carries the device files."""
    api.put("nodes", a_node(**{"hami.io/mutex.lock": "2026-08-21T12:00:00Z,default,p"}))
    api.put("pods", a_promised_pod("p"))
    plugin = a_plugin(host, api, kubelet, *NUMBERS, "--allocation=lock")
    plugin.proc = show_mig(host / "proc")
    async with plugin:
        await plugin.serving()
        answer = await kubelet.allocate("uid-p", "p", "main", f"{A100}-0")

    assert {"NVIDIA_VISIBLE_DEVICES": "0:0"} == dict(answer.envs)
    expected = device_files(0, promised(api, "p")["gpuInstanceID"])
    assert expected == [node.host_path for node in answer.devices if node.host_path in expected]
    assert {"rw"} == {node.permissions for node in answer.devices}
