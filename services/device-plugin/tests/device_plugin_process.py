"""
The device plugin as a process, on a fake driver with two devices.
"""

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import aiohttp
import pytest
from device_plugin_apiserver import ApiServer
from device_plugin_kubelet import RESOURCE, Kubelet

PROGRAM = Path(sys.executable).with_name("hami-device-plugin")
FAKE_DRIVER = Path(__file__).resolve().parents[3] / "build/native/fake_driver"
NODE = "n1"
A100 = "GPU-aaaaaaaa-0000-4000-8000-000000000000"
T4 = "GPU-aaaaaaaa-0000-4000-8000-000000000001"
DEVICES = (
    "uuid,name,memory_mib,numa_node,pci_bus_id\n"
    f"{A100},NVIDIA A100-SXM4-40GB,40960,0,00000000:01:00.0\n"
    f"{T4},Tesla T4,16384,1,00000000:02:00.0\n"
)
DEVICE_CONFIG = f"nvidia:\n  resourceCountName: {RESOURCE}\n  deviceSplitCount: 3\n  libCudaLogLevel: 1\n"
DEADLINE_SECONDS = 60.0

needs_fake_driver = pytest.mark.skipif(
    not (FAKE_DRIVER / "libnvidia-ml.so.1").exists(), reason="the fake driver is not built: make native"
)


