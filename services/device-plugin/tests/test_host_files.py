"""
The plugin as a process on hosts whose files are missing, foreign, full or not writable.
"""

import shutil
from pathlib import Path
from typing import Any

from device_plugin_apiserver import ApiServer
from device_plugin_kubelet import Kubelet
from device_plugin_process import A100, PluginProcess, a_node, a_pod, needs_fake_driver

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
