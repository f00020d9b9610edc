"""
The plugin as a process on hosts whose files are missing, foreign, full or not writable.
"""

import resource
import shutil
from pathlib import Path
from typing import Any

import grpc
import pytest
from device_plugin_apiserver import ApiServer
from device_plugin_kubelet import Kubelet
from device_plugin_process import A100, PluginProcess, a_node, a_pod, needs_fake_driver

from hami_device_plugin import __version__
from testbed.disks import fill, read_only

pytestmark = needs_fake_driver


def mounted(plugin: PluginProcess, answer: Any) -> dict[str, str]:
    """Return the host path of each mount that a container with *answer* gets, by container path."""
    edits = [plugin.specs()[device.name] for device in answer.cdi_devices]
    return {mount["containerPath"]: mount["hostPath"] for edit in edits for mount in edit["mounts"]}


async def test_lock_directory_is_neither_made_nor_mounted(host: Path, api: ApiServer, kubelet: Kubelet) -> None:
    """With our library, the host may clean the directory at any time."""
    api.put("nodes", a_node())
    api.put("pods", a_pod("p", f"{A100},NVIDIA,700,5:;", "main=1"))
    (host / "lock").mkdir()
    async with PluginProcess(host, api, kubelet) as plugin:
        await plugin.serving()
        answer = await kubelet.allocate("uid-p", "p", "main", f"{A100}-0")
        (host / "lock").rmdir()
        await kubelet.pre_start(f"{A100}-0")

        assert "/tmp/vgpulock" not in mounted(plugin, answer)
    assert not (host / "lock").exists()


async def test_hamis_library_gets_its_lock_directory_even_after_it_was_removed(
    host: Path, api: ApiServer, kubelet: Kubelet
) -> None:
    """Every start makes it again, for all users."""
    api.put("nodes", a_node())
    api.put("pods", a_pod("p", f"{A100},NVIDIA,700,5:;", "main=1"))
    async with PluginProcess(host, api, kubelet, "--library=") as plugin:
        await plugin.serving()
        answer = await kubelet.allocate("uid-p", "p", "main", f"{A100}-0")
        await kubelet.pre_start(f"{A100}-0")
        shutil.rmtree(host / "lock")
        await kubelet.pre_start(f"{A100}-0")

        assert str(host / "lock") == mounted(plugin, answer)["/tmp/vgpulock"]
    assert 0o777 == (host / "lock").stat().st_mode & 0o777


async def prepared(plugin: PluginProcess, kubelet: Kubelet) -> None:
    """Allocate for the only Pod, and prepare its container."""
    await plugin.serving()
    await kubelet.allocate("uid-p", "p", "main", f"{A100}-0")
    await kubelet.pre_start(f"{A100}-0")