class PluginProcess:
    """`hami-device-plugin` below *host*, connected to *api* and *kubelet*."""

    def __init__(self, host: Path, api: ApiServer, kubelet: Kubelet, *flags: str, **environ: str) -> None:
        self.host, self.api, self.kubelet = host, api, kubelet
        self.logs: list[dict[str, Any]] = []
        self.device_config = DEVICE_CONFIG
        self.hardware = DEVICES
        """The fake driver's devices, as the process finds them when it starts."""
        self.proc: Path | None = None
        """A folder with the files `driver` and `devices` that the process sees in /proc. That needs root."""
        self._flags, self._environ = flags, environ

    async def __aenter__(self) -> Self:
        self.write_hardware()
        (self.host / "library.so").write_bytes(b"the library")
        (self.host / "device-config.yaml").write_text(self.device_config)
        self.api.kubeconfig(self.host / "kubeconfig")
        self.process = await asyncio.create_subprocess_exec(
            *self._in_namespace(),
            str(PROGRAM),
            f"--kubeconfig={self.host / 'kubeconfig'}",
            f"--config-file={self.host / 'device-config.yaml'}",
            f"--node-config-file={self.host / 'config.json'}",
            f"--kubelet-socket={self.kubelet.socket}",
            f"--pod-resources-socket={self.kubelet.pod_resources_socket}",
            f"--cdi-root={self.host / 'cdi'}",
            f"--lock-directory={self.host / 'lock'}",
            f"--library={self.host / 'library.so'}",
            "--cdi-generator=",
            "--metrics-bind-address=127.0.0.1:0",
            *self._flags,
            stderr=asyncio.subprocess.PIPE,
            env={
                "PATH": os.environ["PATH"],
                "LD_LIBRARY_PATH": str(FAKE_DRIVER),
                "FAKE_DRIVER_DIR": str(self.host / "hardware"),
                "NODE_NAME": NODE,
                "HOOK_PATH": str(self.host / "hook"),
                **self._environ,
            },
        )
        self._reading = asyncio.create_task(self._read_logs())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()
        await self._reading

    def write_hardware(self) -> None:
        """Write the fake driver's devices."""
        (self.host / "hardware").mkdir(exist_ok=True)
        (self.host / "hardware/devices.csv").write_text(self.hardware)

    def _in_namespace(self) -> tuple[str, ...]:
        if self.proc is None:
            return ()
        show = 'mount --bind "$0/driver" /proc/driver && mount --bind "$0/devices" /proc/devices && exec "$@"'
        return ("unshare", "--mount", "sh", "-c", show, str(self.proc))

    async def kill(self) -> None:
        """Kill the process."""
        self.process.kill()
        await self.process.wait()

    async def terminate(self) -> int:
        """Send SIGTERM, and return the exit code."""
        self.process.terminate()
        async with asyncio.timeout(DEADLINE_SECONDS):
            return await self.process.wait()

    async def serving(self) -> Self:
        """Wait until the kubelet hears of the devices."""
        before = len(self.kubelet.registrations)
        await self.until(lambda: len(self.kubelet.registrations) >= max(before, 1) and bool(self.kubelet.devices))
        return self

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until *holds*."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not holds():
            assert self.process.returncode is None, self.logs
            assert time.monotonic() < deadline, self.logs
            await asyncio.sleep(0.02)

    async def readiness(self, status: int) -> None:
        """Wait until `/readyz` answers with *status*."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while (answer := await self.get("/readyz"))[0] != status:
            assert time.monotonic() < deadline, (answer, self.logs)
            await asyncio.sleep(0.02)

    async def get(self, path: str) -> tuple[int, str]:
        """Return status and text of *path* at the metrics address."""
        await self.until(lambda: any("port" in line for line in self.logs))
        port = next(line["port"] for line in self.logs if "port" in line)
        async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}{path}") as answer:
            return answer.status, await answer.text()

    def events(self) -> list[str]:
        """Return the events in the log."""
        return [line["event"] for line in self.logs]

    def specs(self) -> dict[str, dict[str, Any]]:
        """Return the edits of every CDI device of the plugin, by qualified name."""
        found = {}
        for path in (self.host / "cdi").glob("*.json"):
            spec = json.loads(path.read_text())
            for device in spec["devices"]:
                found[f"{spec['kind']}={device['name']}"] = device["containerEdits"]
        return found

    def env_of(self, device: str) -> dict[str, str]:
        """Return the environment that the CDI device, a qualified name, gives to a container."""
        return dict(entry.split("=", 1) for entry in self.specs()[device]["env"])

    def environment(self, answer: Any) -> dict[str, str]:
        """Return the environment of a container that was allocated with *answer*."""
        env = dict(answer.envs)
        for device in answer.cdi_devices:
            env |= self.env_of(device.name)
        return env

    async def _read_logs(self) -> None:
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            try:
                self.logs.append(json.loads(line))
            except json.JSONDecodeError:
                self.logs.append({"event": line.decode(errors="replace").rstrip()})


def a_node(**annotations: str) -> dict[str, Any]:
    """Return the Node of the plugin; its runtime has CDI."""
    info = {"containerRuntimeVersion": "containerd://2.1.8", "kubeletVersion": "v1.34.4"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": NODE, "annotations": annotations},
        "status": {"nodeInfo": info},
    }


def a_dra_node() -> dict[str, Any]:
    """Return the Node of a plugin that gives its devices by ResourceClaims: slices name its UID."""
    return a_node() | {"metadata": {"name": NODE, "uid": "node-uid", "annotations": {}}}


def a_pod(
    name: str, allocated: str, *containers: str, init: tuple[str, ...] = (), **annotations: str
) -> dict[str, Any]:
    """Return a Pod bound to the Node; `name=count` is a container that requests *count* devices."""
    granted = {
        "hami.io/vgpu-node": NODE,
        "hami.io/bind-phase": "allocating",
        "hami.io/bind-time": "1787293239",
        "hami.io/vgpu-devices-to-allocate": allocated,
        "hami.io/vgpu-devices-allocated": allocated,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}", "annotations": granted | annotations},
        "spec": {
            "nodeName": NODE,
            "initContainers": [_container(text) for text in init],
            "containers": [_container(text) for text in containers],
        },
        "status": {"phase": "Pending"},
    }


def _container(text: str) -> dict[str, Any]:
    name, _, count = text.partition("=")
    return {"name": name, "resources": {"limits": {RESOURCE: count}} if count else {}}
