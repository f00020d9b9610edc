"""
The device plugin as a process beside a GPU with MIG, and Pods with instances of it.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from device_plugin_apiserver import ApiServer
from device_plugin_kubelet import Kubelet
from device_plugin_process import A100, DEVICE_CONFIG, FAKE_DRIVER, NODE, T4, PluginProcess, a_pod

ALLOCATIONS = "hami.io/vgpu-mig-allocations"
ALLOWLIST = '  migProfileAllowlist: [{models: ["A100-SXM4-40GB"], profiles: [1g.5gb, 2g.10gb, 3g.20gb, 7g.40gb]}]\n'
INSTANCES = ("MIG-aaaaaaaa-0000-4000-8000-000000000001", "MIG-aaaaaaaa-0000-4000-8000-000000000002")
WHOLE_A100 = f"uuid,name,memory_mib,numa_node,pci_bus_id\n{A100},NVIDIA A100-SXM4-40GB,40960,1,00000000:01:00.0\n"
_ROW = "{},NVIDIA A100-SXM4-40GB MIG 1g.5gb,4864,1,00000000:01:00.0\n"
CUT_A100 = WHOLE_A100 + "".join(_ROW.format(uuid) for uuid in INSTANCES)
PLAIN_T4 = f"{T4},Tesla T4,16384,1,00000000:02:00.0\n"
SMALL = "nvidia.com/mig-1g.5gb"
"""The resource of the instances under the strategy `mixed`."""


def a_plugin(host: Path, api: ApiServer, kubelet: Kubelet, *flags: str) -> PluginProcess:
    """Return the plugin of a Node in mode `mig`."""
    nodes = {"nodeconfig": [{"name": NODE, "operatingmode": "mig", "devicememoryscaling": 3}]}
    (host / "config.json").write_text(json.dumps(nodes))
    plugin = PluginProcess(host, api, kubelet, *flags)
    plugin.device_config = DEVICE_CONFIG + ALLOWLIST
    return plugin


def a_promised_pod(name: str, profile: str = "1g.5gb", start: int = 0, size: int = 1) -> dict[str, Any]:
    """Return a Pod that the scheduler promised one instance."""
    promise = {
        "containerIndex": 0,
        "deviceIndex": 0,
        "gpuUUID": A100,
        "profile": profile,
        "placement": {"start": start, "size": size},
    }
    pod = a_pod(name, f"{A100},NVIDIA,4864,15:;", "main=1")
    pod["metadata"]["annotations"][ALLOCATIONS] = json.dumps([promise])
    return pod


def promised(api: ApiServer, name: str) -> dict[str, Any]:
    """Return the instance in the annotation of a Pod."""
    [found] = json.loads(api.annotations("pods", "default", name)[ALLOCATIONS])
    assert isinstance(found, dict)
    return found


def asked_of_the_driver(host: Path, call: str) -> list[str]:
    """Return the words that *call*, of a function of `device_plugin_mig`, prints as another client of the driver."""
    program = f"import asyncio; from device_plugin_mig import *; asyncio.run({call})"
    env = os.environ | {"LD_LIBRARY_PATH": str(FAKE_DRIVER), "FAKE_DRIVER_DIR": str(host / "hardware")}
    command = [sys.executable, "-c", program]
    answer = subprocess.run(command, env=env, cwd=Path(__file__).parent, check=True, capture_output=True, text=True)
    return answer.stdout.split()