async def refusal(kubelet: Kubelet) -> str:
    """Return why PreStartContainer fails."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await kubelet.pre_start(f"{A100}-0")
    assert grpc.StatusCode.FAILED_PRECONDITION == caught.value.code()
    return str(caught.value.details())


async def test_container_can_write_one_file_of_its_directory(host: Path, api: ApiServer, kubelet: Kubelet) -> None:
    """
    It reads its limits. The rest of its directory is in memory, bounded, and ends with it, so it cannot fill the disk.
    """
    api.put("nodes", a_node())
    api.put("pods", a_pod("p", f"{A100},NVIDIA,700,5:;", "main=1"))
    async with PluginProcess(host, api, kubelet) as plugin:
        await prepared(plugin, kubelet)
        [edits] = plugin.specs().values()

    [region] = (host / "hook/vgpu/containers/uid-p_main").glob("*.cache")
    directory = region.parent
    root = str(host / "hook/vgpu")
    [memory] = [mount for mount in edits["mounts"] if mount.get("type") == "tmpfs"]
    assert root == memory["containerPath"]
    assert {"mode=0777", "size=16m", "nr_inodes=64"} <= set(memory["options"])
    assert [str(region)] == [mount["hostPath"] for mount in edits["mounts"] if "rw" in mount["options"]]
    [folder] = [mount for mount in edits["mounts"] if mount["containerPath"] == f"{root}/limits"]
    assert str(directory) == folder["hostPath"]
    assert "ro" in folder["options"]


async def test_full_disk_is_one_error_and_the_next_try_succeeds(
    host: Path, api: ApiServer, kubelet: Kubelet, full_disk: Path
) -> None:
    """The error names Pod, container, file and reason, and no half of a spec exists."""
    api.put("nodes", a_node())
    api.put("pods", a_pod("p", f"{A100},NVIDIA,700,5:;", "main=1"))
    async with PluginProcess(host, api, kubelet, f"--cdi-root={full_disk}") as plugin:
        await plugin.serving()
        await kubelet.allocate("uid-p", "p", "main", f"{A100}-0")
        fill(full_disk)

        message = await refusal(kubelet)
        assert message.startswith("Pod default/p, container main cannot be prepared: ")
        assert message.endswith("No space left on device")
        assert ["filling"] == [path.name for path in full_disk.iterdir()]

        (full_disk / "filling").unlink()
        await kubelet.pre_start(f"{A100}-0")
        assert 1 == len(list(full_disk.glob("*.json")))


async def test_read_only_directory_is_one_error_and_the_next_try_succeeds(
    host: Path, api: ApiServer, kubelet: Kubelet, may_mount: None
) -> None:
    """As on a host whose disk failed; the kubelet retries."""
    api.put("nodes", a_node())
    api.put("pods", a_pod("p", f"{A100},NVIDIA,700,5:;", "main=1"))
    async with PluginProcess(host, api, kubelet) as plugin:
        await plugin.serving()
        await kubelet.allocate("uid-p", "p", "main", f"{A100}-0")
        with read_only(host / "hook"):
            message = await refusal(kubelet)
            assert f"{host}/hook/vgpu/containers" in message
            assert message.endswith("Read-only file system")
            assert {} == plugin.specs()

        await kubelet.pre_start(f"{A100}-0")
        assert 1 == len(plugin.specs())


async def test_plugin_without_file_descriptors_fails_and_recovers(host: Path, api: ApiServer, kubelet: Kubelet) -> None:
    """A start without a descriptor is an error for the kubelet; the process and its other work go on."""
    api.put("nodes", a_node())
    api.put("pods", a_pod("p", f"{A100},NVIDIA,700,5:;", "main=1"))
    async with PluginProcess(host, api, kubelet) as plugin:
        await plugin.serving()
        await kubelet.allocate("uid-p", "p", "main", f"{A100}-0")
        limits = resource.prlimit(plugin.process.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(plugin.process.pid, resource.RLIMIT_NOFILE, (3, limits[1]))

        assert (await refusal(kubelet)).endswith("Too many open files")
        assert {} == plugin.specs()

        resource.prlimit(plugin.process.pid, resource.RLIMIT_NOFILE, limits)
        await kubelet.pre_start(f"{A100}-0")
        assert 1 == len(plugin.specs())


async def test_library_on_a_full_disk_is_whole_or_absent(
    host: Path, api: ApiServer, kubelet: Kubelet, full_disk: Path
) -> None:
    """The plugin says which file is missing, and serves once there is space."""
    api.put("nodes", a_node())
    fill(full_disk)
    async with PluginProcess(host, api, kubelet, HOOK_PATH=str(full_disk)) as plugin:
        await plugin.until(lambda: any("No space left on device" in str(line) for line in plugin.logs))
        assert [] == [path for path in full_disk.glob("vgpu/*") if path.suffix != ".lock"]

        (full_disk / "filling").unlink()
        await plugin.serving()
    assert b"the library" == (full_disk / f"vgpu/libvgpu.so.{__version__}").read_bytes()


async def test_names_that_a_container_left_are_deleted_after_its_start(
    host: Path, api: ApiServer, kubelet: Kubelet
) -> None:
    """By this process or, after a kill, by the next."""
    api.put("nodes", a_node())
    api.put("pods", a_pod("p", f"{A100},NVIDIA,700,5:;", "main=1"))
    directory = host / "hook/vgpu/containers/uid-p_main"
    directory.mkdir(parents=True)
    for number in range(2000):
        (directory / str(number)).touch()
    async with PluginProcess(host, api, kubelet) as plugin:
        await prepared(plugin, kubelet)
        await plugin.kill()
    async with PluginProcess(host, api, kubelet) as plugin:
        await plugin.until(lambda: [directory] == list(directory.parent.iterdir()))
